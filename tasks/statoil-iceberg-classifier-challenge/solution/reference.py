"""Icebergs: size, brightness and roughness of what stands out of the sea."""

import json
import pathlib

import numpy as np
import pandas as pd
from scipy.ndimage import gaussian_filter, label
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

sample = pd.read_csv('data/sample_submission.csv')


def records(name):
  return json.loads(pathlib.Path(f'data/{name}.json').read_text())


def measures(row):
  """What the largest bright body of the first band is like in both bands."""
  one, two = (np.reshape(row[f'band_{k}'], (75, 75)) for k in (1, 2))
  one, two = one - np.median(one), two - np.median(two)
  smooth = gaussian_filter(one, 1.5)
  parts, _ = label(smooth.round(6) > 3)
  sizes = np.bincount(parts.ravel())
  sizes[0] = 0
  body = parts == sizes.argmax() if sizes.max() else smooth == smooth.max()
  rows, columns = np.nonzero(body)
  spread = np.cov(rows, columns) if len(rows) > 2 else np.eye(2)
  small, large = np.linalg.eigvalsh(spread).clip(0.05)
  return [
    np.log(len(rows)),
    np.log(large / small),
    np.log(small),
    *(f(band[body]) for band in (one, two) for f in (np.mean, np.max, np.std)),
    (smooth - gaussian_filter(one, 0.6))[body].std(),
  ]


def features(rows):
  return np.array([measures(row) for row in rows]).round(6)


train = records('train')
test = {row['id']: row for row in records('test')}
model = make_pipeline(StandardScaler(), LogisticRegression(C=0.5))
model.fit(features(train), [row['is_iceberg'] for row in train])
pred = model.predict_proba(features([test[n] for n in sample['id']]))[:, 1]

pd.DataFrame({'id': sample['id'], 'is_iceberg': pred.clip(0.01, 0.99).round(6)}).to_csv(
  'submission.csv', index=False
)
