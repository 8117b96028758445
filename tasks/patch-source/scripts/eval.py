"""Metric of `patch-source`: area under the ROC curve."""

from __future__ import annotations

import pathlib

import pandas as pd
from sklearn.metrics import roc_auc_score


def score(submission: pd.DataFrame, answers: pd.DataFrame) -> float:
  """Metric of rows that are already aligned by id and checked."""
  return float(
    roc_auc_score(
      answers['china'].astype(int), submission['china'].astype(float)
    )
  )


def get_score(
  submission_folder: str | pathlib.Path,
  answers: str | pathlib.Path = 'answers.csv',
  split: str = 'valid',
) -> float:
  """Scores `submission.csv` of a folder (MLAgentBench's entry point).

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
