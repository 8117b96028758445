"""Prepares `unicode-script`: the script of a character from the rest of its name.

Usage: python prepare.py --public DIR --private DIR
Source: the frozen Unicode 3.2 database of Python, unicodedata.ucd_3_2_0. Deterministic: legacy RandomState streams are frozen by NumPy.
"""

from __future__ import annotations

from unicodedata import ucd_3_2_0

import numpy as np
import pandas as pd

from jaxagent.tasks import kit

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
  return kit.split_at_random(
    frame[['text']], frame['script'], is_train, 'script', {'script': 'latin'}
  )


if __name__ == '__main__':
  kit.prepare(__doc__, build)
