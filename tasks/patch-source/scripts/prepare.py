"""Prepares `patch-source`: which of two photographs a small patch comes from.

Usage: python prepare.py --public DIR --private DIR
Source: scikit-learn load_sample_image china.jpg and flower.jpg. Deterministic: legacy RandomState streams are frozen by NumPy.
"""

from __future__ import annotations

import argparse
import pathlib

import numpy as np
import pandas as pd
from sklearn.datasets import load_sample_image


def split_frames(x, y, is_train, seed=0, target='china'):
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
  sample = pd.DataFrame({'id': test['id'], target: 0.5})
  return frame, test, answers, sample


def luminance(name):
  """Grey values in [0, 255], float64 [height, width]."""
  return load_sample_image(name).astype(float).mean(axis=2)


def patches(image, low, high, count, rng):
  """Patches of 8x8, each brought to mean 128 and a common contrast."""
  out = []
  while len(out) < count:
    r, c = rng.randint(image.shape[0] - 8), rng.randint(low, high - 8)
    patch = image[r : r + 8, c : c + 8]
    if patch.std() < 2.0:
      continue  # flat patches say nothing
    patch = 128.0 + 40.0 * (patch - patch.mean()) / patch.std()
    patch = patch + rng.normal(0.0, 8.0, patch.shape)
    out.append(np.clip(np.round(patch), 0, 255).astype(int).ravel())
  return out


def build():
  rng = np.random.RandomState(29)
  rows, labels, is_train = [], [], []
  for label, name in enumerate(('flower.jpg', 'china.jpg')):
    image = luminance(name)
    # Hidden patches share no pixel with train: another part of the picture.
    for low, high, count in ((0, 380, 500), (390, 640, 450)):
      got = patches(image, low, high, count, rng)
      rows.extend(got)
      labels.extend([label] * len(got))
      is_train.extend([low == 0] * len(got))
  x = pd.DataFrame(np.array(rows), columns=[f'p{i}' for i in range(64)])
  return split_frames(x, pd.Series(labels), np.array(is_train))


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
