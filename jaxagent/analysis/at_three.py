"""Avg@3 and Best@3 of a task's runs (paper 001, section 4.1).

The paper has three runs: Avg@3 is the mean of the valid ones, Best@3 the largest, and
both are 0 where no run is valid. From n runs both are here the mean over all triples
of them, which for n = 3 is the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

K = 3


def avg_at_three(scores: Sequence[float | None]) -> float:
  """Returns Avg@3: mean of the valid x (1 - C(n - v, 3) / C(n, 3)), v valid of n.

  scores: normalised, None for a run without a valid submission.

  Raises ValueError for fewer than three runs.
  """
  return float(avg_rows(_row(scores))[0])


def best_at_three(scores: Sequence[float | None]) -> float:
  """Returns Best@3: mean over all triples of the best valid score, 0 without one.

  scores: normalised, None for a run without a valid submission.

  Raises ValueError for fewer than three runs.
  """
  return float(best_rows(_row(scores))[0])


def avg_rows(rows: np.ndarray) -> np.ndarray:
  """Avg@3 of each row, [R, n] -> [R]; NaN is a run without a valid submission.

  Raises ValueError for fewer than three columns.
  """
  n = _columns(rows)
  valid = np.isfinite(rows)
  count = valid.sum(axis=1)
  total = np.where(valid, rows, 0.0).sum(axis=1)
  mean = total / np.maximum(count, 1)
  share = np.array(
    [math.comb(n - v, K) / math.comb(n, K) for v in range(n + 1)]
  )
  return mean * (1 - share[count])


def best_rows(rows: np.ndarray) -> np.ndarray:
  """Best@3 of each row, [R, n] -> [R]; NaN is a run without a valid submission.

  Of the valid scores in rising order the i-th, behind n - v invalid ones, is the
  best of C(i - 1, 2) triples.

  Raises ValueError for fewer than three columns.
  """
  n = _columns(rows)
  weights = np.array([math.comb(i, K - 1) for i in range(n)]) / math.comb(n, K)
  valid = np.isfinite(rows)
  ranked = np.sort(np.where(valid, rows, -np.inf), axis=1)
  return np.where(np.isfinite(ranked), ranked, 0.0) @ weights


def over_tasks(figures: Sequence[float]) -> float:
  """Returns the mean over tasks, each of the same weight.

  Raises ValueError where there is no task.
  """
  if not figures:
    raise ValueError('mean over no tasks; evaluate one at least.')
  return math.fsum(figures) / len(figures)


def _row(scores: Sequence[float | None]) -> np.ndarray:
  return np.array(
    [[math.nan if score is None else score for score in scores]], np.float64
  )


def _columns(rows: np.ndarray) -> int:
  n = int(rows.shape[1])
  if n < K:
    raise ValueError(
      f'Avg@3 and Best@3 need 3 runs of a task; there are {n}. Raise eval.trajectories_per_task.'
    )
  return n
