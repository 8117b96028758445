"""A run over two Ray nodes, one of which is killed: is anything lost, or done twice?

  python -m benchmarks.ray_nodes [--executions 200] [--work_dir DIR] [--json]

A head without CPUs and two nodes of two on the loopback of this machine. Step-wise PPO
collects, fine-tunes, trains and evaluates over them; once RL has made half of its
updates one node gets SIGKILL while it executes. Then the same command is given for a
cluster that wants a token, without the token. Exits 1, with a line for each fault, where
the run does not end with 0 after `executions` executions or more, a prompt is not trained
once, an execution is counted twice, a derived reward differs, or no line names the node
or the token.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import importlib.metadata
import json
import math
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks import kill_resume, machine, stops
from jaxagent import audit
from jaxagent.runtime import executions
from jaxagent.sandbox import ray_private

BATCH = 16
# Without a token the run ends before it has begun anything.
REFUSED_S = 120.0
_START_S = 60.0
_SLOTS = 2  # so many executions under way are on both nodes
_HEALTH = {
  'health_check_initial_delay_ms': 1000,
  'health_check_period_ms': 500,
  'health_check_timeout_ms': 500,
  'health_check_failure_threshold': 3,
}


@contextlib.contextmanager
def two_nodes() -> Iterator[Any]:
  """Starts a head without CPUs and two nodes of two; yields Ray's Cluster.

  Its `removable` are the two nodes. Nothing of it is left in the end.
  """
  from ray.cluster_utils import Cluster

  with (
    ray_private.loopback(),
    tempfile.TemporaryDirectory(prefix='jar-', dir='/tmp') as folder,
    ray_private.own_address_file(folder),
  ):
    store = {'object_store_memory': ray_private.STORE_BYTES}
    made = Cluster(
      initialize_head=True,
      head_node_args={
        'num_cpus': 0,
        'temp_dir': folder,
        'include_dashboard': False,
        '_system_config': _HEALTH,
        **store,
      },
    )
    made.removable = [made.add_node(num_cpus=2, **store) for _ in range(2)]
    try:
      yield made
    finally:
      theirs = ray_private.processes_of(folder)
      made.shutdown()
      for pid, start in theirs.items():
        if ray_private.started(pid) == start:
          with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def head_with_token() -> Iterator[str]:
  """Starts a head that asks for a token; yields its address."""
  with socket.socket() as free:
    free.bind(('127.0.0.1', 0))
    port = free.getsockname()[1]
  with tempfile.TemporaryDirectory(
    prefix='jar-', dir='/tmp', ignore_cleanup_errors=True
  ) as folder:
    head = subprocess.Popen(
      [
        *(sys.executable, '-m', 'ray.scripts.scripts', 'start', '--head'),
        *('--block', f'--port={port}', '--num-cpus=1'),
        *('--include-dashboard=false', '--disable-usage-stats'),
        f'--temp-dir={folder}',
      ],
      env={**os.environ, 'RAY_AUTH_MODE': 'token', 'RAY_AUTH_TOKEN': 64 * 'a'},
      stdout=subprocess.DEVNULL,
      stderr=subprocess.DEVNULL,
    )
    try:
      end = time.monotonic() + _START_S
      while True:
        with socket.socket() as asked:
          if not asked.connect_ex(('127.0.0.1', port)):
            break
        if time.monotonic() > end or head.poll() is not None:
          raise RuntimeError(f'no head of Ray within {_START_S:g} s')
        time.sleep(0.2)
      yield f'127.0.0.1:{port}'
    finally:
      head.terminate()
      head.wait(60)


def options(address: str, updates: int) -> tuple[str, ...]:
  """Returns the options of a run over the cluster at `address`."""
  values = {
    **stops.SMALL,
    'rl.batch_size': BATCH,
    'rl.updates': updates,
    'sandbox.backend': 'ray',
    'sandbox.ray_address': address,
    'sandbox.timeout_s': 20,
  }
  return tuple(f'--config.{key}={value}' for key, value in values.items())


def lost_node(work: pathlib.Path, updates: int) -> dict[str, Any]:
  """Runs over two nodes and kills one of them; returns what came of it."""
  with two_nodes() as cluster:
    process = kill_resume.start(work, options(cluster.address, updates))
    traces = work / 'rl' / 'traces'
    killed_after = None
    try:
      while process.poll() is None:
        made = (
          len(list(traces.glob('update_*.jsonl'))) if traces.exists() else 0
        )
        if (
          killed_after is None
          and made >= updates // 2
          and (_open(work) >= _SLOTS or made >= updates - 1)
        ):
          killed_after = len(_executions(work))
          cluster.remove_node(cluster.removable[0], allow_graceful=False)
        time.sleep(0.05)
    finally:
      process.kill()
      process.wait()
  log = work.with_suffix('.log').read_text(errors='replace')
  result: dict[str, Any] = {
    'code': process.returncode,
    'updates': updates,
    'killed_after': killed_after,
    'lines': [line for line in log.splitlines() if 'is gone (' in line],
  }
  if process.returncode:
    return result | {'log': log[-2000:]}
  ran = _executions(work)
  return result | {
    'executions': len(ran),
    'outcomes': dict(collections.Counter(e['outcome'] for e in ran)),
    'attempts': dict(
      collections.Counter(str(e.get('attempts', 1)) for e in ran)
    ),
    'samples': updates * BATCH,
    **kill_resume.account(work, updates),
    'audit_differences': len(audit.audit(work)['differences']),
  }


def _open(work: pathlib.Path) -> int:
  """Returns how many of RL's executions are under way, queued ones included."""
  ids: dict[str, set[tuple]] = {'submitted': set(), 'executed': set()}
  for path in (work / 'rl' / 'journal').glob('*'):
    for line in path.read_text().splitlines(keepends=True):
      if line.endswith('\n') and '"a":' in line:
        event = json.loads(line)
        if event['e'] in ids:
          ids[event['e']].add(tuple(map(event.get, 'pdca')))
  return len(ids['submitted'] - ids['executed'])


