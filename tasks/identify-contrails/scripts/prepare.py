"""Prepares `identify-contrails`: trails of aircraft in satellite images.

Split as mle-bench does: as many records of the training set are held out as there
are validation records, which everybody may use. (MLAgentBench takes those for its
test set.) Ids have 19 digits, and the mask of a record without a trail is `-`.

The stand-in's scenes are small: 32 x 32 pixels, with the nine bands, the eight
frames and the float32 of the originals. A trail is a narrow line that appears within
the eight frames and drifts; it cools bands 11 and 15 more than 13 and 14. Thick
clouds cool all bands alike, and wide thin ones are like a trail, but for their
width.
"""

from __future__ import annotations

import json

import numpy as np
import pandas as pd

from jaxagent.tasks import kit, pictures

NAME = 'google-research-identify-contrails-reduce-global-warming'
SOURCE = kit.Source(
  id=NAME,
  url=f'https://www.kaggle.com/c/{NAME}/data',
  rules='of the competition, to be accepted on its page (Kaggle)',
  files=(
    'train (a folder of records)',
    'validation',
    'train_metadata.json',
    'validation_metadata.json',
  ),
)
BANDS = [f'band_{k:02}.npy' for k in range(8, 17)]
MASK, SINGLE = 'human_pixel_masks.npy', 'human_individual_masks.npy'
SIZE, FRAMES, LABELLED = 32, 8, 4
# Brightness of a clear sky in K, and how much a trail and thin ice cool a band.
CLEAR = np.array([238, 246, 255, 281, 262, 284, 285, 283, 267.0])
THIN = np.array([0.2, 0.3, 0.5, 2.4, 0.8, 1.1, 1.3, 3.3, 1.0])


def trail(rng):
  """(distance from its middle, along its line) of each pixel and frame."""
  rows, columns = np.mgrid[:SIZE, :SIZE] - (SIZE - 1) / 2
  turn = rng.uniform(0, np.pi)
  drift = np.arange(FRAMES)[:, None, None] - LABELLED
  away = rows * np.cos(turn) - columns * np.sin(turn) - rng.uniform(-11, 11)
  along = rows * np.sin(turn) + columns * np.cos(turn) - rng.uniform(-8, 8)
  return away - rng.uniform(-0.9, 0.9) * drift, along + 0 * drift


def scene(rng, trails):
  """(bands [9, 32, 32, 8] in K, masks of labellers [32, 32, 1, R])."""
  thin = np.zeros((FRAMES, SIZE, SIZE))
  drawn = np.zeros((SIZE, SIZE, 1, rng.randint(4, 7)), dtype=np.int32)
  for _ in range(trails):
    away, along = trail(rng)
    reach, width = rng.uniform(9, 20), rng.uniform(0.9, 1.4)
    begun = rng.randint(1, LABELLED + 1)
    age = (np.arange(FRAMES) - begun)[:, None, None]
    seen = (np.abs(along) < reach) & (age >= 0)
    depth = rng.uniform(0.7, 1.4) * np.exp(-((away / width) ** 2))
    thin += np.where(seen, depth * 0.93**age.clip(0), 0)
    for k in range(drawn.shape[3]):
      line = np.abs(away[LABELLED]) < width * rng.uniform(0.8, 1.3)
      ends = np.abs(along[LABELLED]) < reach + rng.normal(0, 1)
      drawn[..., 0, k] |= line & ends
  moves = rng.randint(-1, 2, 2)
  wide = (pictures.ground(rng, SIZE, 0.7, 4) - 0.4).clip(0)
  cloud = (pictures.ground(rng, SIZE, 14, 3) - 8).clip(0)
  earth = pictures.ground(rng, SIZE, 2.5, 6)
  bands = np.empty((len(CLEAR), SIZE, SIZE, FRAMES))
  for frame in range(FRAMES):
    shift = tuple(moves * (frame - LABELLED))
    ice = thin[frame] + np.roll(wide, shift, (0, 1))
    cold = np.roll(cloud, shift, (0, 1))
    warm = np.where(np.arange(9) < 3, 0.3, 1.0)[:, None, None] * (earth - cold)
    bands[..., frame] = CLEAR[:, None, None] + warm - THIN[:, None, None] * ice
  bands += rng.normal(0, 0.35, bands.shape) + rng.normal(0, 4)
  return bands.round(2).astype(np.float32), drawn


def standin():
  rng = np.random.RandomState(134)
  counts = {'train': 26, 'validation': 4, 'test': 33}
  digits = kit.opaque_ids(rng, sum(counts.values()), 18, '0123456789')
  ids = iter(f'{rng.randint(1, 9)}{rest}' for rest in digits)
  files, rows, notes = {}, [], {part: [] for part in counts}
  for part, count in counts.items():
    empty = set(rng.permutation(count)[: count // 4])
    for k in range(count):
      name = next(ids)
      bands, drawn = scene(rng, 0 if k in empty else rng.randint(1, 4))
      mask = (2 * drawn.sum(axis=3) > drawn.shape[3]).astype(np.int32)
      contents = dict(zip(BANDS, bands))
      if part != 'test':
        contents[MASK] = mask
      if part == 'train':
        contents[SINGLE] = drawn
      for file, values in contents.items():
        files[f'{part}/{name}/{file}'] = kit.array_bytes(values)
      rows.append(answer(name, mask))
      time = 1.55e9 + 600 * rng.randint(60000)
      notes[part].append({'record_id': name, 'timestamp': time})
  for part in ('train', 'validation'):
    text = json.dumps(notes[part])
    files[f'{part}_metadata.json'] = text.encode()
  hidden = pd.DataFrame(rows[-counts['test'] :])
  return parts(hidden.sort_values('record_id', ignore_index=True), files)


def answer(name, mask):
  """The row of a record whose mask is [H, W, 1]."""
  return {
    'record_id': name,
    'encoded_pixels': pictures.run_lengths(mask[..., 0] > 0) or '-',
    'height': mask.shape[0],
    'width': mask.shape[1],
  }


def parts(answers, files):
  rng = np.random.RandomState(0)
  guess = np.array(['1 3 10 5', '-'])[rng.randint(2, size=len(answers))]
  return kit.Parts(
    {'sample_submission.csv': answers.assign(encoded_pixels=guess), **files},
    answers,
    groups=list(answers['record_id']),
    classes=[text == '-' for text in answers['encoded_pixels']],
  )


def mlebench(public, private):
  names = ['train', 'validation', 'test', 'train_metadata.json']
  files = kit.copied(public, [*names, 'validation_metadata.json'])
  return parts(kit.texts(private / 'answers.csv'), files)


def raw(folder):
  from sklearn.model_selection import train_test_split

  known = ['validation', 'validation_metadata.json']
  records, checked = (
    json.load(kit.original(folder, f'{part}_metadata.json'))
    for part in ('train', 'validation')
  )
  train, test = train_test_split(records, test_size=len(checked), random_state=0)
  files = kit.copied(folder, known)
  files['train_metadata.json'] = json.dumps(train).encode()
  home = kit.unpacked(folder, 'train')
  for record in train:
    files[f'train/{record["record_id"]}'] = home / record['record_id']
  rows = []
  for name in (record['record_id'] for record in test):
    rows.append(answer(name, np.load(kit.original(home / name, MASK))))
    for band in BANDS:
      files[f'test/{name}/{band}'] = home / name / band
  return parts(pd.DataFrame(rows), files)


if __name__ == '__main__':
  kit.prepare_from(__doc__, SOURCE, standin, mlebench, raw)
