"""Statistics of an evaluation: what is reported, and how sure it is.

Scores of different tasks (accuracy, RMSE, ...) cannot be averaged as they
are. Two scales are used, both 0 for the starter script and larger for better:

- normalised score, (m - m_init) / (m_best - m_init): 1 is the best known
  solution. `avg_at_k` and `best_at_k` in `summary.json` are means over tasks
  of this.
- relative gain, beta (m - m_init) / |m_init|, paper 000 section 5.1.

Intervals are percentile bootstraps, resampled within each task: they speak of
other runs on these tasks, not of other tasks. No jax here.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

Interval = dict[str, float | int | None]
_CHUNK = 4_000_000  # numbers resampled at a time: 32 MB


def avg_at_k(scores: Sequence[float]) -> float:
  """Mean score of the K trajectories given (paper 000, 5.1)."""
  return float(np.mean(_finite('scores', scores)))


def best_at_k(
  scores: Sequence[float], k: int, higher_is_better: bool = True
) -> float:
  """Expected best of k trajectories drawn from the n given.

  The unbiased estimator from order statistics: with x_(1) <= ... <= x_(n),
  sum_i C(i-1, k-1) / C(n, k) x_(i) is the mean of the maximum over all
  k-subsets. best@n is the plain maximum, best@1 the mean.

    best_at_k([1, 2, 3], 2) == (2 + 3 + 3) / 3

  Raises ValueError unless 1 <= k <= n and every score is finite.
  """
  values = _finite('scores', scores)
  weights = best_weights(len(values), k)
  sign = 1.0 if higher_is_better else -1.0
  return float(sign * (np.sort(sign * values) @ weights))


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


def best_of_rows(rows: np.ndarray, k: int) -> np.ndarray:
  """best@k of each row, [R, n] -> [R], larger is better; k is cut to n."""
  size = rows.shape[1]
  return np.sort(rows, axis=1) @ best_weights(size, min(k, size))


def best_curve(
  scores: Sequence[float],
  ks: Sequence[int] = (1, 2, 4, 8, 16, 32, 64, 128),
  higher_is_better: bool = True,
) -> dict[int, float]:
  """best@k for every k of `ks` that the number of runs allows."""
  n = len(scores)
  return {k: best_at_k(scores, k, higher_is_better) for k in ks if k <= n}


def relative_gain(m: float, m_init: float, higher_is_better: bool) -> float:
  """Relative improvement over the starter script, paper 000 section 5.1.

  beta (m - m_init) / m_init with beta = 1, or -1 where lower is better, so
  that positive is an improvement. The magnitude of m_init divides: a metric
  that is negative at the start (R2, log-likelihood) would flip the sign of
  the paper's formula, which is meant for positive ones.
  """
  if m_init == 0 or not math.isfinite(m_init):
    raise ValueError(
      f'relative gain is not defined for m_init={m_init}; '
      'use the normalised score.'
    )
  sign = 1.0 if higher_is_better else -1.0
  return sign * (m - m_init) / abs(m_init)


def normalised_score(m: float, m_init: float, m_best: float) -> float:
  """(m - m_init) / (m_best - m_init): 0 starter, 1 best known, any metric."""
  if m_best == m_init:
    raise ValueError(f'm_best equals m_init ({m_init}); measure them again.')
  return (m - m_init) / (m_best - m_init)


def success_rate(
  scores: Sequence[float | None],
  m_init: float,
  higher_is_better: bool,
  threshold: float = 0.10,
) -> float:
  """Share of runs at least 10 % better than the baseline (paper 002, 4.1).

  None is a run without a valid submission and counts as a failure.
  """
  if not scores:
    raise ValueError('success rate of no runs; run at least one trajectory.')
  wins = [
    s is not None
    and math.isfinite(s)
    and relative_gain(s, m_init, higher_is_better) >= threshold - 1e-12
    for s in scores
  ]
  return sum(wins) / len(wins)


def valid_action_rate(valid: Sequence[bool]) -> float:
  """Share of actions that parsed and were allowed."""
  if not len(valid):
    raise ValueError('valid-action rate of no actions.')
  return sum(bool(v) for v in valid) / len(valid)


def bootstrap_interval(
  values: Sequence[float],
  seed: int,
  n: int = 10_000,
  level: float = 0.95,
  strata: Sequence[Hashable] | None = None,
) -> Interval:
  """Mean and percentile-bootstrap interval: {mean, low, high, n}.

  strata: one label for each value (its task). Then resampling stays within
  each stratum and the mean is that of the stratum means: every task weighs
  the same, however many steps it took. No values give None and n = 0.
  """
  labels = list(strata) if strata is not None else [0] * len(values)
  if len(labels) != len(values):
    raise ValueError(
      f'strata has {len(labels)} labels for {len(values)} values.'
    )
  groups: dict[Hashable, list[float]] = {}
  for label, value in zip(labels, values):
    groups.setdefault(label, []).append(value)
  return bootstrap_groups(groups, _row_mean, seed, n, level)


def bootstrap_groups(
  groups: Mapping[Any, Sequence[float]],
  statistic: Callable[[np.ndarray], np.ndarray],
  seed: int,
  n: int = 10_000,
  level: float = 0.95,
) -> Interval:
  """Mean over groups of a statistic, with its bootstrap interval.

  statistic: [R, m] -> [R], one figure for each resample of m values.
  """
  if not 0 < level < 1 or n < 1:
    raise ValueError(f'need 0 < level < 1 and n >= 1; got {level}, {n}.')
  drawn = {k: _finite('values', v) for k, v in groups.items() if len(v)}
  count = sum(len(v) for v in drawn.values())
  if not drawn:
    return {'mean': None, 'low': None, 'high': None, 'n': 0}
  rng = np.random.default_rng(seed)
  point = float(np.mean([statistic(v[None])[0] for v in drawn.values()]))
  total = np.zeros(n)
  for values in drawn.values():
    total += _resampled(values, statistic, rng, n)
  tail = (1 - level) / 2
  low, high = np.quantile(total / len(drawn), [tail, 1 - tail])
  return {'mean': point, 'low': float(low), 'high': float(high), 'n': count}


def _resampled(
  values: Any, statistic: Any, rng: np.random.Generator, n: int
) -> np.ndarray:
  """The statistic of n resamples of `values`, in chunks of bounded size."""
  rows = max(1, _CHUNK // len(values))
  parts = []
  for start in range(0, n, rows):
    size = (min(rows, n - start), len(values))
    parts.append(statistic(values[rng.integers(0, len(values), size)]))
  return np.concatenate(parts)


def _row_mean(rows: np.ndarray) -> np.ndarray:
  return rows.mean(axis=1)


def _finite(name: str, values: Sequence[float]) -> np.ndarray:
  array = np.asarray(values, np.float64).reshape(-1)
  if not array.size:
    raise ValueError(f'{name} is empty; run at least one trajectory.')
  if not np.isfinite(array).all():
    bad = array[~np.isfinite(array)][0]
    raise ValueError(f'{name} holds {bad}; only finite numbers count.')
  return array


@dataclasses.dataclass(frozen=True)
class Run:
  """One evaluation trajectory.

  score: the private-split score of what it left behind; None where it left
    no valid submission, which counts as the starter's score (no gain).
  rewards, valid: one entry for each step it took; infrastructure failures
    are left out by the caller.
  """

  task: str
  score: float | None
  rewards: tuple[float, ...] = ()
  valid: tuple[bool, ...] = ()


@dataclasses.dataclass(frozen=True)
class Scale:
  """A task's first and best score, on the split of the scores to be scaled."""

  m_init: float
  m_best: float
  higher_is_better: bool

  def score(self, run: Run) -> float:
    """The run's score, the starter's where there is none."""
    if run.score is None or not math.isfinite(run.score):
      return self.m_init
    return run.score


