"""How often the intervals of figures over tasks hold the true value.

  python -m benchmarks.intervals [--trials 2000] [--json]

Scores of trajectories are drawn from known distributions (skewed ones, ties, shares of
failures), the interval of each figure is computed, and it is counted how often the true
value lies in it: of the mean, of best@k, and of the mean over steps of trajectories
whose steps are alike and of which some are longer. Beside it stands the percentile
bootstrap (trajectories resampled within tasks; of steps also step by step), which the
reports had before, in a quarter of the trials. `needed` is the runs of a task from which
the interval of best@k holds the true value in 93 % of the cases, averaged over the
distributions; null where 128 are not enough.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks import machine
from jaxagent.analysis import intervals

NAME = 'intervals'
Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
DRAWS: Mapping[str, Draw] = {
  'normal': lambda rng, size: rng.normal(size=size),
  'exponential': lambda rng, size: rng.exponential(size=size),
  'lognormal': lambda rng, size: np.exp(rng.normal(size=size)),
  'five values': lambda rng, size: rng.integers(0, 5, size) * 1.0,
  'half of them 0': lambda rng, size: np.where(
    rng.random(size) < 0.5, 0.0, rng.normal(1, 0.3, size)
  ),
  'one in five': lambda rng, size: (rng.random(size) < 0.2) * 1.0,
}
TASKS, RUNS, KS = (1, 3, 6, 10), (8, 16, 32, 64, 128), (1, 2, 4, 8)
RESAMPLES, BY_BOOTSTRAP = 400, 4
METHODS = ('jackknife', 'bootstrap', 'bootstrap by step')
ENOUGH = 0.93


def best_at_k(
  rng: np.random.Generator, draw: Draw, n: int, k: int, tasks: int, trials: int
) -> dict[str, float]:
  """Share of trials whose interval of best@k holds the true value, by method."""
  truth = draw(rng, (400_000 // k, k)).max(axis=1).mean()
  figure, held, boot = intervals.of_best(k), 0, 0
  for trial in range(trials):
    scores = draw(rng, (tasks, n))
    held += _holds(intervals.interval(dict(enumerate(scores)), figure), truth)
    if trial % BY_BOOTSTRAP == 0:
      weights = intervals.best_weights(n, k)
      drawn = scores[:, rng.integers(0, n, (RESAMPLES, n))]
      rows = (np.sort(drawn, axis=2) @ weights).mean(axis=0)
      boot += _within(rows, truth)
  return {
    'jackknife': held / trials,
    'bootstrap': boot / -(-trials // BY_BOOTSTRAP),
  }


def steps(
  rng: np.random.Generator, n: int, tasks: int, trials: int
) -> dict[str, float]:
  """The same of the mean over steps, 1 to 15 a trajectory, half of whose variance
  is the trajectory's; better ones are longer."""

  def draw(count: int) -> list[np.ndarray]:
    own = rng.normal(size=count)
    lengths = 1 + rng.binomial(14, 1 / (1 + np.exp(-own)))
    return [
      mean + rng.normal(size=length) for mean, length in zip(own, lengths)
    ]

  truth = float(np.concatenate(draw(200_000)).mean())
  held, whole, single = 0, 0, 0
  for trial in range(trials):
    groups = {task: draw(n) for task in range(tasks)}
    held += _holds(intervals.interval(groups, intervals.of_steps), truth)
    if trial % BY_BOOTSTRAP == 0:
      by_run, by_step = np.zeros(RESAMPLES), np.zeros(RESAMPLES)
      for runs in groups.values():
        sums = np.array([run.sum() for run in runs])
        counts = np.array([len(run) for run in runs])
        at = rng.integers(0, n, (RESAMPLES, n))
        by_run += sums[at].sum(axis=1) / counts[at].sum(axis=1)
        flat = np.concatenate(runs)
        by_step += flat[
          rng.integers(0, flat.size, (RESAMPLES, flat.size))
        ].mean(axis=1)
      whole += _within(by_run / tasks, truth)
      single += _within(by_step / tasks, truth)
  several = -(-trials // BY_BOOTSTRAP)
  return {
    'jackknife': held / trials,
    'bootstrap': whole / several,
    'bootstrap by step': single / several,
  }


def _holds(found: intervals.Interval, truth: float) -> bool:
  low, high = found['low'], found['high']
  return low is not None and high is not None and low <= truth <= high


def _within(rows: np.ndarray, truth: float) -> bool:
  low, high = np.quantile(rows, [0.025, 0.975])
  return bool(low <= truth <= high)


def needed(rows: list[dict[str, Any]]) -> dict[str, dict[str, int | None]]:
  """Returns tasks -> k -> the fewest runs from which ENOUGH intervals hold."""
  table: dict[str, dict[str, int | None]] = {}
  for tasks in TASKS:
    for k in KS:
      means = {
        n: np.mean(
          [
            row['jackknife']
            for row in rows
            if (row['tasks'], row['k'], row['runs']) == (tasks, k, n)
          ]
        )
        for n in RUNS
        if n >= k
      }
      enough = [
        n for n in means if all(means[m] >= ENOUGH for m in means if m >= n)
      ]
      table.setdefault(str(tasks), {})[str(k)] = min(enough, default=None)
  return table


def table(result: dict[str, Any]) -> str:
  """Per cent of intervals from 16 runs that hold the true value, and runs needed."""
  lines = [
    '| tasks | mean | best@4 | best@8 | mean over steps | runs that best@8 needs |',
    '|---|---|---|---|---|---|',
  ]
  for tasks in TASKS:
    cells = []
    for k in (1, 4, 8):
      rows = [
        row
        for row in result['best_at_k']
        if (row['tasks'], row['runs'], row['k']) == (tasks, 16, k)
      ]
      cells.append([np.mean([row[how] for row in rows]) for how in METHODS[:2]])
    (own,) = (
      row
      for row in result['steps']
      if (row['tasks'], row['runs']) == (tasks, 16)
    )
    cells.append([own[how] for how in METHODS])
    texts = [', '.join(f'{100 * share:.0f}' for share in one) for one in cells]
    need = result['needed'][str(tasks)]['8'] or f'more than {RUNS[-1]}'
    lines.append(f'| {tasks} | {" | ".join(texts)} | {need} |')
  return '\n'.join(lines)


def main() -> None:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--trials', type=int, default=2000)
  parser.add_argument('--json', action='store_true', help='save the result')
  args = parser.parse_args()
  rng, best, by_steps = np.random.default_rng(0), [], []
  for tasks in TASKS:
    for n in RUNS:
      for k in (k for k in KS if k <= n):
        for name, draw in DRAWS.items():
          row = {'tasks': tasks, 'runs': n, 'k': k, 'scores': name}
          row |= best_at_k(rng, draw, n, k, tasks, args.trials)
          best.append(row)
      row = {'tasks': tasks, 'runs': n}
      by_steps.append(row | steps(rng, n, tasks, args.trials))
      print(json.dumps(by_steps[-1]), flush=True)
  result = {
    'level': intervals.LEVEL,
    'trials': args.trials,
    'needed': needed(best),
    'best_at_k': best,
    'steps': by_steps,
  }
  print(json.dumps(result['needed']))
  if args.json:
    print(machine.save(NAME, result))


if __name__ == '__main__':
  main()
