"""Prepares `flower-columns`: columns of a photograph as series, four steps ahead.

Usage: python prepare.py --public DIR --private DIR
Source: scikit-learn load_sample_image flower.jpg. Deterministic: legacy RandomState streams are frozen by NumPy.
"""

from __future__ import annotations

import numpy as np

from jaxagent.tasks import kit, pictures


def build():
  lines = np.round(pictures.luminance('flower.jpg').T, 1)
  x, y, is_train = pictures.windows(
    lines, lags=16, ahead=4, counts=(900, 1000), seed=31
  )
  return kit.split_at_random(
    x, y, is_train, 'ahead', {'ahead': 128.0}
  )


if __name__ == '__main__':
  kit.prepare(__doc__, build)
