"""What validation chooses from K programs, and what that is worth on private rows.

Who writes K programs keeps the one whose validation score is best. Its private score is
what a user gets: the best validation score of K rises with K even where the two scores
have nothing in common. No jax here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxagent.analysis import intervals, needed
from jaxagent.analysis.intervals import Figure

KS = (1, 2, 4, 8, 16, 32, 64, 128)


def curve(
  validation: Sequence[float | None],
  private: Sequence[float | None],
  higher_is_better: bool = True,
  ks: Sequence[int] = KS,
) -> dict[int, dict[str, Any]]:
  """Returns K -> what is chosen from K of the n programs, K at most n.

  validation, private: [n]; None for a program without a score, which is chosen never.
  Of equal validation scores each is as likely to be chosen.

  validation, private: means over all K-subsets that hold a valid program, with their
    intervals (`intervals.interval`), and `needs` where there are too few programs
    (`needed.needs`); without one, None and 0 values.
  none: the share of K-subsets without a valid program.
  """
  rows = np.array(
    [
      (math.nan, math.nan) if v is None or p is None else (v, p)
      for v, p in zip(validation, private, strict=True)
    ],
    np.float64,
  ).reshape(-1, 2)
  n = len(rows)
  found: dict[int, dict[str, Any]] = {}
  for k in (k for k in ks if k <= n):
    weights = _chances(rows, intervals.best_weights(n, k), higher_is_better)
    failed = np.isnan(rows[:, 0])
    found[k] = {'none': float(weights[failed].sum())}
    for column, name in enumerate(('validation', 'private')):
      figure = of_chosen(k, column, higher_is_better)
      valid = int((~failed).sum())
      found[k][name] = (
        intervals.interval({0: rows}, figure)
        | {'n': valid}
        | needed.needs([valid], k)
      )
  return found


def of_chosen(k: int, column: int, higher_is_better: bool = True) -> Figure:
  """Returns the `Figure` of a column of rows [n, 2], of the row chosen by the first."""

  def figure(rows: np.ndarray) -> tuple[float, np.ndarray]:
    n = len(rows)
    whole = intervals.best_weights(n, min(k, n))
    point = _mean(rows, whole, column, higher_is_better)
    if n == 1 or math.isnan(point):
      return point, np.empty(0)
    less = intervals.best_weights(n - 1, min(k, n - 1))
    left = [
      _mean(np.delete(rows, i, 0), less, column, higher_is_better)
      for i in range(n)
    ]
    # Without the only valid one there is no figure; the point stands for it.
    return point, np.nan_to_num(np.array(left), nan=point)

  return figure


def _chances(
  rows: np.ndarray, by_rank: np.ndarray, higher_is_better: bool
) -> np.ndarray:
  """The chance [n] of each row to be chosen; by_rank: the best one's last."""
  scores = rows[:, 0] if higher_is_better else -rows[:, 0]
  scores = np.where(np.isnan(scores), -math.inf, scores)
  order = np.argsort(scores, kind='stable')
  _, tied, counts = np.unique(
    scores[order], return_inverse=True, return_counts=True
  )
  chances = np.empty(len(rows))
  chances[order] = (np.bincount(tied, by_rank) / counts)[tied]
  return chances


def _mean(
  rows: np.ndarray, by_rank: np.ndarray, column: int, higher_is_better: bool
) -> float:
  """A column's mean over what is chosen, where it has a score; NaN without any."""
  chances = _chances(rows, by_rank, higher_is_better)
  valid = ~np.isnan(rows[:, 0])
  total = chances[valid].sum()
  if not total:
    return math.nan
  return float(rows[valid, column] @ chances[valid] / total)
