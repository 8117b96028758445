"""Prepares `multi-modal-gesture-recognition`: which of 20 signs, in which order?

Archives of zips, one a recording; its id is the last four digits of the name, and
`0300` is text. The hidden recordings are the fourth part of the training set, as
mle-bench has it, where `Video.Labels` tells the answers (mle-bench issue 77): here
that field is empty in the test files.

The stand-in's recordings have the positions of 20 joints by frame, five frames a
second, but no films, no sound and no rotations. Between signs the hands hang; some
movements are no sign. With `--packages DIR` the right hand rises and sinks in a sign as
the values of a recorded gesture do, of the data set PickupGestureWiimoteZ that comes with
aeon: ten gestures, with one hand or both; the hidden recordings have its other half.
"""

from __future__ import annotations

import atexit
import gzip
import io
import pathlib
import re
import shutil
import tarfile
import tempfile
import zipfile

import numpy as np
import pandas as pd
from scipy.io import loadmat, savemat

from jaxagent.tasks import kit

SOURCE = kit.Source(
  id='multi-modal-gesture-recognition',
  url='https://www.kaggle.com/c/multi-modal-gesture-recognition/data',
  rules='of the competition, to be accepted on its page (Kaggle)',
  files=(
    'training.csv',
    *(f'training{k}.tar.gz' for k in (1, 2, 3, 4)),
    *(f'validation{k}.tar.gz' for k in (1, 2, 3)),
  ),
)
RECORDED = {
  part: f'aeon/datasets/data/PickupGestureWiimoteZ/PickupGestureWiimoteZ_{part}.ts'
  for part in ('TRAIN', 'TEST')
}
PACKAGED = kit.Packaged(
  'aeon',
  '1.6.0',
  {
    RECORDED['TRAIN']: '4d303d9990df621c066fc454d62626e3721aed008462103500b86b1ac1ca92c8',
    RECORDED['TEST']: 'a9109bce918e48ee0e924e9cf2fdfdc4de364a3d88ec5e8aa44399ff08b11361',
  },
)
SIGNS = tuple(
  """vattene vieniqui perfetto furbo cheduepalle chevuoi daccordo seipazzo
  combinato freganiente ok cosatifarei basta prendere noncenepiu fame tantotempo
  buonissimo messidaccordo sonostufo""".split()
)
# Hip, spine, shoulders, head, left arm, right arm, left leg, right leg, in mm.
BODY = np.array(
  [[0, 0], [0, 60], [0, 420], [0, 620], [-180, 380], [-220, 140], [-230, -60],
   [-235, -130], [180, 380], [220, 140], [230, -60], [235, -130], [-80, -30],
   [-90, -400], [-95, -750], [-95, -800], [80, -30], [90, -400], [95, -750],
   [95, -800]], dtype=float)  # fmt: skip
REST = BODY[[7, 11]]


def movement(rng):
  """Places of both hands at four moments [4, 2, 3] in mm, and a shake's width."""
  two = rng.rand() < 0.4
  places = rng.uniform((-150, 100, -450), (350, 650, -100), (4, 1, 3))
  other = places * (-1, 1, 1) + rng.normal(0, 40, (4, 1, 3))
  hanging = np.tile([*REST[0], 0.0], (4, 1, 1))
  shake = rng.choice([0, 0, 1]) * rng.uniform(60, 140, 3)
  return np.concatenate([other if two else hanging, places], axis=1), shake


def acted(rng, places, shake):
  """Both hands in each frame of a movement, [frames, 2, 3]."""
  count = rng.randint(9, 15)
  ends = np.array([[[*hand, 0.0] for hand in REST]])
  stops = np.concatenate([ends, places + rng.normal(0, 85, places.shape), ends])
  at = np.linspace(0, 1, count) ** rng.uniform(0.8, 1.25) * 5
  low = np.minimum(at.astype(int), 4)
  part = (at - low)[:, None, None]
  path = stops[low] * (1 - part) + stops[low + 1] * part
  wave = np.sin(np.arange(count) * 2.2 + rng.uniform(0, 6))
  path[2:-2, 1] += wave[2:-2, None] * shake
  return path


def gestures(content):
  """Recordings of each of the ten gestures, arrays of values around 0."""
  found = [[] for _ in range(10)]
  lines = content.decode().splitlines()
  for line in lines[lines.index('@data') + 1 :]:
    values, _, label = line.rpartition(':')
    found[int(label) - 1].append(np.array(values.split(','), dtype=float) - 1)
  return found


