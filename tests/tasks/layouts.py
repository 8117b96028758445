"""Small folders laid out as mle-bench and the original downloads are.

Their rows are those of a stand-in's training set, which has labels: a test knows
which of them must be held out, and what the answers are.
"""

from __future__ import annotations

import pathlib
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
  train.to_csv(public / 'train.csv', index=False)
  test.drop(columns=hidden).to_csv(public / 'test.csv', index=False)
  file = 'answers.csv' if name.startswith('learning-agency') else 'test.csv'
  answers.to_csv(private / file, index=False)
  for part in ('images', 'train', 'test'):
    if (standin / part).is_dir():
      (public / part).mkdir()
      (public / part / 'one').write_bytes(b'as it was')
  return test


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
  return table.reset_index(drop=True)
