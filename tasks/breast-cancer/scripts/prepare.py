"""Prepares `breast-cancer`: malignant or benign from thirty measurements of cells.

Usage: python prepare.py --public DIR --private DIR
Source: scikit-learn load_breast_cancer (UCI, Wisconsin). Deterministic: legacy RandomState streams are frozen by NumPy.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_breast_cancer

from jaxagent.tasks import kit


def build():
  data = load_breast_cancer(as_frame=True)
  x = data.data.rename(columns=lambda name: name.replace(' ', '_'))
  is_train = np.random.RandomState(23).permutation(len(x)) < 169
  return kit.split_at_random(
    x, data.target, is_train, 'benign', {'p_0': 0.500000, 'p_1': 0.500000}
  )


if __name__ == '__main__':
  kit.prepare(__doc__, build)
