"""Prepares `statoil-iceberg-classifier-challenge`: ships and icebergs in radar.

The originals are archives of 7-Zip, which the task's data holds unpacked, for a
solution's packages cannot read them: `train.json` and `test.json`, 75 x 75 values
of two bands in dB. `inc_angle` is `na` in some training rows. The stand-in's sea is
speckle; a ship is a narrow body that shines in few points of the first band, an
iceberg wider, smoother, and brighter in the second.
"""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
from scipy.ndimage import gaussian_filter

from jaxagent.tasks import kit, pictures

SOURCE = kit.Source(
  id='statoil-iceberg-classifier-challenge',
  url='https://www.kaggle.com/c/statoil-iceberg-classifier-challenge/data',
  rules='of the competition, to be accepted on its page (Kaggle)',
  files=('train.json.7z (with the package py7zr), or train.json',),
)
SIZE = 75


def bands(rng, iceberg):
  """Two bands in dB, with one decimal: the originals have six."""
  sea = rng.uniform(-27, -18) + rng.normal(0, 1, (2, 1, 1)) * np.array([1, 2])[:, None, None]
  power = 10 ** (sea / 10) * rng.gamma(4, 0.25, (2, SIZE, SIZE))
  if iceberg:
    reach = rng.uniform(2.5, 5.5) * (1 + 0.2 * rng.normal(0, 1, 12))
    body = pictures.disc(SIZE, *rng.uniform(30, 45, 2), np.repeat(reach, 4))
    shine = gaussian_filter(body * 1.0, 1.2)
    gains = rng.uniform(6, 14), rng.uniform(5, 12)
  else:
    rows, columns = np.mgrid[:SIZE, :SIZE] - rng.uniform(30, 45, (2, 1, 1))
    turn = rng.uniform(0, np.pi)
    along = rows * np.cos(turn) + columns * np.sin(turn)
    across = columns * np.cos(turn) - rows * np.sin(turn)
    body = (np.abs(across) < rng.uniform(1, 3)) & (np.abs(along) < rng.uniform(3.5, 8))
    points = body * rng.exponential(1.0, (SIZE, SIZE))
    shine = gaussian_filter(points + 0.3 * body, 1.0)
    gains = rng.uniform(6, 14), rng.uniform(2, 8)
  level = 10 ** ((sea.ravel() + np.array(gains)) / 10)
  power = power + level[:, None, None] * shine * rng.gamma(4, 0.25, (2, SIZE, SIZE))
  return (10 * np.log10(power.clip(1e-4))).round(1)


def standin():
  rng = np.random.RandomState(126)
  labels = rng.permutation(np.arange(270) % 2)
  angles = rng.uniform(32, 46, len(labels)).round(4)
  rows = []
  for name, label, angle in zip(
    kit.opaque_ids(rng, len(labels), 8), labels, angles
  ):
    one, two = (band.ravel().tolist() for band in bands(rng, label))
    unknown = len(rows) >= 130 and rng.rand() < 0.08
    rows.append(
      {
        'id': name,
        'band_1': one,
        'band_2': two,
        'inc_angle': 'na' if unknown else float(angle),
        'is_iceberg': int(label),
      }
    )
  return parts(rows[130:], rows[:130])


def parts(train, test):
  answers = pd.DataFrame([[r['id'], r['is_iceberg']] for r in test])
  answers.columns = ['id', 'is_iceberg']
  public = [{k: v for k, v in r.items() if k != 'is_iceberg'} for r in test]
  return tables(answers, train, public)


def tables(answers, train, test):
  files = {
    f'{name}.json': json.dumps(rows, separators=(',', ':')).encode()
    for name, rows in (('train', train), ('test', test))
  }
  return kit.Parts(
    {'sample_submission.csv': answers[['id']].assign(is_iceberg=0.5), **files},
    answers,
    groups=list(answers['id']),
    classes=list(answers['is_iceberg']),
  )


def records(folder, name):
  """Reads NAME.json of a folder, plain, in a zip or in NAME.json.7z."""
  return json.load(kit.original(kit.seven_zip(folder, f'{name}.json'), f'{name}.json'))


def mlebench(public, private):
  answers = kit.texts(private / 'test.csv')
  return tables(answers, records(public, 'train'), records(public, 'test'))


def raw(folder):
  from sklearn.model_selection import train_test_split

  rows = records(folder, 'train')
  return parts(*train_test_split(rows, test_size=0.2, random_state=0))


if __name__ == '__main__':
  kit.prepare_from(__doc__, SOURCE, standin, mlebench, raw)
