"""Prepares `unicode-script`: the script of a character from the rest of its name.

Usage: python prepare.py --public DIR --private DIR
Source: the frozen Unicode 3.2 database of Python, unicodedata.ucd_3_2_0. Deterministic: legacy RandomState streams are frozen by NumPy.
"""

from __future__ import annotations

import argparse
import pathlib
from unicodedata import ucd_3_2_0

import numpy as np
import pandas as pd


def split_frames(x, y, is_train, seed=0, target='script'):
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
  sample = pd.DataFrame({'id': test['id'], target: 'latin'})
  return frame, test, answers, sample


SCRIPTS = (
  'ARABIC', 'ARMENIAN', 'CHEROKEE', 'CYRILLIC', 'DEVANAGARI', 'ETHIOPIC',
  'GEORGIAN', 'GREEK', 'HEBREW', 'HIRAGANA', 'KHMER', 'LATIN', 'MONGOLIAN',
  'RUNIC', 'THAI', 'TIBETAN',
)  # fmt: skip
MAX_PER_SCRIPT = 220


def build():
  rng = np.random.RandomState(17)
  rows = {}
  for code in range(0x10000):
    script, _, rest = ucd_3_2_0.name(chr(code), '').partition(' ')
    if script in SCRIPTS and rest:
      rows.setdefault(rest.lower(), set()).add(script.lower())
  # A name that several scripts share has no right answer: left out.
  pairs = [(text, min(s)) for text, s in sorted(rows.items()) if len(s) == 1]
  frame = pd.DataFrame(pairs, columns=['text', 'script'])
  frame = frame.iloc[rng.permutation(len(frame))]
  frame = frame.groupby('script').head(MAX_PER_SCRIPT).reset_index(drop=True)
  is_train = rng.permutation(len(frame)) < 0.5 * len(frame)
  return split_frames(frame[['text']], frame['script'], is_train)


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
