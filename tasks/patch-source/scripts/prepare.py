"""Prepares `patch-source`: which of two photographs a small patch comes from.

Usage: python prepare.py --public DIR --private DIR
Source: scikit-learn load_sample_image china.jpg and flower.jpg. Deterministic: legacy RandomState streams are frozen by NumPy.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from jaxagent.tasks import kit, pictures


def patches(image, low, high, count, rng):
  """Patches of 8x8, each brought to mean 128 and a common contrast."""
  out = []
  while len(out) < count:
    r, c = rng.randint(image.shape[0] - 8), rng.randint(low, high - 8)
    patch = image[r : r + 8, c : c + 8]
    if patch.std() < 2.0:
      continue  # flat patches say nothing
    patch = 128.0 + 40.0 * (patch - patch.mean()) / patch.std()
    patch = patch + rng.normal(0.0, 8.0, patch.shape)
    out.append(np.clip(np.round(patch), 0, 255).astype(int).ravel())
  return out


def build():
  rng = np.random.RandomState(29)
  rows, labels, is_train = [], [], []
  for label, name in enumerate(('flower.jpg', 'china.jpg')):
    image = pictures.luminance(name)
    # Hidden patches share no pixel with train: another part of the picture.
    for low, high, count in ((0, 380, 500), (390, 640, 450)):
      got = patches(image, low, high, count, rng)
      rows.extend(got)
      labels.extend([label] * len(got))
      is_train.extend([low == 0] * len(got))
  x = pd.DataFrame(np.array(rows), columns=[f'p{i}' for i in range(64)])
  return kit.split_at_random(
    x, pd.Series(labels), np.array(is_train), 'china', {'china': 0.5}
  )


if __name__ == '__main__':
  kit.prepare(__doc__, build)
