"""Prepares `denoising-dirty-documents`: clean scans from stained ones.

A row of the answers is a pixel, `image_row_column`, counted from 1; the sample is
named `sampleSubmission.csv`. The stand-in's pages have lines of signs of an
alphabet of its own; folds, coffee rings and speckle lie over them, and most of the
stains are darker than the paler signs. With `--packages DIR` the pages are tiles of two
scans of printed text that come with scikit-image.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from PIL import Image
from scipy.ndimage import gaussian_filter

from jaxagent.tasks import kit, photographs, pictures

SOURCE = kit.Source(
  id='denoising-dirty-documents',
  url='https://www.kaggle.com/c/denoising-dirty-documents/data',
  rules='of the competition, to be accepted on its page (Kaggle)',
  files=('train.zip', 'train_cleaned.zip'),
)
SCANS = ('page', 'text')
HEIGHT, WIDTH = 86, 180  # a third of the originals'


def page(rng, alphabet):
  """Ink of a clean page in [0, 1], [86, 180]."""
  ink = np.zeros((HEIGHT, WIDTH))
  for row in range(rng.randint(3, 8), HEIGHT - 10, rng.randint(11, 14)):
    column = rng.randint(3, 12)
    while column < WIDTH - 10:
      if rng.rand() > 0.16:
        sign = alphabet[rng.randint(len(alphabet))]
        ink[row : row + 7, column : column + 5] = sign
      column += 7
  return (gaussian_filter(ink, 0.5) * 1.3).clip(0, 1) * rng.uniform(0.75, 1.0)


def scanned(scan, tiles):
  """Ink of the tiles of a scan, each in [0, 1], none over another.

  Ink is what is darker than its surroundings: the light is uneven.

  scan: grey values, uint8.
  """
  grey = scan / 255.0
  dark = (gaussian_filter(grey, 12) - grey) / 0.35
  ink = ((dark - 0.2) * 1.4).clip(0, 1)
  down, across = tiles
  height, width = ink.shape[0] // down, ink.shape[1] // across
  return [
    ink[r * height : (r + 1) * height, c * width : (c + 1) * width]
    for r in range(down)
    for c in range(across)
  ]


def stained(rng, clean):
  """Grey values of the page with its stains, uint8 of the page's shape."""
  height, width = clean.shape
  shade = pictures.ground(rng, width, 0.1, 12)[:height]
  speckle = pictures.ground(rng, width, 0.05, 0.7)[:height]
  paper = 0.72 + shade + speckle
  rows, columns = np.mgrid[:height, :width]
  for _ in range(rng.randint(1, 4)):
    away = np.hypot(
      rows - rng.uniform(0, height), columns - rng.uniform(0, width)
    )
    ring = np.abs(away - rng.uniform(15, 50)) < rng.uniform(2, 5)
    paper = paper - rng.uniform(0.1, 0.3) * gaussian_filter(ring * 1.0, 1.0)
  fold = np.abs(rows - rng.uniform(0, height) - 0.3 * columns) < 1.5
  paper = paper - 0.25 * gaussian_filter(fold * 1.0, 0.7)
  return pictures.clipped(255 * paper.clip(0.1, 1) * (0.3 + 0.7 * clean))


def standin(files=None):
  rng = np.random.RandomState(124)
  alphabet = (rng.rand(26, 7, 5) < 0.45).astype(float)
  scans = []
  if files:  # 32 tiles, in an order that mixes both scans
    pages = [photographs.decoded(files, name, 'L') for name in SCANS]
    tiles = [tile for scan in pages for tile in scanned(scan, (4, 4))]
    scans = [tiles[k] for k in rng.permutation(len(tiles))]
  names = [str(k) for k in 1 + rng.permutation(216)[:32]]
  train, test = {}, {}
  for k, name in enumerate(names):
    clean = 1 - (scans[k] if scans else page(rng, alphabet))
    dirty = pictures.encoded(stained(rng, clean), 'png')
    pair = dirty, pictures.encoded(pictures.clipped(255 * clean), 'png')
    (train if k < 20 else test)[name] = pair
  return parts(train, test)


def pixels(name, file):
  """Rows of one clean image, values in [0, 1]."""
  grey = np.asarray(Image.open(file).convert('L'))
  rows, columns = np.divmod(np.arange(grey.size), grey.shape[1])
  ids = [f'{name}_{r + 1}_{c + 1}' for r, c in zip(rows, columns)]
  return pd.DataFrame({'id': ids, 'value': grey.ravel() / 255.0})


def parts(train, test):
  """train, test: name -> (dirty, clean), bytes or files."""
  files = {}
  for name, (dirty, clean) in train.items():
    files[f'train/{name}.png'] = dirty
    files[f'train_cleaned/{name}.png'] = clean
  for name, (dirty, _) in test.items():
    files[f'test/{name}.png'] = dirty
  rows = [
    pixels(name, kit.opened(test[name][1]))
    for name in sorted(test, key=lambda name: f'{name}.png')
  ]
  return tables(pd.concat(rows, ignore_index=True), files)


def tables(answers, files):
  sample = answers[['id']].assign(value=1)
  return kit.Parts(
    {'sampleSubmission.csv': sample, **files},
    answers,
    groups=[name.split('_')[0] for name in answers['id']],
  )


def mlebench(public, private):
  files = kit.copied(public, ['train', 'train_cleaned', 'test'])
  return tables(kit.texts(private / 'answers.csv'), files)


def raw(folder):
  dirty, clean = (kit.unpacked(folder, n) for n in ('train', 'train_cleaned'))
  names = pd.DataFrame({'name': sorted(p.name for p in dirty.glob('*.png'))})
  if names.empty:
    raise kit.DataMissing(f'{dirty} holds no .png; download train.zip again.')
  train, test = kit.hold_out(names, 0.2)
  return parts(
    *(
      {name[:-4]: (dirty / name, clean / name) for name in table['name']}
      for table in (train, test)
    )
  )


if __name__ == '__main__':
  kit.prepare_from(
    __doc__, SOURCE, standin, mlebench, raw, packaged=photographs.packaged(*SCANS)
  )
