"""Prepares `plant-pathology-2020-fgvc7`: diseases of apple leaves.

Four columns, of which one is 1: no disease, rust, scab, or both. The stand-in's
leaves are drawn: rust makes small orange spots, scab larger dark ones; light and
the colour of leaves differ more than spots change the mean colour, and every leaf
has a few grey specks of dirt.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from jaxagent.tasks import kit, pictures

SOURCE = kit.Source(
  id='plant-pathology-2020-fgvc7',
  url='https://www.kaggle.com/c/plant-pathology-2020-fgvc7/data',
  rules='of the competition, to be accepted on its page (Kaggle)',
  files=('train.csv', 'images (a folder)'),
)
COLUMNS = ['healthy', 'multiple_diseases', 'rust', 'scab']
SIZE = 64
SHARES = (0.28, 0.08, 0.33, 0.31)


def picture(rng, rust, scab):
  """One leaf, uint8 [64, 64, 3]."""
  light = rng.uniform(0.7, 1.2)
  image = rng.uniform(50, 140, 3) + pictures.ground(rng, SIZE, 14, 4)[..., None]
  angles = np.arange(64) / 64 * 2 * np.pi
  reach = 24 * (1 + 0.25 * np.cos(2 * (angles + rng.uniform(0, 3))))
  leaf = pictures.disc(SIZE, *rng.uniform(28, 36, 2), reach)
  green = np.array([90.0, 135.0, 60.0]) + rng.normal(0, 14, 3)
  body = green + pictures.ground(rng, SIZE, 7, 2)[..., None]
  spots = [(rng.uniform(0.8, 1.8), np.array([0.0, 0.0, 20.0])) for _ in range(6)]
  if rust:
    orange = np.array([70.0, -15.0, -30.0])
    spots += [(rng.uniform(0.8, 2.0), orange)] * rng.randint(3, 9)
  if scab:
    dark = np.array([-38.0, -42.0, -22.0])
    spots += [(rng.uniform(2.0, 4.0), dark)] * rng.randint(2, 6)
  for radius, colour in spots:
    spot = pictures.disc(SIZE, *rng.uniform(16, 48, 2), radius)
    body = body + spot[..., None] * (colour + rng.normal(0, 8, 3))
  return pictures.clipped(light * np.where(leaf[..., None], body, image))


def standin():
  rng = np.random.RandomState(123)
  count, hidden = 1300, 500
  kinds = np.searchsorted(np.cumsum(SHARES), rng.rand(count) * sum(SHARES))
  images = [
    pictures.encoded(picture(rng, kind in (1, 2), kind in (1, 3)), 'jpeg')
    for kind in kinds
  ]
  table = pd.DataFrame(np.eye(4, dtype=int)[kinds], columns=COLUMNS)
  table.insert(0, 'image_id', np.arange(count))
  return parts(table[hidden:], table[:hidden], images)


def parts(train, test, images):
  """images: by the old id, bytes or file; both tables get ids from 0 on."""
  files, named = {}, []
  for part, table in (('Train', train), ('Test', test)):
    names = [f'{part}_{k}' for k in range(len(table))]
    for name, old in zip(names, table['image_id']):
      files[f'images/{name}.jpg'] = images[old]
    named.append(table.assign(image_id=names))
  return tables(*named, files)


def tables(train, test, files):
  parts = kit.labelled(
    train, test, 'image_id', COLUMNS, dict.fromkeys(COLUMNS, 0.25)
  )
  return kit.Parts(
    {**parts.public, **files},
    parts.answers,
    groups=parts.groups,
    classes=[''.join(map(str, row)) for row in test[COLUMNS].to_numpy()],
  )


def mlebench(public, private):
  return tables(
    kit.texts(public / 'train.csv'),
    kit.texts(private / 'test.csv'),
    kit.copied(public, ['images']),
  )


def raw(folder):
  table = kit.texts(kit.original(folder, 'train.csv'))
  train, test = kit.hold_out(table)
  home = kit.unpacked(folder, 'images')
  return parts(train, test, {i: home / f'{i}.jpg' for i in table['image_id']})


if __name__ == '__main__':
  kit.prepare_from(__doc__, SOURCE, standin, mlebench, raw)