def imitated(rng, recordings, place, two):
  """Both hands in each frame of a sign, as one of the recordings, [frames, 2, 3].

  place: of the right hand, around which it moves; two: whether the left one follows it.
  """
  course = recordings[rng.randint(len(recordings))]
  count = int(np.clip(len(course) * rng.uniform(0.08, 0.12), 7, 30))
  steps = np.array([part.mean() for part in np.array_split(course, count)])
  path = np.tile([[*hand, 0.0] for hand in REST], (count + 2, 1, 1))
  path[1:-1, 1] = place + rng.normal(0, 50, 3)
  path[1:-1, 1, 1] += rng.uniform(200, 260) * steps
  if two:
    path[1:-1, 0] = path[1:-1, 1] * (-1, 1, 1) + rng.normal(0, 40, 3)
  path[1:-1] += rng.normal(0, 10, (count, 2, 3))
  return path


def recording(rng, signs, act=acted):
  """(MATLAB's `Video` of a recording, the signs that are made in it).

  signs: of each, what `act` makes the course of both hands of.
  """
  hands, labels = [], []
  for _ in range(rng.randint(6, 11)):
    hands.append(np.tile([[*h, 0.0] for h in REST], (rng.randint(2, 5), 1, 1)))
    known = rng.rand() > 0.2
    sign = rng.randint(len(signs))
    if known:
      path = act(rng, *signs[sign])
    else:
      path = acted(rng, *movement(rng))
    begin = sum(map(len, hands)) + 1
    hands.append(path)
    if known:
      labels.append((SIGNS[sign], begin, begin + len(path) - 1, sign + 1))
  hands.append(hands[0])
  path = np.concatenate(hands)
  joints = np.zeros((len(path), 20, 3))
  joints[..., :2] = BODY
  joints[:, [7, 11]] = path
  joints[:, [6, 10]] = path * 0.8 + joints[:, [5, 9]] * 0.2
  joints[:, [5, 9]] = path * 0.4 + joints[:, [4, 8]] * 0.5 + (0, -20, 30)
  place = rng.normal(0, 150, 3) + (0, 0, 2300)
  joints = joints * rng.uniform(0.85, 1.15) + place + rng.normal(0, 8, joints.shape)
  joints = joints.round(1)
  video = {
    'NumFrames': len(joints),
    'FrameRate': 5,
    'MaxDepth': 3975,
    'Frames': structs([{'Skeleton': skeleton(frame)} for frame in joints]),
    'Labels': structs([dict(zip(('Name', 'Begin', 'End'), own)) for own in labels]),
  }
  return video, [own[3] for own in labels]


def skeleton(frame):
  flat = (frame[:, :2] * (1, -1) / frame[:, 2:] * 525 + (320, 240)).round()
  return {'WorldPosition': frame, 'PixelPosition': flat}


def structs(rows):
  """MATLAB's array of structures, [1, N]."""
  if not rows:
    return np.zeros((0, 0))
  out = np.empty((1, len(rows)), dtype=[(name, object) for name in rows[0]])
  for k, row in enumerate(rows):
    out[0, k] = tuple(row.values())
  return out


def mat(video):
  """Bytes of a MATLAB file; its head names no date."""
  out = io.BytesIO()
  savemat(out, {'Video': video})
  head = b'MATLAB 5.0 MAT-file'.ljust(116)
  return head + out.getvalue()[116:]


class Archive:
  """A .tar.gz in a temporary folder, the same for the same files."""

  def __init__(self, level):
    folder = pathlib.Path(tempfile.mkdtemp(prefix='jaxagent-tar-'))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    self.path = folder / 'a.tar.gz'
    self.plain = self.path.open('wb')
    self.packed = gzip.GzipFile('', 'wb', level, self.plain, mtime=0)
    self.tar = tarfile.open(fileobj=self.packed, mode='w')

  def add(self, name, files):
    """files: name -> content of what the zip `name` holds."""
    path = kit.zipped(files)
    member = tarfile.TarInfo(name)
    member.size = path.stat().st_size
    with path.open('rb') as file:
      self.tar.addfile(member, file)
    path.unlink()

  def close(self):
    for file in (self.tar, self.packed, self.plain):
      file.close()
    return self.path


