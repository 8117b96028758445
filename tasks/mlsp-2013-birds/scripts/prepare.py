"""Prepares `mlsp-2013-birds`: which of 19 birds call in a recording?

An id is the recording's number times 100 plus the species; 64 recordings are
hidden, whose labels are `?`, and a recording without a bird has a number alone on
its line. Split as mle-bench does, from the first fold of the originals, with new
numbers.

The stand-in's recordings last 2 s and not 10; each species has a call of its own,
before rain, wind and humming. Of the supplements it has the segments' rectangles
and histogram, from spectrograms, but no pictures.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.ndimage import find_objects, gaussian_filter, label
from scipy.signal import spectrogram

from jaxagent.tasks import kit, sounds

SOURCE = kit.Source(
  id='mlsp-2013-birds',
  url='https://www.kaggle.com/c/mlsp-2013-birds/data',
  rules='of the competition, to be accepted on its page (Kaggle)',
  files=('mlsp_contest_dataset.zip',),
)
SPECIES, RATE, LENGTH = 19, 16000, 32000
FOLDS = 'essential_data/CVfolds_2.txt'
FILES = 'essential_data/rec_id2filename.txt'
LABELS = 'essential_data/rec_labels_test_hidden.txt'
NAMES = 'essential_data/species_list.txt'
TABLES = [
  f'supplemental_data/{name}.txt'
  for name in ('histogram_of_segments', 'segment_features', 'segment_rectangles')
]
PICTURES = [
  f'supplemental_data/{name}'
  for name in ('spectrograms', 'filtered_spectrograms', 'segmentation_examples')
] + ['supplemental_data/supervised_segmentation']


def voices(rng):
  """(pitch in Hz, slope in Hz/s, trill in Hz, its width, length, pause in s)."""
  return [
    (
      rng.uniform(1500, 6500),
      rng.choice([-1, 0, 1]) * rng.uniform(6000, 16000),
      rng.uniform(15, 60),
      rng.choice([0, 0, 1]) * rng.uniform(200, 700),
      rng.uniform(0.05, 0.16),
      rng.uniform(0.06, 0.25),
    )
    for _ in range(SPECIES)
  ]


def calls(rng, voice):
  """One bird's calls, [32000]."""
  pitch, slope, trill, width, length, pause = voice
  out, at = np.zeros(LENGTH), int(rng.uniform(0, 0.7) * RATE)
  count = int(length * rng.uniform(0.85, 1.15) * RATE)
  time = np.arange(count) / RATE - length / 2
  hertz = pitch * rng.uniform(0.95, 1.05) + slope * time
  syllable = sounds.tone(hertz + width * np.sin(2 * np.pi * trill * time), RATE)
  loud = rng.uniform(0.5, 1.3)
  for _ in range(rng.randint(3, 8)):
    if at + count > LENGTH:
      break
    out[at : at + count] += loud * rng.uniform(0.7, 1.0) * syllable
    at += count + int(pause * rng.uniform(0.8, 1.2) * RATE)
  return out


def recording(rng, birds, known):
  rain = rng.uniform(0.1, 0.45) * sounds.noise(rng, LENGTH, 0)
  wind = rng.uniform(0.2, 1.0) * sounds.noise(rng, LENGTH, 0.97)
  hum = sounds.tone(np.full(LENGTH, rng.uniform(2000, 7000)), RATE)
  drops = (rng.rand(LENGTH) < 3e-4) * rng.normal(0, 4, LENGTH)
  sound = rain + wind + rng.uniform(0, 0.15) * hum + drops
  for bird in birds:
    sound = sound + calls(rng, known[bird])
  return sound / 8


def segments(sound):
  """Rectangles of what stands out: first and last column, then row."""
  values = spectrogram(sound, RATE, 'hamming', nperseg=512)[2]
  level = gaussian_filter(np.log(values + 1e-9), 1)
  level -= np.median(level, axis=1, keepdims=True)
  parts, _ = label(level.round(6) > 1.6)
  boxes = [(c.start, c.stop, r.start, r.stop) for r, c in find_objects(parts)]
  return [b for b in boxes if b[1] - b[0] > 3 and b[3] - b[2] > 2]


