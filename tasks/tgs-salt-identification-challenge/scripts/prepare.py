"""Prepares `tgs-salt-identification-challenge`: salt in seismic images.

The stand-in's images have layers, bent and of uneven brightness; salt is a body
without layers. Four images in ten have none, and their mask is an empty cell.
Depths are given for the training images alone, as mle-bench gives them.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.ndimage import gaussian_filter

from jaxagent.tasks import kit, pictures

SOURCE = kit.Source(
  id='tgs-salt-identification-challenge',
  url='https://www.kaggle.com/c/tgs-salt-identification-challenge/data',
  rules='of the competition, to be accepted on its page (Kaggle)',
  files=('competition_data.zip', 'depths.csv'),
)
SIZE = 101


def body(rng):
  """Mask of a salt body that touches an edge, bool [101, 101]."""
  waves = 1 + 0.25 * sum(
    rng.normal() / k * np.cos(k * np.arange(64) / 64 * 2 * np.pi + rng.uniform(0, 6))
    for k in range(1, 5)
  )
  row, column = rng.uniform(10, 115), rng.uniform(-5, 106)
  return pictures.disc(SIZE, row, column, rng.uniform(22, 60) * waves.clip(0.3))


def image(rng, mask):
  """Grey values, uint8 [101, 101]."""
  rows, columns = np.mgrid[:SIZE, :SIZE] / SIZE
  bend = gaussian_filter(rng.normal(0, 1, (SIZE, SIZE)), 18)
  bend = bend / np.abs(bend).max() * rng.uniform(0.05, 0.2)
  layers = np.sin(
    2 * np.pi * rng.uniform(6, 13) * (rows + rng.uniform(-0.6, 0.6) * columns + bend)
  )
  grain = gaussian_filter(rng.normal(0, 1, (SIZE, SIZE)), 0.7) * 2
  coarse = gaussian_filter(rng.normal(0, 1, (SIZE, SIZE)), 2.2) * 7
  shade = gaussian_filter(rng.normal(0, 1, (SIZE, SIZE)), 22)
  shade = shade / np.abs(shade).max() * 28
  salt = gaussian_filter(mask.astype(float), 1.0)
  rock = 26 * layers + 7 * grain
  inside = 6 * layers + 12 * coarse - 8
  values = rng.uniform(90, 150) + shade + rock * (1 - salt) + inside * salt
  return np.clip(np.round(values), 0, 255).astype(np.uint8)


def standin():
  rng = np.random.RandomState(113)
  count, hidden = 560, 260
  ids = kit.opaque_ids(rng, count, 10)
  masks, files = [], {}
  for k, name in enumerate(ids):
    mask = body(rng) if rng.rand() > 0.36 else np.zeros((SIZE, SIZE), dtype=bool)
    masks.append(pictures.run_lengths(mask))
    part = 'test' if k < hidden else 'train'
    grey = image(rng, mask)
    colour = np.repeat(grey[..., None], 3, axis=2)  # as the originals, all alike
    files[f'{part}/images/{name}.png'] = pictures.encoded(colour, 'png')
    if part == 'train':
      files[f'train/masks/{name}.png'] = pictures.encoded(
        np.where(mask, 255, 0).astype(np.uint8), 'png'
      )
  table = pd.DataFrame({'id': ids, 'rle_mask': masks})
  depths = table[['id']].assign(z=rng.randint(51, 959, count))
  return parts(table[hidden:], table[:hidden], depths[hidden:], files)


def parts(train, test, depths, files):
  train, test, depths = (t.sort_values('id') for t in (train, test, depths))
  return kit.Parts(
    {
      'train.csv': train,
      'depths.csv': depths,
      'sample_submission.csv': test[['id']].assign(rle_mask='1 1'),
      **files,
    },
    test[['id', 'rle_mask']],
    groups=list(test['id']),
    classes=[bool(text) for text in test['rle_mask']],
  )


def mlebench(public, private):
  return parts(
    kit.texts(public / 'train.csv'),
    kit.texts(private / 'test.csv'),
    kit.texts(public / 'depths.csv'),
    kit.copied(public, ['train', 'test']),
  )


def raw(folder):
  depths = kit.texts(kit.original(folder, 'depths.csv'))
  home = kit.unpacked(folder, 'competition_data')
  train, test = kit.hold_out(kit.texts(home / 'train.csv'), 0.25)
  files = {}
  for part, ids in (('train', train['id']), ('test', test['id'])):
    for name in ids:
      image = home / 'train/images' / f'{name}.png'
      files[f'{part}/images/{name}.png'] = image
  for name in train['id']:
    mask = home / 'train/masks' / f'{name}.png'
    files[f'train/masks/{name}.png'] = mask
  known = depths[depths['id'].isin(set(train['id']))]
  return parts(train, test, known, files)


if __name__ == '__main__':
  kit.prepare_from(__doc__, SOURCE, standin, mlebench, raw)
