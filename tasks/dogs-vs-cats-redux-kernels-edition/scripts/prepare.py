"""Prepares `dogs-vs-cats-redux-kernels-edition`: is it a dog or a cat?

Labels of the training pictures are in their file names alone. The stand-in's
animals are drawn: a cat has a round head and pointed ears that stand, a dog a
long head and round ears that hang; colours and grounds are the same for both.
"""

from __future__ import annotations

import pathlib

import numpy as np
import pandas as pd

from jaxagent.tasks import kit, pictures

SOURCE = kit.Source(
  id='dogs-vs-cats-redux-kernels-edition',
  url='https://www.kaggle.com/c/dogs-vs-cats-redux-kernels-edition/data',
  rules='of the competition, to be accepted on its page (Kaggle)',
  files=('train.zip',),
)
ANGLES = np.arange(64) / 64 * 2 * np.pi  # 0 is to the right, then down


def bump(middle, width):
  """A bump of height 1 around an angle, over the 64 angles."""
  away = (ANGLES - middle + np.pi) % (2 * np.pi) - np.pi
  return (1 - np.abs(away) / width).clip(0)


def outline(rng, dog):
  """Radius of a head with its ears over the 64 angles, about 1."""
  up, tilt = 1.5 * np.pi, rng.normal(0, 0.2)
  if dog:
    long = 0.25 * np.cos(2 * (ANGLES - up - tilt))
    ears = [bump(up + tilt + side * rng.uniform(1.5, 1.9), 0.6) for side in (-1, 1)]
    return 1 + long + rng.uniform(0.1, 0.35) * np.sqrt(sum(ears))
  ears = [bump(up + tilt + side * rng.uniform(0.5, 0.8), 0.35) for side in (-1, 1)]
  return 1 + rng.uniform(0.2, 0.5) * sum(ears) + rng.normal(0, 0.03, 64)


def picture(rng, dog):
  """One picture, uint8 [size, size, 3]."""
  size = rng.randint(52, 76)
  wall = pictures.ground(rng, size, 16, 5) + pictures.ground(rng, size, 8, 1)
  image = rng.uniform(60, 200, 3) + wall[..., None]
  reach = rng.uniform(0.2, 0.3) * size
  row, column = rng.uniform(0.42, 0.58, 2) * size
  head = pictures.disc(size, row, column, reach * outline(rng, dog))
  fur = rng.uniform(40, 215, 3) * np.array([1.0, 0.85, 0.7])
  fur = fur + pictures.ground(rng, size, 12, 1)[..., None]
  image = np.where(head[..., None], fur, image)
  for side in (-1, 1):
    eye = pictures.disc(size, row - reach / 5, column + side * reach / 3, reach / 8)
    image = np.where(eye[..., None], 25.0, image)
  return pictures.clipped(image)


def standin():
  rng = np.random.RandomState(122)
  labels = rng.permutation(np.arange(1500) % 2)
  made = [pictures.encoded(picture(rng, label), 'jpeg') for label in labels]
  return parts(made[:900], labels[:900], made[900:], labels[900:])


def parts(train, train_labels, test, test_labels):
  """train, test: a picture each, as bytes or as a file."""
  seen, named = [0, 0], {}
  for image, label in zip(train, train_labels):
    named[f'{("cat", "dog")[label]}.{seen[label]}.jpg'] = image
    seen[label] += 1
  unnamed = {f'{k}.jpg': image for k, image in enumerate(test, 1)}
  answers = pd.DataFrame(
    {'id': np.arange(1, len(test) + 1), 'label': test_labels}
  )
  return tables(
    answers, {'train.zip': kit.zipped(named), 'test.zip': kit.zipped(unnamed)}
  )


def tables(answers, archives):
  return kit.Parts(
    {'sample_submission.csv': answers[['id']].assign(label=0.5), **archives},
    answers,
    groups=list(answers['id']),
    classes=list(answers['label']),
  )


def mlebench(public, private):
  archives = kit.copied(public, ['train.zip', 'test.zip'])
  return tables(kit.texts(private / 'answers.csv'), archives)


def raw(folder: pathlib.Path):
  home = kit.unpacked(folder, 'train')
  files = pd.DataFrame({'path': sorted(home.glob('*.jpg'))})
  if files.empty:
    raise kit.DataMissing(f'{home} holds no .jpg; download train.zip again.')
  train, test = (list(t['path']) for t in kit.hold_out(files))
  labels = [[int('dog' in p.name) for p in part] for part in (train, test)]
  return parts(train, labels[0], test, labels[1])


if __name__ == '__main__':
  kit.prepare_from(__doc__, SOURCE, standin, mlebench, raw)
