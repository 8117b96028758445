"""Prepares `wine`: three grape varieties from thirteen chemical measurements.

Usage: python prepare.py --public DIR --private DIR
Source: scikit-learn load_wine (UCI). Deterministic: legacy RandomState streams are frozen by NumPy.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_wine

from jaxagent.tasks import kit


def build():
  data = load_wine(as_frame=True)
  x = data.data.rename(columns={'od280/od315_of_diluted_wines': 'od280_od315'})
  is_train = np.random.RandomState(3).permutation(len(x)) < 70
  return kit.split_at_random(
    x, data.target, is_train, 'variety',
    {'p_0': 0.333333, 'p_1': 0.333333, 'p_2': 0.333333},
  )


if __name__ == '__main__':
  kit.prepare(__doc__, build)
