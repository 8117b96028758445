"""Prepares `flower-columns`: columns of a photograph as series, four steps ahead.

Usage: python prepare.py --public DIR --private DIR
Source: scikit-learn load_sample_image flower.jpg. Deterministic: legacy RandomState streams are frozen by NumPy.
"""

from __future__ import annotations

import argparse
import pathlib

import numpy as np
import pandas as pd
from sklearn.datasets import load_sample_image


def split_frames(x, y, is_train, seed=0, target='ahead'):
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
  sample = pd.DataFrame({'id': test['id'], target: 128.0})
  return frame, test, answers, sample


def luminance(name):
  """Grey values in [0, 255], float64 [height, width]."""
  return load_sample_image(name).astype(float).mean(axis=2)


LAGS, AHEAD = 16, 4


def build():
  rng = np.random.RandomState(31)
  lines = np.round(luminance('flower.jpg').T, 1)
  # One window a draw; whole scan lines are either in train or hidden.
  hidden_line = rng.permutation(len(lines)) < len(lines) * 0.4
  rows, values, is_train = [], [], []
  for hidden, count in ((False, 900), (True, 1000)):
    pool = np.flatnonzero(hidden_line == hidden)
    for _ in range(count):
      line = lines[pool[rng.randint(len(pool))]]
      start = rng.randint(len(line) - LAGS - AHEAD)
      rows.append(line[start : start + LAGS])
      values.append(line[start + LAGS + AHEAD - 1])
      is_train.append(not hidden)
  x = pd.DataFrame(np.array(rows), columns=[f't{i}' for i in range(LAGS)])
  keep = ~x.duplicated().to_numpy()
  is_train = np.array(is_train)[keep]
  x, y = x[keep].reset_index(drop=True), pd.Series(np.array(values)[keep])
  return split_frames(x, y, is_train)


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
