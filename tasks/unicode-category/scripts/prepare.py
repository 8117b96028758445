"""Prepares `unicode-category`: the general category of a character from its name.

Usage: python prepare.py --public DIR --private DIR
Source: the frozen Unicode 3.2 database of Python, unicodedata.ucd_3_2_0. Deterministic: legacy RandomState streams are frozen by NumPy.
"""

from __future__ import annotations

import argparse
import pathlib
from unicodedata import ucd_3_2_0

import numpy as np
import pandas as pd


def split_frames(x, y, is_train, seed=0, target='category'):
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
  sample = pd.DataFrame({'id': test['id'], target: 'So'})
  return frame, test, answers, sample


CATEGORIES = ('So', 'Sm', 'Mn', 'Mc', 'Po', 'Sk', 'No', 'Lo', 'Lm', 'Nl')
MAX_PER_CATEGORY = 300
SKIP = ('CJK', 'HANGUL', 'YI ', 'MATHEMATICAL', 'KANGXI', 'IDEOGRAPHIC')


def build():
  rng = np.random.RandomState(19)
  rows = []
  for code in range(0x10000):
    name = ucd_3_2_0.name(chr(code), '')
    category = ucd_3_2_0.category(chr(code))
    if name and category in CATEGORIES and not name.startswith(SKIP):
      rows.append((name.lower(), category))
  frame = pd.DataFrame(rows, columns=['text', 'category'])
  frame = frame.iloc[rng.permutation(len(frame))]
  frame = frame.groupby('category').head(MAX_PER_CATEGORY)
  frame = frame.reset_index(drop=True)
  is_train = rng.permutation(len(frame)) < 0.5 * len(frame)
  return split_frames(frame[['text']], frame['category'], is_train)


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
