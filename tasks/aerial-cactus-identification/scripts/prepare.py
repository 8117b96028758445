"""Prepares `aerial-cactus-identification`: a cactus in a small aerial picture.

The stand-in's pictures show sand and stones from above. Three in four have a
cactus, a ribbed column with a shadow; bushes of its colours are in all of them. With
`--packages DIR` stones and bushes are pieces of two photographs of textures that come
with scikit-image.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from jaxagent.tasks import kit, photographs, pictures

SOURCE = kit.Source(
  id='aerial-cactus-identification',
  url='https://www.kaggle.com/c/aerial-cactus-identification/data',
  rules='of the competition, to be accepted on its page (Kaggle)',
  files=('train.csv', 'train.zip'),
)
SIZE = 32
GROUND, BUSHES = 'gravel', 'grass'
GREEN = np.array([-14.0, 8.0, -20.0])


def cactus(rng):
  """(column, its ribs) in any direction, [32, 32] each."""
  rows, columns = np.mgrid[:SIZE, :SIZE] - rng.uniform(12, 20, (2, 1, 1))
  turn = rng.uniform(0, np.pi)
  along = rows * np.cos(turn) + columns * np.sin(turn)
  across = columns * np.cos(turn) - rows * np.sin(turn)
  body = (np.abs(across) < rng.uniform(2, 4)) & (np.abs(along) < rng.uniform(8, 13))
  ribs = np.sin(across * rng.uniform(2.1, 2.6) + rng.uniform(0, 6))
  return body, ribs


def crop(rng, texture):
  """A piece of a photographed texture in any of its directions, around 0, [32, 32]."""
  row, column = (rng.randint(length - SIZE) for length in texture.shape)
  piece = texture[row : row + SIZE, column : column + SIZE].astype(float) - 128
  return np.rot90(piece, rng.randint(4))


def picture(rng, has_cactus, textures=None):
  """One picture, uint8 [32, 32, 3].

  textures: grey values of ground and bushes, uint8; None for drawn ones.
  """
  if textures:
    shade = 0.3 * crop(rng, textures[0])
  else:
    shade = pictures.ground(rng, SIZE, 13, 3) + pictures.ground(rng, SIZE, 9, 0.8)
  image = rng.uniform(105, 150) + shade[..., None] + np.array([12.0, 0.0, -14.0])
  for _ in range(rng.randint(1, 6)):
    waves = 1 + 0.3 * rng.normal(0, 1, 12)
    bush = pictures.disc(SIZE, *rng.uniform(0, 32, 2), rng.uniform(2, 5) * waves)
    paint = GREEN + rng.normal(0, 5, 3)
    if textures:
      paint = paint + 0.2 * crop(rng, textures[1])[..., None]
    image = image + bush[..., None] * paint
  if has_cactus:
    body, ribs = cactus(rng)
    strength = rng.uniform(8, 26)
    paint = 0.7 * GREEN + rng.normal(0, 6, 3) + strength * ribs[..., None]
    image = image + body[..., None] * paint
  return pictures.clipped(image)


def standin(files=None):
  rng = np.random.RandomState(121)
  count, hidden = 2200, 800
  labels = rng.permutation(np.arange(count) % 4 > 0).astype(int)
  names = [f'{i}.jpg' for i in kit.opaque_ids(rng, count, 32)]
  table = pd.DataFrame({'id': names, 'has_cactus': labels})
  textures = [None] * count
  if files:  # hidden pictures are of the lower part of the photographs
    found = [photographs.decoded(files, name, 'L') for name in (GROUND, BUSHES)]
    below, above = ([f[rows] for f in found] for rows in (np.s_[320:], np.s_[:320]))
    textures = [below] * hidden + [above] * (count - hidden)
  images = {
    name: pictures.encoded(picture(rng, label, own), 'jpeg')
    for name, label, own in zip(names, labels, textures)
  }
  return parts(table[hidden:], table[:hidden], images)


def parts(train, test, images):
  """images: name -> bytes or file."""
  return tables(
    train,
    test,
    {
      f'{part}.zip': kit.zipped({i: images[i] for i in table['id']})
      for part, table in (('train', train), ('test', test))
    },
  )


def tables(train, test, archives):
  sample = test[['id']].assign(has_cactus=0.5)
  return kit.Parts(
    {'train.csv': train, 'sample_submission.csv': sample, **archives},
    test[['id', 'has_cactus']],
    groups=list(test['id']),
    classes=list(test['has_cactus']),
  )


def mlebench(public, private):
  archives = kit.copied(public, ['train.zip', 'test.zip'])
  train = kit.texts(public / 'train.csv')
  return tables(train, kit.texts(private / 'test.csv'), archives)


def raw(folder):
  table = kit.texts(kit.original(folder, 'train.csv'))
  train, test = kit.hold_out(table, 0.19)
  home = kit.unpacked(folder, 'train')
  return parts(train, test, {i: home / i for i in table['id']})


if __name__ == '__main__':
  kit.prepare_from(
    __doc__,
    SOURCE,
    standin,
    mlebench,
    raw,
    packaged=photographs.packaged(GROUND, BUSHES),
  )
