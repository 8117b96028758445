"""Metric of `breast-cancer`: mean negative log-likelihood of the true class."""

from __future__ import annotations

import pathlib

import numpy as np
import pandas as pd


def score(submission: pd.DataFrame, answers: pd.DataFrame) -> float:
  """Metric of rows that are already aligned by id and checked."""
  columns = [c for c in submission.columns if c.startswith('p_')]
  prob = submission[columns].to_numpy(float)
  prob = prob / np.maximum(prob.sum(axis=1, keepdims=True), 1e-15)
  prob = np.clip(prob, 1e-6, 1.0)
  labels = 'p_' + answers['benign'].astype(str)
  index = [columns.index(label) for label in labels]
  return float(-np.mean(np.log(prob[np.arange(len(prob)), index])))


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
