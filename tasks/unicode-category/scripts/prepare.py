"""Prepares `unicode-category`: the general category of a character from its name.

Usage: python prepare.py --public DIR --private DIR
Source: the frozen Unicode 3.2 database of Python, unicodedata.ucd_3_2_0. Deterministic: legacy RandomState streams are frozen by NumPy.
"""

from __future__ import annotations

from unicodedata import ucd_3_2_0

import numpy as np
import pandas as pd

from jaxagent.tasks import kit

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
  return kit.split_at_random(
    frame[['text']], frame['category'], is_train, 'category', {'category': 'So'}
  )


if __name__ == '__main__':
  kit.prepare(__doc__, build)
