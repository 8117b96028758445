"""Flukes: the nearest training pictures, and new_whale where none is near."""

import numpy as np
import pandas as pd
from PIL import Image
from scipy.ndimage import gaussian_filter

train = pd.read_csv('data/train.csv')
sample = pd.read_csv('data/sample_submission.csv')


def features(folder, names):
  """[N, 800] of shrunk pictures, each of mean 0 and length 1."""
  out = []
  for name in names:
    image = Image.open(f'data/{folder}/{name}').convert('L').resize((80, 40))
    grey = np.asarray(image, dtype=float)
    flat = gaussian_filter(grey, 1.2) - gaussian_filter(grey, 10)
    values = flat[::2, ::2].ravel()
    out.append(values / (np.linalg.norm(values) + 1e-6))
  return np.array(out).round(6)


known = train['Id'].to_numpy()
near = features('test', sample['Image']) @ features('train', train['Image']).T
near = near.round(6)
level = np.quantile(near.max(axis=1), 0.2)
pred = []
for row in near:
  row = np.where(known == 'new_whale', level, row)
  names = dict.fromkeys(known[np.argsort(-row, kind='stable')])
  pred.append(' '.join(list(names)[:5]))

pd.DataFrame({'Image': sample['Image'], 'Id': pred}).to_csv(
  'submission.csv', index=False
)
