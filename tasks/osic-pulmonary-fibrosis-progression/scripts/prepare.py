"""Prepares `osic-pulmonary-fibrosis-progression`: how a patient's lungs decline.

A row of the answers is a patient's week; of those that were measured the last
three of a patient count, and most of the asked weeks were not measured (empty
cells). The stand-in's patients decline at a rate that their first measurement, the
habit of smoking and the grey share of three small scans tell in part.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from jaxagent.tasks import kit, pictures

SOURCE = kit.Source(
  id='osic-pulmonary-fibrosis-progression',
  url='https://www.kaggle.com/c/osic-pulmonary-fibrosis-progression/data',
  rules='of the competition, to be accepted on its page (Kaggle)',
  files=('train.csv', 'train (a folder of scans by patient)'),
)
COLUMNS = ['Patient', 'Weeks', 'FVC', 'Percent', 'Age', 'Sex', 'SmokingStatus']
HABITS = ('Ex-smoker', 'Never smoked', 'Currently smokes')
SIZE = 24


def scan(rng, grey, number):
  """One slice as a DICOM file without compression, 12 bits a pixel."""
  lungs = pictures.disc(SIZE, 12, 6, 5.5) | pictures.disc(SIZE, 12, 17, 5.5)
  sick = pictures.ground(rng, SIZE, 1, 1.5) < np.sqrt(2) * (2 * grey - 1)
  values = np.where(lungs, np.where(sick, 700, 150), 1050)
  values = values + rng.normal(0, 25, (SIZE, SIZE))
  return pictures.dicom(values.round().clip(0, 4095).astype(np.uint16), number)


def patient(rng, name):
  """(rows of a patient, files)."""
  sex = 'Male' if rng.rand() < 0.79 else 'Female'
  age, habit = rng.randint(52, 85), rng.randint(3)
  normal = (27.6 if sex == 'Male' else 21.8) * 1000 / 8 - 14.0 * (age - 60)
  grey = rng.uniform(0.05, 0.8)
  start = normal * rng.uniform(0.55, 1.0)
  slope = -0.8 - 13.0 * grey**1.5 - (0.0, -0.6, 1.2)[habit] + rng.normal(0, 0.8)
  first = rng.randint(-3, 12)
  weeks = first + np.cumsum([0, *rng.randint(2, 6, 4), *rng.randint(6, 15, 4)])
  rows = []
  for week in weeks:
    fvc = int(round(max(700, start + slope * (week - first) + rng.normal(0, 55))))
    percent = round(fvc / normal * 100, 6)
    rows.append([name, int(week), fvc, percent, age, sex, HABITS[habit]])
  files = {f'{name}/{k}.dcm': scan(rng, grey, k) for k in (1, 2, 3)}
  return rows, files


def standin():
  rng = np.random.RandomState(127)
  names = [f'ID00{i}' for i in kit.opaque_ids(rng, 200, 21, '0123456789')]
  rows, files = [], {}
  for name in names:
    own, scans = patient(rng, name)
    rows += own
    files.update(scans)
  table = pd.DataFrame(rows, columns=COLUMNS)
  known = table['Patient'].isin(set(names[80:]))
  return divided(table[known], table[~known], files)


def divided(train, test, scans):
  """scans: path below the folder of the patients -> bytes, file or folder."""
  first = test.assign(week=test['Weeks'].astype(int)).sort_values('week')
  first = first.groupby('Patient').head(1).sort_values('Patient')[COLUMNS]
  weeks = test['Weeks'].astype(int)
  asked = pd.DataFrame(
    [
      [f'{name}_{week}', name, week]
      for name in test['Patient'].unique()
      for week in range(weeks.min(), weeks.max() + 1)
    ],
    columns=['Patient_Week', 'Patient', 'Weeks'],
  )
  known = test.assign(Weeks=weeks).drop_duplicates(['Patient', 'Weeks'])
  answers = asked.merge(known, how='left', on=['Patient', 'Weeks'])
  hidden = set(test['Patient'])
  files = {
    f'{"test" if name.split("/")[0] in hidden else "train"}/{name}': content
    for name, content in scans.items()
  }
  return tables(train, first, answers.assign(Confidence=100), files)


def tables(train, test, answers, files):
  sample = answers[['Patient_Week']].assign(FVC=2000, Confidence=100)
  columns = ['Patient_Week', 'Patient', 'Weeks', 'FVC', 'Confidence']
  return kit.Parts(
    {
      'train.csv': train,
      'test.csv': test,
      'sample_submission.csv': sample,
      **files,
    },
    answers[columns],
    groups=list(answers['Patient']),
  )


def mlebench(public, private):
  return tables(
    kit.texts(public / 'train.csv'),
    kit.texts(public / 'test.csv'),
    kit.texts(private / 'test.csv'),
    kit.copied(public, ['train', 'test']),
  )


def raw(folder):
  table = kit.texts(kit.original(folder, 'train.csv'))
  names = pd.DataFrame({'name': sorted(table['Patient'].unique())})
  parts = [list(part['name']) for part in kit.hold_out(names)]
  train, test = (
    pd.concat([table[table['Patient'] == name] for name in part])
    for part in parts
  )
  home = kit.unpacked(folder, 'train')
  scans = {name: home / name for part in parts for name in part}
  return divided(train, test, scans)


if __name__ == '__main__':
  kit.prepare_from(__doc__, SOURCE, standin, mlebench, raw)
