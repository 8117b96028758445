"""Statistics of an evaluation: what is reported, and how sure it is.

Scores of different tasks (accuracy, RMSE, ...) cannot be averaged as they
are. Two scales are used, both 0 for the starter script and larger for better:

- normalised score, (m - m_init) / (m_best - m_init): 1 is the best known
  solution. `avg_at_k` and `best_at_k` in `summary.json` are means over tasks
  of this.
- relative gain, beta (m - m_init) / |m_init|, paper 000 section 5.1.

Intervals are those of `intervals`. No jax here.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from jaxagent.analysis import intervals, needed
from jaxagent.analysis.intervals import Interval, best_weights, finite


def avg_at_k(scores: Sequence[float]) -> float:
  """Mean score of the K trajectories given (paper 000, 5.1)."""
  return float(np.mean(finite('scores', scores)))


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
  values = finite('scores', scores)
  weights = best_weights(len(values), k)
  sign = 1.0 if higher_is_better else -1.0
  return float(sign * (np.sort(sign * values) @ weights))


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
  deterministic: bool = False,
) -> dict[str, Interval]:
  """The five intervals of one policy on one split, as in `summary.json`.

  runs: every trajectory of that policy and split, any tasks.
  k: best@k; every task needs at least k runs.
  deterministic: the policy gives the same score each time (the starter
    script), so best@k is its score however few runs there are.
  A task whose starter scores 0 is left out of `relative_gain`. An interval of too few
  runs has `needs`, those of a task that it takes (`needed.needs`). Raises ValueError
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

  def steps(field: str) -> dict[str, list[Sequence[float]]]:
    return {
      task: [tuple(map(float, getattr(run, field))) for run in own]
      for task, own in by_task.items()
    }

  rewards, valid = steps('rewards'), steps('valid')
  found = {
    'mean_reward': intervals.interval(rewards, intervals.of_steps),
    'avg_at_k': intervals.interval(normal, intervals.of_means),
    'best_at_k': intervals.interval(normal, intervals.of_best(k)),
    'relative_gain': intervals.interval(gains, intervals.of_means),
    'valid_action_rate': intervals.interval(
      valid, intervals.of_steps, within=(0.0, 1.0)
    ),
  }
  if deterministic:
    return found
  for name, groups in (('mean_reward', rewards), ('valid_action_rate', valid)):
    counts = [sum(bool(run) for run in own) for own in groups.values()]
    found[name] |= needed.needs(counts, of_steps=True)
  for name, scores_of, of in (
    ('avg_at_k', normal, 1),
    ('best_at_k', normal, k),
    ('relative_gain', gains, 1),
  ):
    found[name] |= needed.needs([*map(len, scores_of.values())], of)
  return found
