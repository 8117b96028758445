"""Intervals of figures over tasks: Student's t with the jackknife's standard error.

A figure of a task is computed from its trajectories; the whole is the mean over tasks.
Leaving one trajectory out at a time gives the standard error of each task's figure,
whatever the figure (a mean of steps, the expected best of k), and trajectories are left
out whole, since the steps of one are alike. Degrees of freedom are Satterthwaite's.
Intervals speak of other runs on these tasks, not of other tasks.

`python -m benchmarks.intervals` simulates how often they hold the true value, beside
the percentile bootstrap that stood here before (docs/summary.md). No jax here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import special  # of a tenth of the start-up of scipy.stats

Interval = dict[str, float | int | None]
# Of the runs of one task: the figure, and the figure without each of them.
Figure = Callable[[Any], tuple[float, np.ndarray]]
LEVEL = 0.95


def interval(
  groups: Mapping[Any, Any],
  figure: Figure,
  *,
  level: float = LEVEL,
  within: tuple[float, float] = (-math.inf, math.inf),
) -> Interval:
  """Mean over tasks of a figure, with its interval: {mean, low, high, n}.

  groups: task -> what `figure` takes. A task without anything is left out.
  within: what the figure can be; ends are cut there.
  Where no task has two trajectories nothing varies: the interval has no width. No task
  gives None and n = 0.
  """
  if not 0 < level < 1:
    raise ValueError(f'level={level} must lie between 0 and 1.')
  found = {task: figure(runs) for task, runs in groups.items() if len(runs)}
  found = {task: own for task, own in found.items() if not math.isnan(own[0])}
  if not found:
    return {'mean': None, 'low': None, 'high': None, 'n': 0}
  mean = float(np.mean([point for point, _ in found.values()]))
  variances, freedoms = _variances([left for _, left in found.values()])
  error = math.sqrt(sum(variances)) / len(found)
  spread = error * _quantile(variances, freedoms, level) if error else 0.0
  count = sum(_values(groups[task]) for task in found)
  low, high = max(within[0], mean - spread), min(within[1], mean + spread)
  return {'mean': mean, 'low': low, 'high': high, 'n': count}


def share(hits: int, n: int, *, level: float = LEVEL) -> Interval:
  """Share of n independent runs of one task, with Wilson's interval: {mean, low, high, n}.

  The jackknife finds no spread where no run or each one is a hit. As
  `scipy.stats.binomtest(hits, n).proportion_ci(method='wilson')`.
  """
  z, mean = float(special.ndtri(0.5 + level / 2)), hits / n
  middle = (mean + z**2 / (2 * n)) / (1 + z**2 / n)
  spread = math.sqrt(mean * (1 - mean) / n + z**2 / (4 * n**2))
  half = z / (1 + z**2 / n) * spread
  low, high = min(mean, middle - half), max(mean, middle + half)
  return {'mean': mean, 'low': max(0.0, low), 'high': min(1.0, high), 'n': n}


def of_means(values: Sequence[float]) -> tuple[float, np.ndarray]:
  """`Figure` of the mean of one value a trajectory."""
  array = finite('values', values)
  if array.size == 1:
    return float(array[0]), array[:0]
  return float(array.mean()), (array.sum() - array) / (array.size - 1)


def of_steps(runs: Sequence[Sequence[float]]) -> tuple[float, np.ndarray]:
  """`Figure` of the mean over all steps of trajectories, [T_i] each.

  NaN where no trajectory has a step; one without any is no run of this figure.
  """
  sums = np.array(
    [math.fsum(finite('values', run)) for run in runs if len(run)]
  )
  counts = np.array([len(run) for run in runs if len(run)])
  if not sums.size:
    return math.nan, sums
  point = float(sums.sum() / counts.sum())
  if sums.size == 1:
    return point, sums[:0]
  return point, (sums.sum() - sums) / (counts.sum() - counts)


def of_best(k: int, higher_is_better: bool = True) -> Figure:
  """Returns the `Figure` of best@k of one score a trajectory."""
  sign = 1.0 if higher_is_better else -1.0

  def figure(scores: Sequence[float]) -> tuple[float, np.ndarray]:
    values = np.sort(sign * finite('scores', scores))
    n = values.size
    point = float(values @ best_weights(n, min(k, n)))
    if n == 1:
      return sign * point, values[:0]
    weights = best_weights(n - 1, min(k, n - 1))
    # Those below the one left out keep their place, those above move one down.
    below = np.append(weights, 0.0) * values
    above = np.append(0.0, weights) * values
    left = np.cumsum(below) - below + above.sum() - np.cumsum(above)
    return sign * point, sign * left

  return figure


def best_weights(n: int, k: int) -> np.ndarray:
  """Weight [n] of each order statistic in best@k; sums to 1.

  By recurrence from the largest down, so nothing overflows for any n:
  w_n = k / n, w_{i-1} = w_i (i - k) / (i - 1).
  """
  if not 1 <= k <= n:
    raise ValueError(
      f'best@k needs 1 <= k <= n; k={k} with n={n} trajectories. '
      'Run more trajectories (config.eval.trajectories_per_task) or lower '
      'config.eval.k.'
    )
  weights = np.zeros(n)
  weights[n - 1] = k / n
  for i in range(n, k, -1):
    weights[i - 2] = weights[i - 1] * (i - k) / (i - 1)
  return weights


def finite(name: str, values: Sequence[float]) -> np.ndarray:
  """Returns an array [n]; raises ValueError where it is empty or not finite."""
  array = np.asarray(values, np.float64).reshape(-1)
  if not array.size:
    raise ValueError(f'{name} is empty; run at least one trajectory.')
  if not np.isfinite(array).all():
    bad = array[~np.isfinite(array)][0]
    raise ValueError(f'{name} holds {bad}; only finite numbers count.')
  return array


def _variances(
  without: Sequence[np.ndarray],
) -> tuple[list[float], list[int]]:
  """The jackknife's variance of each task's figure, and its degrees of freedom.

  without: of each task the figures without each of its runs. A task of one run says
    nothing of its own spread: it is taken to have the mean one of the others' runs.
  """
  several = [left for left in without if left.size > 1]
  single = (
    np.mean([_variance(left) * left.size for left in several])
    if several
    else 0.0
  )
  freedom = sum(left.size - 1 for left in several) or 1
  variances, freedoms = [], []
  for left in without:
    alone = left.size < 2
    variances.append(float(single) if alone else _variance(left))
    freedoms.append(freedom if alone else left.size - 1)
  return variances, freedoms


def _variance(left: np.ndarray) -> float:
  squares = float(((left - left.mean()) ** 2).sum())
  return squares * (left.size - 1) / left.size


def _quantile(
  variances: Sequence[float], freedoms: Sequence[int], level: float
) -> float:
  """Student's t by Satterthwaite's degrees of freedom."""
  below = sum(v * v / df for v, df in zip(variances, freedoms))
  freedom = sum(variances) ** 2 / below if below else math.inf
  return float(special.stdtrit(freedom, 0.5 + level / 2))


def _values(runs: Any) -> int:
  return sum(np.size(run) for run in runs)
