"""Prepares `fathomnet`: which animals of the sea's ground are in a picture?

Split as MLAgentBench does: the last 2 % of the training set's rows after a shuffle.
The competition gives addresses and no images; they are expected in `images`, named
by id. Training categories are lists of numbers with a point (`[1.0, 9.0]`), a
submission's are whole and separated by blanks.

The stand-in has 40 of the 290 categories, two of each supercategory, drawn before
dark water: the outline tells the supercategory, colour and size the category.
"""

from __future__ import annotations

import json

import numpy as np
import pandas as pd

from jaxagent.tasks import kit, pictures

SOURCE = kit.Source(
  id='fathomnet-out-of-sample-detection',
  url='https://www.kaggle.com/c/fathomnet-out-of-sample-detection/data',
  rules='of the competition, to be accepted on its page (Kaggle)',
  files=(
    'multilabel_classification/train.csv',
    'object_detection/train.json',
    'category_key.csv',
    'images (a folder: a .png by id, downloaded from the addresses in train.json)',
  ),
  mlebench=False,
)
LABELS, BOXES = 'multilabel_classification/train.csv', 'object_detection/train.json'
KEY = 'category_key.csv'
KINDS = (
  'Worm', 'Feather star', 'Sea cucumber', 'Squat lobster', 'Fish', 'Soft coral',
  'Urchin', 'Sea star', 'Sea fan', 'Sea pen', 'Barnacle', 'Eel', 'Glass sponge',
  'Shrimp', 'Black coral', 'Anemone', 'Sea spider', 'Gastropod', 'Crab',
  'Stony coral',
)  # fmt: skip
SIZE = 56


def outline(kind):
  """Radius over 64 angles of a supercategory's animals."""
  turn = np.arange(64) / 64 * 2 * np.pi
  order, depth = 2 + kind % 5, (0.12, 0.3, 0.45, 0.6)[kind // 5]
  return 1 + depth * np.cos(order * turn)


def looks(rng):
  """Category -> (supercategory, colour, radius in pixels)."""
  numbers = np.sort(rng.permutation(np.arange(1, 291))[:40])
  kinds = rng.permutation(np.arange(40) % 20)
  return {
    int(number): (kind, rng.uniform(70, 255, 3), rng.uniform(5, 9))
    for number, kind in zip(numbers, kinds)
  }


def picture(rng, animals, known):
  """(pixels [56, 56, 3], a box x, y, width, height for each animal)."""
  depth = np.linspace(1, -1, SIZE)[:, None, None]
  image = rng.uniform(15, 45) * np.array([0.5, 1.0, 1.3]) + 10 * depth
  image = np.repeat(image, SIZE, axis=1) + rng.normal(0, 4, (SIZE, SIZE, 1))
  image[rng.rand(SIZE, SIZE) < 0.006] += rng.uniform(40, 160)
  boxes = []
  for animal in animals:
    kind, colour, radius = known[animal]
    reach = radius * rng.uniform(0.85, 1.2) * np.roll(outline(kind), rng.randint(64))
    body = pictures.disc(SIZE, *rng.uniform(7, SIZE - 8, 2), reach)
    light = rng.uniform(0.7, 1.1) + 0.25 * pictures.ground(rng, SIZE, 0.5, 2)
    paint = (colour + rng.normal(0, 14, 3)) * light[..., None]
    image = np.where(body[..., None], paint, image)
    rows, columns = np.nonzero(body)
    low = int(columns.min()), int(rows.min())
    high = int(columns.max()), int(rows.max())
    boxes.append([*low, high[0] - low[0] + 1, high[1] - low[1] + 1])
  return pictures.clipped(image + rng.normal(0, 4, image.shape)), boxes


def uuids(rng, count):
  """Ids of the originals' form, 8-4-4-4-12."""
  cuts = (0, 8, 12, 16, 20, 32)
  return [
    '-'.join(i[a:b] for a, b in zip(cuts, cuts[1:]))
    for i in kit.opaque_ids(rng, count, 32)
  ]


def standin():
  rng = np.random.RandomState(137)
  known = looks(rng)
  numbers = list(known)
  shares = 1.0 / (5 + rng.permutation(len(numbers)))
  shares /= shares.sum()
  images, marks, rows, files = [], [], [], {}
  for k, name in enumerate(uuids(rng, 1000), 1):
    count = 1 + rng.binomial(3, 0.35)
    animals = [int(c) for c in rng.choice(numbers, count, p=shares)]
    pixels, boxes = picture(rng, animals, known)
    files[name] = pictures.encoded(pixels, 'png')
    images.append(
      {'id': k, 'file_name': f'{name}.png', 'width': SIZE, 'height': SIZE}
    )
    for animal, box in zip(animals, boxes):
      mark = {'id': len(marks) + 1, 'image_id': k, 'category_id': animal}
      marks.append(mark | {'bbox': box, 'area': box[2] * box[3], 'iscrowd': 0})
    rows.append([name, str([float(c) for c in sorted(set(animals))])])
  key = pd.DataFrame(
    [
      (k, f'Animal {k}', KINDS[known[k][0] if k in known else k % 20])
      for k in range(1, 291)
    ],
    columns=['id', 'name', 'supercat'],
  )
  names = ('id', 'name', 'supercategory')
  classes = [dict(zip(names, row)) for row in key.itertuples(index=False)]
  record = {'images': images, 'annotations': marks, 'categories': classes}
  table = pd.DataFrame(rows, columns=['id', 'categories'])
  return parts(table, record, key, files, 0.7)


def chosen(record, ids):
  """The images of these ids and their annotations, both numbered from 1."""
  images = [i for i in record['images'] if i['file_name'][:-4] in ids]
  number = {image['id']: k for k, image in enumerate(images, 1)}
  marks = [m for m in record['annotations'] if m['image_id'] in number]
  return {
    **record,
    'images': [image | {'id': number[image['id']]} for image in images],
    'annotations': [
      mark | {'id': k, 'image_id': number[mark['image_id']]}
      for k, mark in enumerate(marks, 1)
    ],
  }


def parts(table, record, key, images, share=0.98):
  """images: id -> content of its file, or its path."""
  table = table.sample(frac=1, random_state=42).reset_index(drop=True)
  cut = int(len(table) * share)
  train, test = table[:cut], table[cut:].reset_index(drop=True)
  told = [
    ' '.join(str(int(c)) for c in json.loads(text)) for text in test['categories']
  ]
  hidden = chosen(record, set(test['id']))
  del hidden['annotations']
  boxes = chosen(record, set(train['id']))
  return kit.Parts(
    {
      LABELS: train,
      BOXES: json.dumps(boxes).encode(),
      'object_detection/eval.json': json.dumps(hidden).encode(),
      KEY: key,
      'sample_submission.csv': test[['id']].assign(categories='1', osd=0.5),
      **{f'images/{name}.png': images[name] for name in table['id']},
    },
    test[['id']].assign(categories=told),
    groups=list(test['id']),
  )


def raw(folder):
  table = kit.texts(kit.original(folder, LABELS))
  record = json.load(kit.original(folder, BOXES))
  key = kit.texts(kit.original(folder, KEY))
  home = kit.unpacked(folder, 'images')
  kit.copied(home, [f'{name}.png' for name in table['id']])
  images = {name: home / f'{name}.png' for name in table['id']}
  return parts(table, record, key, images)


if __name__ == '__main__':
  kit.prepare_from(__doc__, SOURCE, standin, None, raw)