def histogram(boxes):
  """Share of the segments in each of 100 cells of pitch and length."""
  counts = np.zeros(100)
  for left, right, low, high in boxes:
    place = min((low + high) // 26, 19) * 5 + min((right - left) // 8, 4)
    counts[place] += 1
  return (counts / max(1, len(boxes))).round(4)


def lines(head, rows):
  """A text file, without a comma where a row has one value."""
  body = ''.join(','.join(map(str, row)) + '\n' for row in rows)
  return (head + '\n' + body).encode()


def standin():
  rng = np.random.RandomState(135)
  known, count = voices(rng), 254
  shares = 0.22 * 0.87 ** np.arange(SPECIES) + 0.02
  times = kit.opaque_ids(rng, count, 6, '012345')
  silent = set(rng.permutation(count)[: count // 7])
  files, rows, boxes, labels = {}, [], [], []
  for k in range(count):
    birds = list(np.flatnonzero(rng.rand(SPECIES) < shares))
    birds = [] if k in silent else birds
    name = f'PC{rng.randint(1, 19)}_2009{rng.randint(5, 9):02}15_{times[k]}_0010'
    sound = recording(rng, birds, known)
    files[f'essential_data/src_wavs/{name}.wav'] = sounds.wav(sound, RATE)
    rows.append((k, name))
    boxes.append(segments(sound))
    labels.append(birds)
  codes = ((j, f'SP{j:02}', f'Bird number {j}') for j in range(SPECIES))
  files[NAMES] = lines('class_id,code,species', codes)
  kept = ((k, *histogram(own)) for k, own in enumerate(boxes))
  files[TABLES[0]] = lines('rec_id,[histogram of segment features]', kept)
  kept = ((k, j, *b) for k, own in enumerate(boxes) for j, b in enumerate(own))
  files[TABLES[2]] = lines('rec_id,[histogram of segment features]', kept)
  hidden = set(rng.permutation(count)[:64])
  return parts(rows, labels, hidden, files)


def parts(rows, labels, hidden, files):
  """rows: (number, name of its file); labels: a recording's, in their order."""
  pairs = list(zip((number for number, _ in rows), labels))
  folds = ((number, int(number in hidden)) for number, _ in rows)
  shown = ((k, *('?' if k in hidden else own)) for k, own in pairs)
  told = {
    FOLDS: lines('rec_id,fold', folds),
    FILES: lines('rec_id,filename', rows),
    LABELS: lines('rec_id,[labels]', ([k, *own] for k, *own in shown)),
  }
  answers = pd.DataFrame(
    [
      (k * 100 + species, int(species in own))
      for k, own in pairs
      if k in hidden
      for species in range(SPECIES)
    ],
    columns=['Id', 'Probability'],
  )
  return tables(answers, {**told, **files})


def tables(answers, files):
  return kit.Parts(
    {'sample_submission.csv': answers[['Id']].assign(Probability=0), **files},
    answers,
    groups=[int(i) // 100 for i in answers['Id']],
    classes=list(answers['Probability']),
  )


def mlebench(public, private):
  files = kit.copied(public, ['essential_data', 'supplemental_data'])
  return tables(kit.texts(private / 'answers.csv'), files)


def raw(folder):
  home = kit.unpacked(folder, 'mlsp_contest_dataset')
  folds = pd.read_csv(kit.original(home, FOLDS))
  folds = folds[folds['fold'] == 0].reset_index(drop=True)
  hidden = set(folds.sample(frac=0.2, random_state=0).index)
  number = {old: new for new, old in enumerate(folds['rec_id'])}
  table = pd.read_csv(kit.original(home, FILES))
  names = {r: name for r, name in zip(table['rec_id'], table['filename'])}
  own = {
    old: [int(species) for species in found if species]
    for old, *found in split_lines(home, LABELS)
    if old in number  # others are `?`
  }
  files = kit.copied(home, [NAMES])
  for path in TABLES:
    kept = ((number[k], *rest) for k, *rest in split_lines(home, path) if k in number)
    files[path] = lines('rec_id,[histogram of segment features]', kept)
  for old in number:
    wav = f'essential_data/src_wavs/{names[old]}.wav'
    files[wav] = home / wav
    pictures = (f'{part}/{names[old]}.bmp' for part in PICTURES)
    files.update({p: home / p for p in pictures if (home / p).is_file()})
  rows = [(new, names[old]) for old, new in number.items()]
  return parts(rows, [own[old] for old in number], hidden, files)


def split_lines(home, path):
  """(number of the recording, further cells...) of a text file's lines."""
  for line in kit.original(home, path).read().decode().splitlines()[1:]:
    first, *rest = line.split(',')
    yield int(first), *rest


if __name__ == '__main__':
  kit.prepare_from(__doc__, SOURCE, standin, mlebench, raw)
