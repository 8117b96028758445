"""Metric of `unicode-category`: F1 averaged over the classes with equal weight."""

from __future__ import annotations

import pathlib

import pandas as pd
from sklearn.metrics import f1_score


def score(submission: pd.DataFrame, answers: pd.DataFrame) -> float:
  """Metric of rows that are already aligned by id and checked."""
  return float(
    f1_score(
      answers['category'].astype(str),
      submission['category'].astype(str),
      average='macro',
      zero_division=0,
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