def standin(files=None):
  rng = np.random.RandomState(136)
  if files:
    act = imitated
    places = rng.uniform((50, 250, -400), (350, 450, -150), (len(SIGNS), 3))
    shown, hidden = (
      list(zip(2 * gestures(files[RECORDED[part]]), places, 10 * [False] + 10 * [True]))
      for part in ('TRAIN', 'TEST')
    )
  else:
    act = acted
    shown = hidden = [movement(rng) for _ in SIGNS]
  counts = dict.fromkeys(('training1', 'training2', 'training3'), 15)
  counts |= {'test': 60, 'validation1': 1, 'validation2': 1, 'validation3': 1}
  rows, archives, number = {}, {}, 0
  for part, count in counts.items():
    archive, rows[part] = Archive(6), []
    for _ in range(count):
      number += 1
      of_train = part.startswith('training')
      video, made = recording(rng, shown if of_train else hidden, act)
      if not of_train:
        video['Labels'] = structs([])
      name = f'Sample{number:05}'
      archive.add(f'{name}.zip', {f'{name}_data.mat': mat(video)})
      rows[part].append([name[-4:], ' '.join(map(str, made))])
    archives[f'{part}.tar.gz'] = archive.close()
  train = [row for k in (1, 2, 3) for row in rows[f'training{k}']]
  return parts(table(train), table(rows['test']), archives)


def table(rows):
  return pd.DataFrame(rows, columns=['Id', 'Sequence'])


def parts(train, test, files):
  rng = np.random.RandomState(0)
  guesses = [' '.join(map(str, rng.permutation(20) + 1)) for _ in test['Id']]
  return kit.Parts(
    {
      'training.csv': train,
      'test.csv': test[['Id']],
      'randomPredictions.csv': test[['Id']].assign(Sequence=guesses),
      **files,
    },
    test[['Id', 'Sequence']],
    groups=list(test['Id']),
  )


def without_labels(path):
  """Copies an archive of recordings, the field `Labels` of each empty."""
  archive = Archive(1)
  try:
    with tarfile.open(path) as tar:
      for member in tar:
        if not member.name.endswith('.zip'):
          continue
        with zipfile.ZipFile(io.BytesIO(tar.extractfile(member).read())) as inner:
          files = {name: inner.read(name) for name in inner.namelist()}
        for name in files:
          if name.endswith('_data.mat'):
            video = loadmat(io.BytesIO(files[name]))['Video']
            video['Labels'][0, 0] = structs([])
            files[name] = mat(video)
        archive.add(pathlib.PurePosixPath(member.name).name, files)
  except (tarfile.TarError, zipfile.BadZipFile, EOFError, gzip.BadGzipFile) as error:
    raise kit.DataMissing(
      f'{path} is no whole archive ({error}); download it again.'
    ) from error
  return archive.close()


def mlebench(public, private, as_published):
  made = ('training.csv', 'test.csv', 'randomPredictions.csv', 'test.tar.gz')
  files = {p.name: p for p in sorted(public.iterdir()) if p.name not in made}
  kit.copied(public, ['test.tar.gz'])
  files['test.tar.gz'] = public / 'test.tar.gz'
  if not as_published:
    files['test.tar.gz'] = without_labels(public / 'test.tar.gz')
  train = kit.texts(public / 'training.csv')
  return parts(train, kit.texts(private / 'test.csv'), files)


def raw(folder, as_published):
  rows = kit.texts(kit.original(folder, 'training.csv'))
  shown = [name for name in SOURCE.files[1:] if name != 'training4.tar.gz']
  files = kit.copied(folder, shown)
  kit.copied(folder, ['training4.tar.gz'])
  files['test.tar.gz'] = folder / 'training4.tar.gz'
  if not as_published:
    files['test.tar.gz'] = without_labels(folder / 'training4.tar.gz')
  with tarfile.open(files['test.tar.gz']) as tar:
    found = (re.search(r'(\d{4})\.zip$', name) for name in tar.getnames())
    hidden = rows['Id'].isin({name[1] for name in found if name})
  return parts(rows[~hidden], rows[hidden].sort_values('Id'), files)


if __name__ == '__main__':
  kit.prepare_from(
    __doc__, SOURCE, standin, mlebench, raw, leaks=True, packaged=PACKAGED
  )