def section(
  runs: Sequence[Run],
  scales: Mapping[str, Scale],
  *,
  k: int,
  seed: int,
  deterministic: bool = False,
) -> dict[str, Interval]:
  """The five intervals of one policy on one split, as in `summary.json`.

  runs: every trajectory of that policy and split, any tasks.
  k: best@k; every task needs at least k runs.
  deterministic: the policy gives the same score each time (the starter
    script), so best@k is its score however few runs there are.
  A task whose starter scores 0 is left out of `relative_gain`. Raises ValueError
  for a task without a scale or with fewer than k runs.
  """
  by_task: dict[str, list[Run]] = {}
  for run in runs:
    by_task.setdefault(run.task, []).append(run)
  unknown = sorted(set(by_task) - set(scales))
  if unknown:
    raise ValueError(
      f'no m_init and m_best for {unknown}; known: {sorted(scales)}.'
    )
  normal, gains = {}, {}
  for task, own in by_task.items():
    scale = scales[task]
    scores = [scale.score(run) for run in own]
    normal[task] = [
      normalised_score(s, scale.m_init, scale.m_best) for s in scores
    ]
    if scale.m_init != 0:  # to 0 nothing is relative
      gains[task] = [
        relative_gain(s, scale.m_init, scale.higher_is_better) for s in scores
      ]
    if not deterministic:
      best_weights(len(own), k)  # raises with a remedy

  def steps(field: str) -> dict[str, list[float]]:
    return {
      task: [float(x) for run in own for x in getattr(run, field)]
      for task, own in by_task.items()
    }

  return {
    'mean_reward': bootstrap_groups(steps('rewards'), _row_mean, seed),
    'avg_at_k': bootstrap_groups(normal, _row_mean, seed),
    'best_at_k': bootstrap_groups(
      normal, lambda rows: best_of_rows(rows, k), seed
    ),
    'relative_gain': bootstrap_groups(gains, _row_mean, seed),
    'valid_action_rate': bootstrap_groups(steps('valid'), _row_mean, seed),
  }
