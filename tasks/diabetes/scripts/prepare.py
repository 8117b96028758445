"""Prepares `diabetes`: disease progression after one year, 442 patients.

Usage: python prepare.py --public DIR --private DIR
Source: scikit-learn load_diabetes(scaled=False). Deterministic: legacy RandomState streams are frozen by NumPy.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_diabetes

from jaxagent.tasks import kit


def build():
  data = load_diabetes(as_frame=True, scaled=False)
  is_train = np.random.RandomState(5).permutation(len(data.data)) < 242
  return kit.split_at_random(
    data.data.round(4), data.target, is_train, 'progression', {'progression': 150.0}
  )


if __name__ == '__main__':
  kit.prepare(__doc__, build)
