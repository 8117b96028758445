"""Prepares `flower-denoise`: a noisy photograph, the clean centre of each patch.

Usage: python prepare.py --public DIR --private DIR
Source: scikit-learn load_sample_image flower.jpg with seeded noise. Deterministic: legacy RandomState streams are frozen by NumPy.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from jaxagent.tasks import kit, pictures


def noisy(image, rng):
  """Gaussian noise of 25 grey levels and 5 % dead or hot pixels."""
  out = image + rng.normal(0.0, 25.0, image.shape)
  hit = rng.rand(*image.shape)
  out[hit < 0.025], out[hit > 0.975] = 0.0, 255.0
  return np.clip(np.round(out), 0, 255).astype(int)


def build():
  rng = np.random.RandomState(11)
  clean = pictures.luminance('flower.jpg')
  dirty = noisy(clean, rng)
  # Hidden patches come from the right part: they share no pixel with train.
  rows, values, is_train = [], [], []
  for low, high, count in ((3, 360, 1200), (370, 637, 1000)):
    flat = rng.permutation((high - low) * 420)[:count]
    for r, c in zip(flat // (high - low) + 3, flat % (high - low) + low):
      rows.append(dirty[r - 2 : r + 3, c - 2 : c + 3].ravel())
      values.append(round(clean[r, c], 2))
      is_train.append(low == 3)
  x = pd.DataFrame(np.array(rows), columns=[f'p{i}' for i in range(25)])
  return kit.split_at_random(
    x, pd.Series(values), np.array(is_train), 'clean', {'clean': 128.0}
  )


if __name__ == '__main__':
  kit.prepare(__doc__, build)