def _executions(work: pathlib.Path) -> list[dict[str, Any]]:
  log = work / executions.LOG
  lines = log.read_text().splitlines(keepends=True) if log.exists() else []
  return [json.loads(line) for line in lines if line.endswith('\n')]


def missing_token(work: pathlib.Path) -> dict[str, Any]:
  """Runs on a cluster whose token it is not given; returns status and last line."""
  with (
    head_with_token() as address,
    tempfile.TemporaryDirectory() as home,
    ray_private.environment(HOME=home, RAY_AUTH_MODE=''),
  ):
    began = time.monotonic()
    process = kill_resume.start(work, options(address, 1))
    try:
      process.wait(REFUSED_S)
    except subprocess.TimeoutExpired:
      pass  # `faults` finds no status of a refusal
    finally:
      process.kill()
      process.wait()
  lines = work.with_suffix('.log').read_text(errors='replace').splitlines()
  return {
    'code': process.returncode,
    'seconds': time.monotonic() - began,
    'line': next((line for line in lines if line.startswith('error: ')), ''),
  }


def faults(result: Mapping[str, Any], least: int) -> list[str]:
  """Returns a line for each thing that is not as it should be.

  least: executions that the run over two nodes should have made.
  """
  run, token = result['lost_node'], result['missing_token']
  found = []
  if len(run['lines']) != 1:
    found.append(f'{len(run["lines"])} lines name the node that is gone')
  if run['code']:
    found.append(f'the run ended with {run["code"]}: {run["log"]}')
  else:
    if run['executions'] < least:
      found.append(f'{run["executions"]} executions of {least}')
    if run['killed_after'] is None:
      found.append('the run had ended before a node was killed')
    if not (run['trained_once'] and run['updates_recorded_once']):
      found.append('a prompt, or an update, is there twice')
    if run['counts']['trained'] != run['samples']:
      found.append(f'{run["counts"]} of {run["samples"]} samples')
    for name in ('executed_again', 'audit_differences'):
      if run[name]:
        found.append(f'{name}: {run[name]}')
  if token['code'] not in (1, 2) or 'RAY_AUTH_TOKEN' not in token['line']:
    found.append(f'without a token: status {token["code"]}, {token["line"]!r}')
  return found


def main(argv: Sequence[str] | None = None) -> int:
  """Measures; returns the exit status."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--executions', type=int, default=200)
  parser.add_argument('--work_dir', default='workdir/benchmark_ray_nodes')
  parser.add_argument('--json', action='store_true', help='save the result')
  args = parser.parse_args(argv)
  base = pathlib.Path(args.work_dir).resolve()
  for own in ('lost_node', 'missing_token'):
    shutil.rmtree(base / own, ignore_errors=True)
    (base / own).with_suffix('.log').unlink(missing_ok=True)
  # Half as many samples again as executions are asked for: half of the samples or more
  # run, and collecting and evaluating add to them.
  updates = max(2, math.ceil(1.5 * args.executions / BATCH))
  result: dict[str, Any] = {'ray': importlib.metadata.version('ray')}
  result['lost_node'] = lost_node(base / 'lost_node', updates)
  print(json.dumps(result['lost_node'], indent=1), flush=True)
  result['missing_token'] = missing_token(base / 'missing_token')
  print(json.dumps(result['missing_token'], indent=1), flush=True)
  found = result['faults'] = faults(result, args.executions)
  for fault in found:
    print(f'fault: {fault}', file=sys.stderr)
  if args.json:
    print(machine.save('ray_nodes', result))
  return int(bool(found))


if __name__ == '__main__':
  sys.exit(main())
