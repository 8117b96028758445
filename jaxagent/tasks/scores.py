"""What the bundled tasks' `scripts/eval.py` share: metrics and the entry point.

A metric here is a function of two tables whose rows are aligned by id and
checked already.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import numpy as np
import pandas as pd

Score = Callable[[pd.DataFrame, pd.DataFrame], float]


def log_loss(target: str) -> Score:
  """Makes the mean negative log-likelihood of the true class.

  The submission has a column `p_<class>` for each; rows are brought to sum 1 and
  cut at 1e-6.
  """

  def score(submission: pd.DataFrame, answers: pd.DataFrame) -> float:
    columns = [c for c in submission.columns if c.startswith('p_')]
    prob = submission[columns].to_numpy(float)
    prob = prob / np.maximum(prob.sum(axis=1, keepdims=True), 1e-15)
    prob = np.clip(prob, 1e-6, 1.0)
    labels = 'p_' + answers[target].astype(str)
    index = [columns.index(label) for label in labels]
    return float(-np.mean(np.log(prob[np.arange(len(prob)), index])))

  return score


def rmse(target: str) -> Score:
  """Makes the root of the mean squared error."""

  def score(submission: pd.DataFrame, answers: pd.DataFrame) -> float:
    error = submission[target].to_numpy(float) - answers[target].to_numpy(float)
    return float(np.sqrt(np.mean(error**2)))

  return score


def mae(target: str) -> Score:
  """Makes the mean absolute error."""

  def score(submission: pd.DataFrame, answers: pd.DataFrame) -> float:
    error = submission[target].to_numpy(float) - answers[target].to_numpy(float)
    return float(np.mean(np.abs(error)))

  return score


def accuracy(target: str) -> Score:
  """Makes the share of rows whose label is right, labels compared as text."""

  def score(submission: pd.DataFrame, answers: pd.DataFrame) -> float:
    right = submission[target].astype(str) == answers[target].astype(str)
    return float(np.mean(right))

  return score


def roc_auc(target: str) -> Score:
  """Makes the area under the ROC curve of a label that is 0 or 1."""
  from sklearn.metrics import roc_auc_score

  def score(submission: pd.DataFrame, answers: pd.DataFrame) -> float:
    truth, values = answers[target].astype(int), submission[target]
    return float(roc_auc_score(truth, values.astype(float)))

  return score


def f1_macro(target: str) -> Score:
  """Makes the F1 score averaged over the classes with equal weight."""
  from sklearn.metrics import f1_score

  def score(submission: pd.DataFrame, answers: pd.DataFrame) -> float:
    return float(
      f1_score(
        answers[target].astype(str),
        submission[target].astype(str),
        average='macro',
        zero_division=0,
      )
    )

  return score


def entry_point(score: Score) -> Callable[..., float]:
  """Makes `get_score(submission_folder, answers, split)`, MLAgentBench's entry."""

  def get_score(
    submission_folder: str | pathlib.Path,
    answers: str | pathlib.Path = 'answers.csv',
    split: str = 'valid',
  ) -> float:
    """Scores `submission.csv` of a folder.

    Args:
      submission_folder: where `submission.csv` lies.
      answers: the private `answers.csv` that prepare.py wrote.
      split: 'valid' or 'private'.
    """
    folder = pathlib.Path(submission_folder)
    got = pd.read_csv(folder / 'submission.csv').set_index('id')
    want = pd.read_csv(answers).set_index('id')
    want = want[want['split'] == split]
    return score(got.loc[want.index], want)

  return get_score
