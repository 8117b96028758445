"""Does RL by vLLM, its server killed, learn what it learns by the native engine?

  python -m benchmarks.engines [--seeds 3] [--json]

The quickstart by the native engine, one run a seed, and seed 0 by vLLM, whose
server gets SIGKILL after half of the updates. A curve is the mean reward of each
eighth of the updates; the band is where a further native run's falls with 95 %
(t distribution). Resumable: finished runs are reused.
"""

from __future__ import annotations

import argparse
import math
import os
import pathlib
import signal
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats as sps

from benchmarks import machine
from benchmarks.kill_resume import account, start
from benchmarks.quickstart import run
from jaxagent.analysis.summary import load
from jaxagent.metrics import read_records
from jaxagent.testing import process_tree

PARTS = 8
SCORE = 'critic/score/mean'


def updates(work: pathlib.Path) -> list[dict[str, Any]]:
  """What was logged of each update until now."""
  path = work / 'logs' / 'metrics.jsonl'
  return [r for r in read_records(path) if SCORE in r] if path.exists() else []


def by_vllm(work: pathlib.Path, seed: int, kill_after: int) -> None:
  """One run whose server is killed once, unless it has finished."""
  if (work / 'summary.json').exists():
    return
  options = ('--config.rollout.engine=vllm', f'--config.seed={seed}')
  process = start(work, options)
  while process.poll() is None and len(updates(work)) < kill_after:
    time.sleep(1)
  if process.poll() is None:
    os.kill(server_of(process.pid), signal.SIGKILL)
  if process.wait():
    raise RuntimeError(
      f'exit {process.returncode}: see {work.with_suffix(".log")}'
    )


def server_of(pid: int) -> int:
  """The vLLM server below a process; its guard is another."""
  names = {p: process_tree.name(p) for p in process_tree.below(pid)}
  return next(
    p
    for p, name in names.items()
    if '-m vllm.entrypoints' in name and 'guard' not in name
  )


def figures(work: pathlib.Path) -> dict[str, Any]:
  """Of one finished run."""
  summary, records = load(work / 'summary.json'), updates(work)
  rewards = [r[SCORE] for r in records]
  return {
    'reward': rewards,
    'curve': [float(np.mean(part)) for part in np.array_split(rewards, PARTS)],
    'final': {
      split: summary['rl'][split]['mean_reward']
      for split in ('heldin', 'heldout')
    },
    'step_s': [r['timing_s/step'] for r in records],
    'logps_diff_max': max(
      r['training/rollout_logps_diff_max'] for r in records
    ),
    'wall_s': summary['wall_s'],
    'account': account(work, len(records)),
  }


def band(values: Sequence[float]) -> tuple[float, float]:
  """Where one more falls with 95 %."""
  n = len(values)
  if n < 2:
    return -math.inf, math.inf
  wide = sps.t.ppf(0.975, n - 1) * np.std(values, ddof=1) * math.sqrt(1 + 1 / n)
  return float(np.mean(values) - wide), float(np.mean(values) + wide)


def rows_of(result: dict[str, Any]) -> list[tuple[str, list[float], float]]:
  """(what, of each native seed, by vLLM)."""
  native, other = result['native'], result['vllm']
  return [
    *(
      (f'reward, eighth {i + 1}', [r['curve'][i] for r in native], value)
      for i, value in enumerate(other['curve'])
    ),
    *(
      (
        f'reward at the end, {split}',
        [r['final'][split]['mean'] for r in native],
        value['mean'],
      )
      for split, value in other['final'].items()
    ),
  ]


def table(result: dict[str, Any]) -> str:
  """Markdown."""
  lines = [
    '| | native, each seed | band of one more | vLLM, its server killed | within |',
    '|---|---|---|---|---|',
  ]
  for what, native, value in rows_of(result):
    low, high = band(native)
    each = ', '.join(f'{v:.2f}' for v in native)
    within = 'yes' if low <= value <= high else 'no'
    lines.append(
      f'| {what} | {each} | {low:.2f} to {high:.2f} | {value:.2f} | {within} |'
    )
  native, other = result['native'], result['vllm']
  each = ', '.join(f'{r["wall_s"]["rl"]:.0f}' for r in native)
  lines.append(f'| seconds of RL | {each} | | {other["wall_s"]["rl"]:.0f} | |')
  return '\n'.join(lines)


def main() -> None:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--seeds', type=int, default=3)
  parser.add_argument('--kill_after', type=int, default=32, help='updates')
  parser.add_argument('--work_dir', default='workdir/benchmark_engines')
  parser.add_argument('--json', action='store_true', help='save the result')
  args = parser.parse_args()
  base = pathlib.Path(args.work_dir).resolve()
  base.mkdir(parents=True, exist_ok=True)
  by_vllm(base / 'vllm', 0, args.kill_after)
  result: dict[str, Any] = {
    'speed_index': machine.speed_index(),
    'kill_after': args.kill_after,
    'native': [],
    'vllm': figures(base / 'vllm'),
  }
  for seed in range(args.seeds):
    work = base / f'native{seed}'
    with open(work.with_suffix('.log'), 'ab') as log:
      run(work, seed, log=log)
    result['native'].append(figures(work))
    if args.json:
      machine.save('engines', result)
    print(table(result), flush=True)


if __name__ == '__main__':
  main()
