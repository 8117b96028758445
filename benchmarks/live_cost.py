"""Measures what an open live page costs a run.

  python -m benchmarks.live_cost --work_dir DIR [--pairs 5] [--updates 64] [--json]

Trains one SFT, then pairs of runs of RL from it, in turn with and without an open page:
a client asks as `live/static/main.js` does, what changed every second, and then for that.
Samples wait for each other (`rl.rest=wait`), no weight depends on a duration and log-probs
not on what is decoded beside, so that all runs do the same work; one of a single update
before them compiles the programs that they find in the cache. Prints the server's CPU
seconds over the run's, and how much longer a run with the page takes: the mean of the
logarithms' ratios over the pairs, with its 95 % interval (t). Aims: 0.01 and 0.03. Each
run's figures are kept in DIR: the same command goes on where it was stopped. Ten runs
take an hour on two idle cores.
"""

from __future__ import annotations

import argparse
import http.client
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from benchmarks import live, machine

OPTIONS = (
  '--config=configs/stepwise_ppo.py',
  "--config.tasks.heldin=('wine','diabetes')",
  "--config.tasks.heldout=('breast-cancer',)",
  '--config.model.hf.num_hidden_layers=2',
  '--config.rollout.temperature=0.5',
  '--config.rollout.batch_invariant=True',
  '--config.rl.rest=wait',
  '--config.rl.weighting=none',
  '--config.collect.trajectories_per_task=10',
  '--config.collect.max_steps=3',
  '--config.sft.epochs=20',
  '--config.sft.batch_size=8',
  "--config.eval.policies=('rl',)",
  '--config.eval.trajectories_per_task=2',
  '--config.eval.max_steps=1',
  '--config.eval.k=2',
)
# Seconds between two questions of the page for the runs there are, and for lanes.
_RUNS_S, _LANES_S = 3.0, 2.0
_FROM_SFT = ('collect', 'tokenizer', 'sft', 'tasks')


def run(work: pathlib.Path, *more: str) -> dict[str, float]:
  """Runs a job; returns its wall and CPU seconds. Raises where it fails."""
  began = time.monotonic()
  process = subprocess.Popen(
    [sys.executable, '-m', 'jaxagent.main', *OPTIONS, *more]
    + [f'--work_dir={work}'],
    stdout=subprocess.DEVNULL,
    env=os.environ | {'JAX_PLATFORMS': 'cpu'},
  )
  _, status, used = os.wait4(process.pid, 0)
  process.returncode = os.waitstatus_to_exitcode(status)
  if process.returncode:
    raise RuntimeError(f'the run in {work} ended with {process.returncode}')
  return {
    'wall_s': time.monotonic() - began,
    'cpu_s': used.ru_utime + used.ru_stime,
  }


def watched(work: pathlib.Path, *more: str) -> dict[str, float]:
  """Returns as `run`, with the CPU seconds of a server that is asked meanwhile."""
  ended = threading.Event()
  with live.served(work.parent) as (pid, url):
    asking = threading.Thread(target=_ask, args=(url, work.name, ended))
    asking.start()
    try:
      return run(work, *more) | {'server_cpu_s': live.cpu_s(pid)}
    finally:
      ended.set()
      asking.join()


def _ask(url: str, name: str, ended: threading.Event) -> None:
  """Asks as the page does, once a second, until `ended`."""
  query = urllib.parse.urlencode({'run': name})
  at = {'runs': -math.inf, 'lanes': -math.inf}
  seen: dict[str, Any] = {}
  # One connection, as a browser's; it is opened again where the server closed it.
  server = http.client.HTTPConnection(
    urllib.parse.urlsplit(url).netloc, timeout=10
  )

  def get(what: str) -> Any:
    at[what] = time.monotonic()
    server.request('GET', f'/api/{what}?{query}')
    return json.load(server.getresponse())

  while not ended.wait(1.0):
    now = time.monotonic()
    try:
      if now - at['runs'] > _RUNS_S:
        get('runs')
      if (stamps := get('state').get('stamps')) is None:
        continue  # the run is not there yet
      for what in ('rollouts', 'curves'):
        if seen.get(what) != stamps[what]:
          seen[what] = stamps[what]
          get(what)
      if now - at['lanes'] > _LANES_S and seen.get('lanes') != stamps:
        seen['lanes'] = stamps
        get('lanes')
    except (OSError, http.client.HTTPException):
      server.close()
  server.close()


def compared(pairs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
  """Returns shares of pairs of runs, each {'with': figures, 'without': figures}."""
  ratios = [
    math.log(pair['with']['wall_s'] / pair['without']['wall_s'])
    for pair in pairs
  ]
  found: dict[str, Any] = {
    'pairs': len(pairs),
    'server_share_of_cpu': sum(p['with']['server_cpu_s'] for p in pairs)
    / sum(p['with']['cpu_s'] for p in pairs),
    'longer': math.expm1(float(np.mean(ratios))),
  }
  if len(ratios) > 1:
    low, high = stats.t.interval(
      0.95, len(ratios) - 1, np.mean(ratios), stats.sem(ratios)
    )
    found['longer_95'] = [math.expm1(low), math.expm1(high)]
  return found


def measure(base: pathlib.Path, pairs: int, updates: int) -> list[dict]:
  """Runs what is missing; returns the figures of each pair."""
  taught = base / 'taught'
  if not (base / 'taught.json').exists():
    found = run(taught, '--config.stage=sft')
    # What the first run compiles the others find: one that is not counted.
    _trained(taught, base / 'compiled' / 'run', run, 1)
    (base / 'taught.json').write_text(json.dumps(found))
  made: list[dict] = []
  for number in range(pairs):
    pair = {}
    # Whichever is first in a pair is second in the next one.
    for how in ('with', 'without') if number % 2 else ('without', 'with'):
      file = base / f'{number}-{how}.json'
      if not file.exists():
        job = watched if how == 'with' else run
        found = _trained(taught, base / f'{number}-{how}' / 'run', job, updates)
        file.write_text(json.dumps(found))
      pair[how] = json.loads(file.read_text())
    made.append(pair)
  return made


def _trained(
  taught: pathlib.Path,
  work: pathlib.Path,
  job: Callable[..., dict[str, float]],
  updates: int,
) -> dict[str, float]:
  """Returns what `job` gives of RL from this SFT; its folder is removed."""
  shutil.rmtree(work.parent, ignore_errors=True)
  work.mkdir(parents=True)
  for name in _FROM_SFT:
    shutil.copytree(taught / name, work / name, symlinks=True)
  shutil.copy(taught / 'snapshots.sqlite', work)
  found = job(work, f'--config.rl.updates={updates}')
  shutil.rmtree(work.parent)
  return found


def main() -> None:
  """Command line."""
  parser = argparse.ArgumentParser(
    prog='python -m benchmarks.live_cost', description=__doc__.split('\n')[0]
  )
  parser.add_argument('--work_dir', type=pathlib.Path, required=True)
  parser.add_argument('--pairs', type=int, default=5)
  parser.add_argument('--updates', type=int, default=64)
  parser.add_argument('--json', action='store_true', help='write results/')
  arguments = parser.parse_args()
  arguments.work_dir.mkdir(parents=True, exist_ok=True)
  pairs = measure(arguments.work_dir, arguments.pairs, arguments.updates)
  found = compared(pairs) | {'updates': arguments.updates}
  print(json.dumps(found, indent=1))
  if arguments.json:
    machine.save('live_cost', found | {'runs': pairs})


if __name__ == '__main__':
  main()
