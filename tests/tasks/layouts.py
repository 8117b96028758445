"""Small folders laid out as mle-bench and the original downloads are.

Their rows are those of a stand-in's training set, which has labels: a test knows
which of them must be held out, and what the answers are.
"""

from __future__ import annotations

import io
import pathlib
import pickle
import tarfile
import zipfile

import numpy as np
import pandas as pd

ROWS, HIDDEN = 260, 80
# Of the target in mle-bench's private file, where it is not as in train.csv.
ONE_HOT = {
  'spooky-author-identification': 'author',
  'leaf-classification': 'species',
}
INSULTS = 'detecting-insults-in-social-commentary'
NOMAD = 'nomad2018-predict-transparent-conductors'
TOXIC = 'jigsaw-toxic-comment-classification-challenge'
BIAS = 'jigsaw-unintended-bias-in-toxicity-classification'
CHAII = 'chaii-hindi-and-tamil-question-answering'
QUEST = 'google-quest-challenge'
# Column of train.csv -> the same in mle-bench's answers.
RENAMED = {
  BIAS: {'target': 'toxicity'},
  CHAII: {'answer_text': 'PredictionString'},
}


def cells(path: pathlib.Path) -> pd.DataFrame:
  return pd.read_csv(path, dtype=str, keep_default_na=False, na_values=[])


def _zip(path: pathlib.Path, files: dict[str, bytes]) -> None:
  with zipfile.ZipFile(path, 'w') as archive:
    for name, data in files.items():
      archive.writestr(name, data)


def _csv(table: pd.DataFrame) -> bytes:
  return table.to_csv(index=False).encode()


def lay_out_mlebench(
  name: str, standin: pathlib.Path, folder: pathlib.Path
) -> pd.DataFrame:
  """Writes NAME/prepared/{public,private}; returns the labelled test rows."""
  table = cells(standin / 'train.csv')[: ROWS + HIDDEN]
  train, test = table[:ROWS], table[ROWS:].reset_index(drop=True)
  public = folder / name / 'prepared/public'
  private = folder / name / 'prepared/private'
  for path in (public, private):
    path.mkdir(parents=True)
  if name in ONE_HOT:
    hidden = [ONE_HOT[name]]
    sample = cells(standin / 'sample_submission.csv')
    answers = test[['id']].copy()
    for column in sample.columns[1:]:
      answers[column] = (test[hidden[0]] == column).astype(float)
  else:
    hidden = [c for c in table.columns if c not in cells(standin / 'test.csv')]
    answers = test
  if name == INSULTS:
    answers = test.assign(Usage='PrivateTest')
  if name in RENAMED:
    answers = test.rename(columns=RENAMED[name])
  if name == CHAII:
    answers = answers[['id', 'PredictionString']]
  if name == QUEST:
    answers = test[['qa_id', *hidden]]
  if name == BIAS:  # of the public and private board
    answers = answers.assign(split='private')
  train.to_csv(public / 'train.csv', index=False)
  test.drop(columns=hidden).to_csv(public / 'test.csv', index=False)
  other = name.startswith(('learning-agency', 'lmsys'))
  file = 'answers.csv' if other else 'test.csv'
  answers.to_csv(private / file, index=False)
  for part in ('images', 'train', 'test'):
    if (standin / part).is_dir():
      (public / part).mkdir()
      (public / part / 'one').write_bytes(b'as it was')
  return test.rename(columns=RENAMED.get(name, {}))


def lay_out_raw(
  name: str, standin: pathlib.Path, folder: pathlib.Path
) -> pd.DataFrame:
  """Writes the original files; returns all their labelled rows in their order."""
  folder.mkdir()
  table = cells(standin / 'train.csv')[: ROWS * 2]
  if name == INSULTS:
    test = table[ROWS:].assign(Usage='PrivateTest')
    table[:ROWS].to_csv(folder / 'train.csv', index=False)
    test.to_csv(folder / 'test_with_solutions.csv', index=False)
    return table
  if name in (TOXIC, BIAS):
    test = table[ROWS:].rename(columns=RENAMED.get(name, {}))
    files = {'train': table[:ROWS], 'test_private_expanded': test}
    if name == TOXIC:
      shown = test[['id', 'comment_text']]
      labels = test.drop(columns='comment_text')
      files = {'train': table[:ROWS], 'test': shown, 'test_labels': labels}
    for part, rows in files.items():
      _zip(folder / f'{part}.csv.zip', {f'{part}.csv': _csv(rows)})
    return table.rename(columns=RENAMED.get(name, {}))
  if name == 'leaf-classification':
    rng = np.random.RandomState(0)  # of each species one at least
    table = cells(standin / 'train.csv').iloc[rng.permutation(990)]
    files = {f'images/{i}.jpg': f'leaf {i}'.encode() for i in table['id']}
    _zip(folder / 'images.zip', files)
  if name == NOMAD:
    table['id'] = [str(k) for k in range(1, len(table) + 1)]
    files = {
      f'train/{i}/geometry.xyz': f'crystal {i}'.encode() for i in table['id']
    }
    _zip(folder / 'train.zip', files)
  _zip(folder / 'train.csv.zip', {'train.csv': _csv(table)})
  return table.reset_index(drop=True).rename(columns=RENAMED.get(name, {}))


