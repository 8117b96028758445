"""Graders of `METRICS` for the columns of any table, in `strict` alone.

Labels are compared as text, `3.0` as `3`; several targets are averaged. Of log loss
one target is P(1) of answers 0 and 1, several are the probabilities of a row that sum
to 1, of answers that are 1 in one column and 0 in the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from jaxagent.graders import METRICS, compat, metrics
from jaxagent.graders.competitions import Competition

if TYPE_CHECKING:
  import pandas as pd


def competition(
  metric: str, id_column: str, targets: Sequence[str]
) -> Competition:
  """Returns the grader of one of METRICS for these columns.

  Raises: ValueError where there is no id column or no target, or two are one.
  """
  names = (id_column, *targets)
  if not id_column or not targets or len(set(names)) < len(names):
    raise ValueError(
      f'metric {metric!r} needs the names of its columns: id={id_column!r} and '
      f'targets={list(targets)!r}, one or more that are not the id, each once.'
    )
  score, cells = _SCORES[metric]
  if metric == 'log_loss' and len(targets) == 1:
    score, cells = compat.binary_log_loss, 'probability'
  return Competition(id_column, tuple(targets), score, cells, METRICS[metric])


def _label(text: object) -> str:
  """The name of a class: '3.0' and ' 3' are '3', '-0.0' and '-0' are '0'."""
  label = str(text).strip()
  head, dot, tail = label.partition('.')
  if dot and head.lstrip('-').isdigit() and not tail.strip('0'):
    label = head
  return '0' if label == '-0' else label


def _mean(
  measure: Callable[..., float],
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  targets: Sequence[str],
) -> float:
  return float(
    np.mean([measure(answers[name], submission[name]) for name in targets])
  )


def accuracy(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
) -> float:
  """Share of equal labels, mean over the targets."""

  def equal(true: pd.Series, mine: pd.Series) -> float:
    return float(np.mean(true.map(_label) == mine.map(_label)))

  return _mean(equal, submission, answers, targets)


def f1_macro(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
) -> float:
  """F1 of each class that occurs, averaged, mean over the targets."""
  from sklearn.metrics import f1_score

  def f1(true: pd.Series, mine: pd.Series) -> float:
    both = true.map(_label), mine.map(_label)
    return float(f1_score(*both, average='macro', zero_division=0))

  return _mean(f1, submission, answers, targets)


def roc_auc(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
) -> float:
  """Area under the ROC curve, mean over the targets."""
  return _mean(metrics.roc_auc, submission, answers, targets)


def log_loss(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
) -> float:
  """Log loss of columns of probabilities."""
  columns = list(targets)
  return metrics.log_loss(
    answers[columns].to_numpy(), submission[columns].to_numpy()
  )


def rmse(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
) -> float:
  """Root mean squared error, mean over the targets."""
  return _mean(metrics.rmse, submission, answers, targets)


def mae(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
) -> float:
  """Mean absolute error, mean over the targets."""
  return _mean(metrics.mae, submission, answers, targets)


# Metric -> score and cells.
_SCORES: dict[str, tuple[Callable[..., float], str]] = {
  'accuracy': (accuracy, 'text'),
  'f1_macro': (f1_macro, 'text'),
  'roc_auc': (roc_auc, 'probability'),
  'log_loss': (log_loss, 'distribution'),
  'rmse': (rmse, 'number'),
  'mae': (mae, 'number'),
}
