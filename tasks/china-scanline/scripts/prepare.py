"""Prepares `china-scanline`: scan lines of a photograph as series, the next value.

Usage: python prepare.py --public DIR --private DIR
Source: scikit-learn load_sample_image china.jpg. Deterministic: legacy RandomState streams are frozen by NumPy.
"""

from __future__ import annotations

import numpy as np

from jaxagent.tasks import kit, pictures


def build():
  lines = np.round(pictures.luminance('china.jpg'), 1)
  x, y, is_train = pictures.windows(
    lines, lags=24, ahead=2, counts=(1000, 1000), seed=13
  )
  return kit.split_at_random(
    x, y, is_train, 'next', {'next': 128.0}
  )


if __name__ == '__main__':
  kit.prepare(__doc__, build)
