"""What each weighting learns where actions run: the miniature of figure 8.

  python -m benchmarks.duration_ablation --seeds 3 [--json] [--plot]

The quickstart's tasks, with real executions: quick poor edits and slow good
ones both exist, and some run into their limit. Weightings `none`, `duration`
(paper 003, as printed), `inclusion`, and `duration` with each control of its
variance, under `carry_over` and under `cancel`. Runs of a seed share experts
and SFT. Each update gives the mean reward, execution time, share of time-outs
and the effective share of the weights; the table has the last quarter of the
updates, with 95 % intervals over seeds (t distribution). Resumable: finished
runs are reused.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
from scipy import stats as sps

from benchmarks import machine
from benchmarks.quickstart import ROOT, seed_control
from jaxagent.metrics import read_records
from jaxagent.summary import load

ARMS = {
  'none': ('weighting=none',),
  'duration': ('weighting=duration', 'weight_cap=0.0'),
  'inclusion': ('weighting=inclusion',),
  'duration, cap 3': ('weighting=duration', 'weight_cap=3.0'),
  'duration, step by share': (
    'weighting=duration',
    'weight_cap=0.0',
    'step_size=ess',
  ),
  'duration, optimal baseline': (
    'weighting=duration',
    'weight_cap=0.0',
    'baseline=optimal',
  ),
}
RESTS = {
  'carry_over': ('rest=carry_over',),
  'cancel': ('rest=cancel', 'oversample=1.25'),
}
SMALL = (
  '--config.eval.trajectories_per_task=4',
  '--config.eval.k=4',
  '--config.eval.max_steps=1',
)
# What is kept of each update, by the name it is logged under.
CURVES = {
  'reward': 'critic/score/mean',
  'exec_s': 'sandbox/exec_s',
  'timeouts': 'sandbox/timeout_rate',
  'weight_ess': 'actor/weight_ess',
}


def run(work: pathlib.Path, seed: int, updates: int, options) -> None:
  """One arm, unless it has finished."""
  if (work / 'summary.json').exists():
    return
  with open(work.with_suffix('.log'), 'ab') as log:
    subprocess.run(
      [
        sys.executable,
        '-m',
        'jaxagent.main',
        '--config=configs/stepwise_ppo.py',
        f'--config.seed={seed}',
        f'--config.rl.updates={updates}',
        f'--work_dir={work}',
        *SMALL,
        *(f'--config.rl.{option}' for option in options),
      ],
      cwd=ROOT,
      stdout=log,
      stderr=log,
      check=True,
    )


def curves(work: pathlib.Path) -> dict[str, Any]:
  """Each update's figures, the seconds of RL, and the held-out reward."""
  records = [
    r
    for r in read_records(work / 'logs' / 'metrics.jsonl')
    if 'critic/score/mean' in r
  ]
  summary = load(work / 'summary.json')
  return {
    **{k: [r.get(name) for r in records] for k, name in CURVES.items()},
    'rl_s': summary['wall_s']['rl'],
    'heldout_reward': summary['rl']['heldout']['mean_reward']['mean'],
  }


def measure(base: pathlib.Path, seeds: int, updates: int) -> list[dict]:
  """A row for each rest policy and arm; `runs` has one entry a seed."""
  rows = []
  for rest, of_rest in RESTS.items():
    for arm, of_arm in ARMS.items():
      runs = []
      for seed in range(seeds):
        first = base / f'seed{seed}-{next(iter(RESTS))}-0'
        number = list(ARMS).index(arm)
        work = base / f'seed{seed}-{rest}-{number}'
        base.mkdir(parents=True, exist_ok=True)
        if work != first:
          seed_control(first, work)
        run(work, seed, updates, (*of_rest, *of_arm))
        runs.append(curves(work))
      rows.append({'rest': rest, 'arm': arm, 'runs': runs})
      print(line(rows[-1]), flush=True)
  return rows


def last_quarter(row: dict, name: str) -> tuple[float, float]:
  """(mean, half the 95 % interval) over seeds."""
  found = []
  for one in row['runs']:
    values = one[name]
    if isinstance(values, list):
      values = [v for v in values[-(len(values) // 4) :] if v is not None]
    found.append(float(np.mean(values)))
  if len(found) < 2:
    return found[0], float('nan')
  spread = np.std(found, ddof=1) / math.sqrt(len(found))
  return (
    float(np.mean(found)),
    float(sps.t.ppf(0.975, len(found) - 1) * spread),
  )


def line(row: dict) -> str:
  """One row for people, and of the table."""
  cells = []
  for name in (*CURVES, 'heldout_reward', 'rl_s'):
    mean, half = last_quarter(row, name)
    digits = 0 if name == 'rl_s' else 2
    cells.append(f'{mean:.{digits}f} ± {half:.{digits}f}')
  return f'| {row["rest"]} | {row["arm"]} | {" | ".join(cells)} |'


def table(rows: list[dict]) -> str:
  """Markdown."""
  head = (
    '| rest | weighting | reward | exec_s | time-outs | effective share | '
    'held-out reward | seconds of RL |'
  )
  return '\n'.join([head, '|' + '---|' * 8, *map(line, rows)])


def plot(rows: list[dict], path: pathlib.Path) -> None:
  """Reward and execution time over updates, means over seeds."""
  import matplotlib

  matplotlib.use('Agg')
  import matplotlib.pyplot as plt

  figure, axes = plt.subplots(2, len(RESTS), figsize=(11, 6), sharex=True)
  for column, rest in enumerate(RESTS):
    for row in rows:
      if row['rest'] != rest:
        continue
      for axis, name in zip(axes[:, column], ('reward', 'exec_s')):
        values = np.array([r[name] for r in row['runs']], float)
        axis.plot(_smooth(np.nanmean(values, 0)), label=row['arm'])
    axes[0, column].set_title(rest, fontsize=10)
    axes[1, column].set_xlabel('updates')
  axes[0, 0].set_ylabel('mean reward')
  axes[1, 0].set_ylabel('seconds an execution')
  axes[0, 0].legend(fontsize=7)
  figure.tight_layout()
  figure.savefig(path)


def _smooth(values: np.ndarray, window: int = 5) -> np.ndarray:
  """Means of up to `window` updates until then."""
  return np.array(
    [values[max(0, i + 1 - window) : i + 1].mean() for i in range(len(values))]
  )


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--seeds', type=int, default=3)
  parser.add_argument('--updates', type=int, default=24)
  parser.add_argument('--work_dir', default='workdir/benchmark_ablation')
  parser.add_argument('--json', action='store_true', help='save the result')
  parser.add_argument('--plot', action='store_true', help='docs/img')
  args = parser.parse_args()
  base = pathlib.Path(args.work_dir).resolve()
  rows = measure(base, args.seeds, args.updates)
  print(table(rows))
  if args.plot:
    plot(rows, ROOT / 'docs' / 'img' / 'duration_ablation.svg')
  result = {'seeds': args.seeds, 'updates': args.updates, 'rows': rows}
  if args.json:
    print(machine.save('duration_ablation', result))
  else:
    print(json.dumps({'rows': len(rows)}))


if __name__ == '__main__':
  main()
