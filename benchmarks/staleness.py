"""Reward against wall time at each bound of staleness.

  python -m benchmarks.staleness [--seeds 1] [--json] [--plot]

The quickstart's RL with `max_staleness` 0, 1, 2, 4 and 8: as it is, where learner
and two sandboxes take about as long, on the same two cores; with one sandbox, which
takes most of an update; and with three times as many passes of the learner, which
then does (24 updates in both). Resumable: finished runs are reused.
"""

from __future__ import annotations

import itertools
import pathlib
import sys
from typing import Any

import numpy as np

from benchmarks.arms import cell, main, smooth

BOUNDS = (0, 1, 2, 4, 8)
SLOW = {
  'neither': (),
  'sandboxes': ('sandbox.slots=1', 'rl.updates=24'),
  'learner': ('rl.ppo_epochs=6', 'rl.updates=24'),
}
COLUMNS = {
  'reward': 'reward',
  'rl_s': 'seconds of RL',
  'age': 'mean age',
  'age_max': 'largest age',
  'worker_use': 'worker use',
  'heldout_reward': 'held-out reward',
}
GOAL = 0.55  # a reward that every arm of the quickstart gets to


def arms():
  """(names, options) of each arm."""
  for (slow, options), bound in itertools.product(SLOW.items(), BOUNDS):
    names = {'slow': slow, 'bound': bound}
    yield names, [*options, f'rl.max_staleness={bound}']


def seconds_to_goal(row: dict) -> str:
  """Seconds of RL until the mean of five updates' rewards is GOAL; the mean
  over the seeds that got there, and how many did."""
  found = []
  for run in row['runs']:
    there = np.flatnonzero(smooth(run['reward']) >= GOAL)
    if len(there):
      found.append(float(np.sum(run['step_s'][: there[0] + 1])))
  if not found:
    return 'never'
  mean = f'{np.mean(found):.0f}'
  few = len(found) < len(row['runs'])
  return f'{mean} ({len(found)} of {len(row["runs"])})' if few else mean


def line(row: dict) -> str:
  """One row for people, and of the table."""
  cells = [cell(row, name, 0 if name == 'rl_s' else 2) for name in COLUMNS]
  cells.append(seconds_to_goal(row))
  return f'| {row["slow"]} | {row["bound"]} | {" | ".join(cells)} |'


def table(result: dict[str, Any]) -> str:
  """Markdown."""
  names = [*COLUMNS.values(), f'seconds to a reward of {GOAL}']
  head = f'| slow | bound | {" | ".join(names)} |'
  rule = '|' + '---|' * (2 + len(names))
  return '\n'.join([head, rule, *map(line, result['rows'])])


def plot(rows: list[dict], path: pathlib.Path) -> None:
  """Reward over seconds of RL; the first seed."""
  import matplotlib

  matplotlib.use('Agg')
  import matplotlib.pyplot as plt

  figure, axes = plt.subplots(1, len(SLOW), figsize=(11, 4), sharey=True)
  for axis, slow in zip(axes, SLOW):
    for row in rows:
      if row['slow'] == slow:
        run = row['runs'][0]
        axis.plot(
          np.cumsum(run['step_s']), smooth(run['reward']), label=row['bound']
        )
    axis.set_title(f'slow: {slow}', fontsize=10)
    axis.set_xlabel('seconds of RL')
  axes[0].set_ylabel('mean reward')
  axes[0].legend(title='bound', fontsize=8)
  figure.tight_layout()
  figure.savefig(path)


if __name__ == '__main__':
  main(sys.modules[__name__], name='staleness', seeds=1, updates=40)
