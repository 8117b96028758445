"""Metric of `diabetes`: root of the mean squared error."""

from __future__ import annotations

import pathlib

import numpy as np
import pandas as pd


def score(submission: pd.DataFrame, answers: pd.DataFrame) -> float:
  """Metric of rows that are already aligned by id and checked."""
  error = submission['progression'].to_numpy(float) - answers[
    'progression'
  ].to_numpy(float)
  return float(np.sqrt(np.mean(error**2)))


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
