"""Prepares `digits`: handwritten digits, 8x8 pixels, ten classes.

Usage: python prepare.py --public DIR --private DIR
Source: scikit-learn load_digits (UCI test set of NIST digits). Deterministic: legacy RandomState streams are frozen by NumPy.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits

from jaxagent.tasks import kit


def build():
  data = load_digits()
  columns = [f'p{i}' for i in range(64)]
  x = pd.DataFrame(data.data.astype(int), columns=columns)
  is_train = np.random.RandomState(7).permutation(len(x)) < 700
  return kit.split_at_random(
    x, pd.Series(data.target), is_train, 'label', {'label': 0}
  )


if __name__ == '__main__':
  kit.prepare(__doc__, build)
