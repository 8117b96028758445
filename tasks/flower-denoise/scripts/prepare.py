"""Prepares `flower-denoise`: a noisy photograph, the clean centre of each patch.

Usage: python prepare.py --public DIR --private DIR
Source: scikit-learn load_sample_image flower.jpg with seeded noise. Deterministic: legacy RandomState streams are frozen by NumPy.
"""

from __future__ import annotations

import argparse
import pathlib

import numpy as np
import pandas as pd
from sklearn.datasets import load_sample_image


def split_frames(x, y, is_train, seed=0, target='clean'):
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


def noisy(image, rng):
  """Gaussian noise of 25 grey levels and 5 % dead or hot pixels."""
  out = image + rng.normal(0.0, 25.0, image.shape)
  hit = rng.rand(*image.shape)
  out[hit < 0.025], out[hit > 0.975] = 0.0, 255.0
  return np.clip(np.round(out), 0, 255).astype(int)


def build():
  rng = np.random.RandomState(11)
  clean = luminance('flower.jpg')
  dirty = noisy(clean, rng)
  # Hidden patches come from the right part: they share no pixel with train.
  rows, values, is_train = [], [], []
  for low, high, count in ((3, 360, 1200), (370, 637, 1000)):
    flat = rng.permutation((high - low) * 420)[:count]
    for r, c in zip(flat // (high - low) + 3, flat % (high - low) + low):
      rows.append(dirty[r - 2 : r + 3, c - 2 : c + 3].ravel())
      values.append(round(clean[r, c], 2))
      is_train.append(low == 3)
  x = pd.DataFrame(np.array(rows), columns=[f'p{i}' for i in range(25)])
  return split_frames(x, pd.Series(values), np.array(is_train))


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