SALT = 'tgs-salt-identification-challenge'


def lay_out_salt(
  standin: pathlib.Path, mlebench: pathlib.Path, raw: pathlib.Path
) -> pd.DataFrame:
  """Writes both layouts of the salt images; returns all labelled rows."""
  table = cells(standin / 'train.csv')[:120]
  images = {
    f'{part}/{i}.png': (standin / f'train/{part}/{i}.png').read_bytes()
    for i in table['id']
    for part in ('images', 'masks')
  }
  raw.mkdir()
  _zip(
    raw / 'competition_data.zip',
    {
      'competition_data/train.csv': _csv(table),
      **{f'competition_data/train/{k}': v for k, v in images.items()},
    },
  )
  depths = table[['id']].assign(z='7')
  (raw / 'depths.csv').write_bytes(_csv(depths))
  public = mlebench / SALT / 'prepared/public'
  private = mlebench / SALT / 'prepared/private'
  private.mkdir(parents=True)
  for part in ('train/images', 'train/masks', 'test/images'):
    (public / part).mkdir(parents=True)
  for row, i in enumerate(table['id']):
    part = 'train' if row < 80 else 'test'
    path = public / f'{part}/images/{i}.png'
    path.write_bytes(images[f'images/{i}.png'])
    if part == 'train':
      path = public / f'train/masks/{i}.png'
      path.write_bytes(images[f'masks/{i}.png'])
  table[:80].to_csv(public / 'train.csv', index=False)
  depths[:80].to_csv(public / 'depths.csv', index=False)
  table[80:].to_csv(private / 'test.csv', index=False)
  return table


def lay_out_notebooks(
  standin: pathlib.Path, mlebench: pathlib.Path, raw: pathlib.Path
) -> tuple[pd.DataFrame, pd.DataFrame]:
  """Writes both layouts of AI4Code; returns the orders and the ancestors."""
  orders = cells(standin / 'train_orders.csv')[:150]
  ancestors = cells(standin / 'train_ancestors.csv')
  ancestors = ancestors[ancestors['id'].isin(set(orders['id']))]
  files = {i: (standin / f'train/{i}.json').read_bytes() for i in orders['id']}
  raw.mkdir()
  _zip(
    raw / 'AI4Code.zip',
    {
      'train_orders.csv': _csv(orders),
      'train_ancestors.csv': _csv(ancestors),
      'test/other.json': b'{}',
      **{f'train/{i}.json': data for i, data in files.items()},
    },
  )
  public = mlebench / 'AI4Code/prepared/public'
  private = mlebench / 'AI4Code/prepared/private'
  private.mkdir(parents=True)
  for part in ('train', 'test'):
    (public / part).mkdir(parents=True)
  train, test = orders[:100], orders[100:]
  for part, table in (('train', train), ('test', test)):
    for i in table['id']:
      (public / f'{part}/{i}.json').write_bytes(files[i])
  train.to_csv(public / 'train_orders.csv', index=False)
  known = ancestors[ancestors['id'].isin(set(train['id']))]
  known.to_csv(public / 'train_ancestors.csv', index=False)
  test.to_csv(private / 'test_orders.csv', index=False)
  return orders, ancestors


def lay_out_batches(folder: pathlib.Path) -> tuple[np.ndarray, np.ndarray]:
  """Writes CIFAR-10's archive of pickles; returns its test images and labels."""
  rng = np.random.RandomState(0)
  folder.mkdir()
  with tarfile.open(folder / 'cifar-10-python.tar.gz', 'w:gz') as tar:
    for name in (*(f'data_batch_{k}' for k in range(1, 6)), 'test_batch'):
      images = rng.randint(0, 256, (60, 32, 32, 3)).astype(np.uint8)
      labels = rng.permutation(np.arange(60) % 10)
      record = {
        b'batch_label': b'a batch',
        b'labels': labels.tolist(),
        b'data': images.transpose(0, 3, 1, 2).reshape(60, -1),
      }
      data = pickle.dumps(record, protocol=2)
      member = tarfile.TarInfo(f'cifar-10-batches-py/{name}')
      member.size = len(data)
      tar.addfile(member, io.BytesIO(data))
  return images, labels
