"""Prepares `cifar10`: small colour images of ten classes.

The originals are pickles, which are read here alone: a task's data holds arrays
without pickles. The labels of the test batch, which MLAgentBench leaves in an
agent's folder, are private. The stand-in's images are drawn: ten objects of their
own shape and colours before a noisy ground. With `--packages DIR` a class is one of ten
photographs and textures that come with scikit-image, and an image a piece of it, in a
light of its own.
"""

from __future__ import annotations

import io
import pathlib
import pickle
import tarfile

import numpy as np
import pandas as pd

from jaxagent.tasks import kit, photographs, pictures

SOURCE = kit.Source(
  id='cifar10',
  url='https://www.cs.toronto.edu/~kriz/cifar.html',
  rules='none to be accepted; the page asks to cite its technical report of 2009',
  files=('cifar-10-python.tar.gz (or its folder cifar-10-batches-py)',),
  mlebench=False,
)
CLASSES = 10
# A class each.
PHOTOGRAPHS = (
  'astronaut', 'brick', 'camera', 'chelsea', 'coffee', 'coins', 'grass', 'gravel',
  'ihc', 'motorcycle_left',
)  # fmt: skip
TILE = 36  # pixels; an image is within one tile
BATCHES = tuple(f'data_batch_{k}' for k in range(1, 6))


def outline(kind):
  """Radius over 64 angles of a class's shape, 1 in the mean."""
  turn = np.arange(64) / 64 * 2 * np.pi
  order, depth = 2 + kind % 5, (0.2, 0.5)[kind // 5]
  return 1 + depth * np.cos(order * turn)


def picture(rng, kind):
  """One image of a class, uint8 [32, 32, 3]."""
  ground = rng.uniform(40, 215, 3) + np.linspace(-1, 1, 32)[:, None, None] * (
    rng.uniform(-40, 40, 3)
  )
  image = np.repeat(ground, 32, axis=1) + rng.normal(0, 12, (32, 32, 1))
  hue = 2 * np.pi * kind / CLASSES + rng.normal(0, 0.33)
  colour = 128 + 90 * np.cos(hue + np.array([0.0, 2.1, 4.2]))
  size, turn = rng.uniform(6.0, 10.5), rng.randint(64)
  centre = rng.uniform(12, 20, 2)
  shape = pictures.disc(32, *centre, size * np.roll(outline(kind), turn))
  stripes = np.sin(np.arange(32) * (0.7 + 0.25 * (kind % 3)) + rng.uniform(0, 6))
  paint = colour + 26 * stripes[:, None, None] + rng.normal(0, 14, (32, 32, 1))
  image = np.where(shape[..., None], paint, image) * rng.uniform(0.7, 1.15)
  return np.clip(np.round(image), 0, 255).astype(np.uint8)


def piece(rng, tile):
  """An image within a tile of a photograph, in another light, uint8 [32, 32, 3]."""
  row, column = rng.randint(TILE - 31, size=2)
  image = tile[row : row + 32, column : column + 32].astype(float)
  image = image[:, :: rng.choice((-1, 1))]
  grey = image.mean(axis=2, keepdims=True)
  image = grey + (image - grey) * rng.uniform(0.3, 1)  # paler
  image = (image - image.mean()) * rng.uniform(0.6, 1.2)
  light = rng.uniform(100, 155) + rng.normal(0, 8, 3)
  return pictures.clipped(image + light)


def pools(rng, files):
  """Tiles of each photograph for the training set, and others for the hidden rows."""
  shown, hidden = [], []
  for name in PHOTOGRAPHS:
    tiles = photographs.tiles(photographs.decoded(files, name, 'RGB'), TILE)
    tiles = [tiles[k] for k in rng.permutation(len(tiles))]
    cut = len(tiles) * 2 // 3
    shown.append(tiles[:cut])
    hidden.append(tiles[cut:])
  return shown, hidden


def standin(files=None):
  rng = np.random.RandomState(112)
  labels = rng.permutation(np.arange(3600) % CLASSES)
  train, test = labels[:2400], labels[2400:]
  if files:
    shown, hidden = pools(rng, files)
    images = [piece(rng, shown[kind][rng.randint(len(shown[kind]))]) for kind in train]
    places = [rng.randint(len(hidden[kind])) for kind in test]
    others = [piece(rng, hidden[kind][k]) for kind, k in zip(test, places)]
    tiles = [f'{kind}:{k}' for kind, k in zip(test, places)]
    return parts(np.array(images), train, np.array(others), test, tiles)
  images = np.array([picture(rng, kind) for kind in labels])
  return parts(images[:2400], train, images[2400:], test)


def parts(train, train_labels, test, test_labels, groups=None):
  ids = np.arange(len(test))
  sample = pd.DataFrame({'id': ids, **{str(k): 0.1 for k in range(CLASSES)}})
  return kit.Parts(
    {
      'train_images.npy': kit.array_bytes(train),
      'train.csv': pd.DataFrame(
        {'id': np.arange(len(train)), 'label': train_labels}
      ),
      'test_images.npy': kit.array_bytes(test),
      'test.csv': pd.DataFrame({'id': ids}),
      'sample_submission.csv': sample,
    },
    pd.DataFrame({'id': ids, 'label': test_labels}),
    # By the image, or what it is a piece of: two that are equal are in the same half.
    groups=groups or [image.tobytes().hex() for image in test],
    classes=list(test_labels),
  )


class ArraysOnly(pickle.Unpickler):
  """Reads pickles of arrays, and nothing that could run code."""

  NAMES = ('_reconstruct', 'ndarray', 'dtype', 'encode')

  def find_class(self, module, name):
    known = module.split('.')[0] == 'numpy' or module == '_codecs'
    if not known or name not in self.NAMES:
      raise kit.DataMissing(
        f'a batch holds a pickled {module}.{name}, which no original does; '
        'download it again.'
      )
    return super().find_class(module, name)


def batch(data):
  """(images, labels) of a pickled batch of the original."""
  found = ArraysOnly(io.BytesIO(data), encoding='bytes').load()
  flat = np.asarray(found[b'data'], dtype=np.uint8).reshape(-1, 3, 32, 32)
  return flat.transpose(0, 2, 3, 1), np.array(found[b'labels'])


def files(folder):
  """Name of a batch -> its bytes, from the archive or its unpacked folder."""
  names = (*BATCHES, 'test_batch')
  home = folder / 'cifar-10-batches-py'
  if home.is_dir():
    return {name: kit.original(home, name).read() for name in names}
  archive = folder / 'cifar-10-python.tar.gz'
  if not archive.is_file():
    raise kit.DataMissing(
      f'{folder} holds neither cifar-10-python.tar.gz nor the folder '
      'cifar-10-batches-py; download it there.'
    )
  try:
    with tarfile.open(archive) as tar:
      return {
        name: tar.extractfile(f'cifar-10-batches-py/{name}').read()
        for name in names
      }
  except (tarfile.TarError, EOFError) as error:
    raise kit.DataMissing(
      f'{archive} is no whole archive ({error}); download it again.'
    ) from error


def raw(folder: pathlib.Path):
  data = files(folder)
  images, labels = zip(*(batch(data[name]) for name in BATCHES))
  test, test_labels = batch(data['test_batch'])
  return parts(
    np.concatenate(images), np.concatenate(labels), test, test_labels
  )


if __name__ == '__main__':
  kit.prepare_from(
    __doc__,
    SOURCE,
    standin,
    None,
    raw,
    packaged=photographs.packaged(*PHOTOGRAPHS),
  )
