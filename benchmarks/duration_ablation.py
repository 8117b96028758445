"""Learning under each weighting with real executions: figure 8 in miniature.

  python -m benchmarks.duration_ablation --seeds 3 [--json] [--plot]

The quickstart's tasks, with real executions: quick poor edits and slow good
ones both exist, and some run into their limit. Weightings `none`, `duration`
(paper 003, as printed), `inclusion`, and `duration` with each control of its
variance, under `carry_over` and under `cancel`. Each update gives the mean
reward, execution time, share of time-outs and the effective share of the
weights; the table has the last quarter of the updates, with 95 % intervals
over seeds, and how much more it is than without weights, seed by seed. Resumable: finished runs are reused.
"""

from __future__ import annotations

import itertools
import pathlib
import sys
from typing import Any

import numpy as np

from benchmarks.arms import cell, main, more, smooth

WEIGHTINGS = {
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
COLUMNS = {
  'reward': 'reward',
  'exec_s': 'seconds an execution',
  'timeouts': 'time-outs',
  'weight_ess': 'effective share',
  'heldout_reward': 'held-out reward',
  'rl_s': 'seconds of RL',
}


def arms():
  """(names, options) of each arm."""
  for (rest, of_rest), (weighting, own) in itertools.product(
    RESTS.items(), WEIGHTINGS.items()
  ):
    names = {'rest': rest, 'weighting': weighting}
    yield names, [f'rl.{option}' for option in (*of_rest, *own)]


# Of these the difference to `none` is told, seed by seed.
COMPARED = ('reward', 'exec_s')


def line(row: dict, none: dict) -> str:
  """One row of the table; none: that of the same rest without weights."""
  cells = [cell(row, name, 0 if name == 'rl_s' else 2) for name in COLUMNS]
  cells += ['' if row is none else more(row, none, name) for name in COMPARED]
  return f'| {row["rest"]} | {row["weighting"]} | {" | ".join(cells)} |'


def table(result: dict[str, Any]) -> str:
  """Markdown."""
  names = [*COLUMNS.values()]
  names += [f'{COLUMNS[name]}, more than none' for name in COMPARED]
  head = f'| rest | weighting | {" | ".join(names)} |'
  rule = '|' + '---|' * (2 + len(names))
  none = {
    row['rest']: row for row in result['rows'] if row['weighting'] == 'none'
  }
  rows = [line(row, none[row['rest']]) for row in result['rows']]
  return '\n'.join([head, rule, *rows])


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
        axis.plot(smooth(np.nanmean(values, 0)), label=row['weighting'])
    axes[0, column].set_title(rest, fontsize=10)
    axes[1, column].set_xlabel('updates')
  axes[0, 0].set_ylabel('mean reward')
  axes[1, 0].set_ylabel('seconds an execution')
  axes[0, 0].legend(fontsize=7)
  figure.tight_layout()
  figure.savefig(path)


if __name__ == '__main__':
  main(sys.modules[__name__], name='duration_ablation', seeds=3, updates=24)
