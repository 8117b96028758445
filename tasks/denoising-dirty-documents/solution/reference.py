"""Stained pages: 5 x 5 pixels over the paper around them, and trees."""

import pathlib

import numpy as np
import pandas as pd
from PIL import Image
from scipy.ndimage import gaussian_filter, grey_closing
from sklearn.ensemble import ExtraTreesRegressor


def grey(path):
  return np.asarray(Image.open(path).convert('L')) / 255.0


def features(image):
  """A row of values for each pixel."""
  paper = gaussian_filter(grey_closing(image, 9), 2)
  flat = np.pad(image / (paper + 0.05), 2, mode='edge')
  height, width = image.shape
  near = [
    flat[r : r + height, c : c + width] for r in range(5) for c in range(5)
  ]
  wide = [gaussian_filter(image, s) for s in (2, 6)]
  values = np.stack([*near, *wide, image, paper], axis=-1)
  return values.reshape(image.size, -1).round(4)


rng = np.random.RandomState(0)
x, y = [], []
for path in sorted(pathlib.Path('data/train').glob('*.png')):
  values, clean = features(grey(path)), grey(f'data/train_cleaned/{path.name}')
  some = rng.choice(len(values), min(len(values), 1500), replace=False)
  x.append(values[some])
  y.append(clean.ravel()[some])
model = ExtraTreesRegressor(
  20, min_samples_leaf=3, max_features=0.4, random_state=0
)
model.fit(np.concatenate(x), np.concatenate(y))

rows = []
for path in sorted(pathlib.Path('data/test').glob('*.png')):
  image = grey(path)
  pred = model.predict(features(image)).clip(0, 1).round(5)
  row, column = np.divmod(np.arange(image.size), image.shape[1])
  ids = [f'{path.stem}_{r + 1}_{c + 1}' for r, c in zip(row, column)]
  rows.append(pd.DataFrame({'id': ids, 'value': pred}))
pd.concat(rows).to_csv('submission.csv', index=False)
