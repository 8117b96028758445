"""Prepares `wine`: three grape varieties from thirteen chemical measurements.

Usage: python prepare.py --public DIR --private DIR
Source: scikit-learn load_wine (UCI). Deterministic: legacy RandomState streams are frozen by NumPy.
"""

from __future__ import annotations

import argparse
import pathlib

import numpy as np
import pandas as pd
from sklearn.datasets import load_wine


def split_frames(x, y, is_train, seed=0, target='variety'):
  """Frames of train and hidden rows; hidden ids are shuffled, half valid."""
  rng = np.random.RandomState(seed)
  train, hidden = np.flatnonzero(is_train), np.flatnonzero(~is_train)
  train, hidden = rng.permutation(train), rng.permutation(hidden)
  ids = rng.permutation(len(train) + len(hidden))
  frame = x.iloc[train].reset_index(drop=True)
  frame.insert(0, 'id', ids[: len(train)])
  frame[target] = y.iloc[train].to_numpy()
  test = x.iloc[hidden].reset_index(drop=True)
  test.insert(0, 'id', ids[len(train) :])
  split = np.where(np.arange(len(hidden)) % 2 == 0, 'valid', 'private')
  answers = pd.DataFrame(
    {'id': test['id'], target: y.iloc[hidden].to_numpy(), 'split': split}
  )
  order = rng.permutation(len(test))
  test = test.iloc[order].reset_index(drop=True)
  answers = answers.iloc[order].reset_index(drop=True)
  sample = pd.DataFrame(
    {'id': test['id'], 'p_0': 0.333333, 'p_1': 0.333333, 'p_2': 0.333333}
  )
  return frame, test, answers, sample


def build():
  data = load_wine(as_frame=True)
  x = data.data.rename(columns={'od280/od315_of_diluted_wines': 'od280_od315'})
  is_train = np.random.RandomState(3).permutation(len(x)) < 70
  return split_frames(x, data.target, is_train)


def write(public: pathlib.Path, private: pathlib.Path, frames) -> None:
  """Writes train, test, sample and answers; ids say nothing about the row."""
  train, test, answers, sample = frames
  train.to_csv(public / 'train.csv', index=False)
  test.to_csv(public / 'test.csv', index=False)
  sample.to_csv(public / 'sample_submission.csv', index=False)
  answers.to_csv(private / 'answers.csv', index=False)


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--public', type=pathlib.Path, required=True)
  parser.add_argument('--private', type=pathlib.Path, required=True)
  args = parser.parse_args()
  args.public.mkdir(parents=True, exist_ok=True)
  args.private.mkdir(parents=True, exist_ok=True)
  write(args.public, args.private, build())


if __name__ == '__main__':
  main()
