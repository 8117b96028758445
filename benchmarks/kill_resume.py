"""Killed at random and resumed: what is lost, and what differs?

  python -m benchmarks.kill_resume [--kills 20] [--updates 64] [--json FILE]

The quickstart's RL, killed `kills` times with SIGKILL at times chosen at
random, then left to end; once in synchronous mode, where it is compared with a
run that nobody killed, once as it comes. Collecting and SFT are shared.
Resumable: finished runs are reused.
"""

from __future__ import annotations

import argparse
import collections
import json
import pathlib
import random
import subprocess
import sys
import time
from collections.abc import Sequence

from benchmarks import machine
from benchmarks.quickstart import ROOT, seed_control
from jaxagent.analysis.summary import load
from jaxagent.data.ledger import Ledger
from jaxagent.metrics import read_records

# Clocks differ between two runs, so duration weights would.
SYNC = (
  '--config.rl.rest=wait',
  '--config.rl.weighting=none',
  '--config.rollout.batch_invariant=True',
  # A busy moment must not decide whether an execution times out.
  '--config.sandbox.timeout_s=20',
)
# What a process took and compiled, which says nothing of what was learned.
OF_THE_PROCESS = (
  'timing_s/',
  'duration/',
  'sandbox/',
  'perf/',
  'scheduler/',
  'time',
  'learner/compiles',
  'learner/recompiles',
)


def start(
  work: pathlib.Path,
  options: Sequence[str],
  module: Sequence[str] = ('jaxagent.main',),
) -> subprocess.Popen:
  """Starts a run, of `configs/stepwise_ppo.py` unless options name another config.

  module: what is run in place of `jaxagent.main`, with its own arguments.
  """
  work.parent.mkdir(parents=True, exist_ok=True)
  if not any(option.startswith('--config=') for option in options):
    options = ('--config=configs/stepwise_ppo.py', *options)
  log = open(work.with_suffix('.log'), 'ab')
  with log:
    return subprocess.Popen(
      [
        sys.executable,
        '-m',
        *module,
        f'--work_dir={work}',
        *options,
      ],
      cwd=ROOT,
      stdout=log,
      stderr=log,
    )


def finish(work: pathlib.Path, options: Sequence[str]) -> float:
  """Runs to the end, unless it has; returns the seconds of RL."""
  if not (work / 'summary.json').exists():
    code = start(work, options).wait()
    if code:
      raise RuntimeError(f'exit {code}: see {work.with_suffix(".log")}')
  return load(work / 'summary.json')['wall_s']['rl']


def kill_often(work, options, kills: int, within_s: float, seed: int) -> int:
  """Kills RL `kills` times; returns how often it really was running.

  within_s: the time that RL has left is taken to be. The count is kept beside
  the work directory: this benchmark, too, may be killed and go on.
  """
  rng, told = random.Random(seed), work.with_suffix('.killed')
  done = int(told.read_text()) if told.exists() else 0
  while done < kills and not (work / 'summary.json').exists():
    before = newest(work)
    process = start(work, options)
    while newest(work) == before and process.poll() is None:
      time.sleep(0.05)  # until it has resumed
    try:
      # Twice the mean: some kills fall into the same update, some far apart.
      process.wait(rng.random() * 2 * within_s / kills)
    except subprocess.TimeoutExpired:
      process.kill()
      process.wait()
      done += 1
      told.write_text(str(done))
  return done


def newest(work: pathlib.Path) -> str:
  """The journal's newest segment; '' where there is none."""
  return max((p.name for p in (work / 'rl' / 'journal').glob('*')), default='')


def learned(work: pathlib.Path) -> list[dict]:
  """All that was logged of RL but for clocks and compilations."""
  return [
    {k: v for k, v in record.items() if not k.startswith(OF_THE_PROCESS)}
    for record in read_records(work / 'logs' / 'metrics.jsonl')
  ]


def account(work: pathlib.Path, updates: int) -> dict:
  """Whether each prompt was trained once, and what ran more than once."""
  ledger = Ledger.load(work / 'rl' / 'ledger.json')
  ledger.check()
  records = read_records(work / 'logs' / 'metrics.jsonl')
  ran: collections.Counter[str] = collections.Counter()
  for line in (work / 'logs' / 'executions.jsonl').read_text().splitlines():
    record = json.loads(line)
    if '#' in record['job_id'] and record['outcome'] != 'infrastructure':
      ran[record['job_id']] += 1
  traced = collections.Counter(
    json.loads(line)['prompt_id']
    for path in sorted((work / 'rl' / 'traces').glob('update_*.jsonl'))
    for line in path.read_text().splitlines()
    if line.strip()
  )
  counts = ledger.counts()
  steps = [r['step'] for r in records if 'critic/score/mean' in r]
  return {
    'counts': counts,
    'updates_recorded_once': steps == list(range(updates)),
    'trained_once': len(traced) == counts['trained']
    and set(traced.values()) == {1},
    'executed': len(ran),
    'executed_again': sum(n - 1 for n in ran.values()),
  }


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--kills', type=int, default=20)
  parser.add_argument('--updates', type=int, default=64)
  parser.add_argument('--work_dir', default='workdir/benchmark_kill_resume')
  parser.add_argument('--json', action='store_true', help='save the result')
  args = parser.parse_args()
  base = pathlib.Path(args.work_dir).resolve()
  size = (f'--config.rl.updates={args.updates}',)
  whole = base / 'whole'
  rl_s = finish(whole, (*size, *SYNC))
  result = {'kills': args.kills, 'updates': args.updates, 'rl_s': rl_s}
  for name, options in (('sync', (*size, *SYNC)), ('async', size)):
    work = base / name
    seed_control(whole, work)
    done = kill_often(work, options, args.kills, rl_s, seed=len(name))
    finish(work, options)
    row = result[name] = {'killed': done, **account(work, args.updates)}
    if name == 'sync':
      row['equal_to_the_last_digit'] = learned(work) == learned(whole)
    print(name, json.dumps(row), flush=True)
  if args.json:
    print(machine.save('kill_resume', result))


if __name__ == '__main__':
  main()
