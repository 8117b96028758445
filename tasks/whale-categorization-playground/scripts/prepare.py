"""Prepares `whale-categorization-playground`: which whale has this fluke?

A test whale without a training picture is `new_whale`, a name that training
pictures have, too; many whales have one picture. The stand-in's flukes are drawn:
an edge with notches and a pattern of white patches for each whale, seen from
another side and in another light each time.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.ndimage import map_coordinates

from jaxagent.tasks import kit, pictures

SOURCE = kit.Source(
  id='whale-categorization-playground',
  url='https://www.kaggle.com/c/whale-categorization-playground/data',
  rules='of the competition, to be accepted on its page (Kaggle)',
  files=('train.csv', 'train.zip'),
)
NEW = 'new_whale'
SAMPLE = f'{NEW} w_1287fbc w_98baff9 w_7554f44 w_1eafe46'
HEIGHT, WIDTH = 40, 80


def fluke(rng):
  """(pattern, lower edge, upper edge) of a whale."""
  pattern = pictures.ground(rng, WIDTH, 1, 4)[:HEIGHT]
  steps = np.abs(np.linspace(-1, 1, WIDTH))
  notches = np.convolve(rng.normal(0, 2.0, WIDTH), np.ones(5) / 5, mode='same')
  upper = 6 + 10 * steps**2 + notches
  return (pattern > 0.5) * 1.0, 36 - 12 * steps + 6 * (steps < 0.06), upper


def picture(rng, whale):
  """One picture of a whale, uint8 [40, 80]."""
  pattern, lower, upper = whale
  rows, columns = np.mgrid[:HEIGHT, :WIDTH].astype(float)
  turn, zoom = rng.normal(0, 0.05), rng.uniform(0.9, 1.12)
  y = (rows - 20 + turn * (columns - 40)) * zoom + 20 + rng.normal(0, 1)
  x = (columns - 40) * zoom * rng.uniform(0.93, 1.07) + 40 + rng.normal(0, 1.5)
  place = np.round(x).astype(int).clip(0, WIDTH - 1)
  body = (y > upper[place]) & (y < lower[place]) & (x > 1) & (x < WIDTH - 2)
  white = map_coordinates(pattern, [y, x], order=1, mode='nearest')
  skin = rng.uniform(30, 70) + rng.uniform(50, 110) * white
  sea = rng.uniform(110, 190) + pictures.ground(rng, WIDTH, 14, 2)[:HEIGHT]
  image = np.where(body, skin, sea) + rng.normal(0, 9, (HEIGHT, WIDTH))
  return pictures.clipped(image)


def standin():
  rng = np.random.RandomState(125)
  names = [f'w_{i}' for i in kit.opaque_ids(rng, 240, 7)]
  # Pictures of a whale: few have many.
  counts = 1 + np.floor(rng.exponential(4.0, len(names))).astype(int)
  rows, images = [], []
  for name, count in zip(names, counts):
    whale = fluke(rng)
    for _ in range(count):
      strange = count == 1 and rng.rand() < 0.4
      rows.append(NEW if strange else name)
      images.append(pictures.encoded(picture(rng, whale), 'jpeg'))
  files = [f'{i}.jpg' for i in kit.opaque_ids(rng, len(rows), 8)]
  order = rng.permutation(len(rows))
  table = pd.DataFrame({'Image': files, 'Id': rows}).iloc[order]
  return divided(table.reset_index(drop=True), dict(zip(files, images)), 0.4)


def divided(table, images, share=0.1):
  """Holds out a picture of each whale that has two, and a share of the others."""
  part = pd.Series('', index=table.index)
  rng = np.random.default_rng(0)
  for name in table['Id'].unique():
    own = table[table['Id'] == name]
    if len(own) > 1:
      two = own.sample(2, random_state=0).index
      part[two[0]], part[two[1]] = 'train', 'test'
    else:
      part[own.index[0]] = rng.choice(
        ['train', 'test'], replace=False, p=[1 - share, share]
      )
  for kind, rest in zip(
    ('train', 'test'), kit.hold_out(table.reset_index()[part == ''], share)
  ):
    part[rest['index']] = kind
  train, test = (table[part == p].copy() for p in ('train', 'test'))
  test.loc[~test['Id'].isin(set(train['Id'])), 'Id'] = NEW
  files = {
    f'{p}/{name}': images[name] for p, name in zip(part, table['Image'])
  }
  return tables(train, test, files)


def tables(train, test, files):
  return kit.Parts(
    {
      'train.csv': train,
      'sample_submission.csv': test[['Image']].assign(Id=SAMPLE),
      **files,
    },
    test[['Image', 'Id']],
    groups=list(test['Image']),
    classes=list(test['Id'] == NEW),
  )


def mlebench(public, private):
  train, test = (
    kit.texts(p) for p in (public / 'train.csv', private / 'test.csv')
  )
  return tables(train, test, kit.copied(public, ['train', 'test']))


def raw(folder):
  table = kit.texts(kit.original(folder, 'train.csv'))
  home = kit.unpacked(folder, 'train')
  return divided(table, {name: home / name for name in table['Image']})


if __name__ == '__main__':
  kit.prepare_from(__doc__, SOURCE, standin, mlebench, raw)
