"""Prepares `amp-parkinsons-disease-progression-prediction`: ratings of later visits.

MLAgentBench's split: two patients are the test set, here one a half. In the stand-in
the test set has more patients, who have more or less of the disease at the start and
get worse faster or slower; some proteins tell how far it is. The time-series interface
of the original is left out: all test visits lie in one table.
"""

from __future__ import annotations

import hashlib
import random

import numpy as np
import pandas as pd

from jaxagent.tasks import kit

ID = 'amp-parkinsons-disease-progression-prediction'
SOURCE = kit.Source(
  id=ID,
  url=f'https://www.kaggle.com/competitions/{ID}/data',
  rules='of the competition, to be accepted on its page (Kaggle)',
  files=(f'{ID}.zip (or its four tables of training data)',),
  mlebench=False,
)
CLINICAL, PROTEINS, PEPTIDES, MORE = (
  'train_clinical_data.csv', 'train_proteins.csv', 'train_peptides.csv',
  'supplemental_clinical_data.csv',
)  # fmt: skip
MONTHS = (0, 3, 6, 12, 18, 24, 30, 36, 48, 60, 72, 84, 96, 108)
WAITS = (0, 6, 12, 24)
MEDICATION = 'upd23b_clinical_state_on_medication'
ACIDS = 'ACDEFGHIKLMNPQRSTVWY'


def visits(rng, patients):
  """Visits with ratings, and how far the disease is at each, [V]."""
  rows, stages = [], []
  for patient in patients:
    start, speed = rng.normal(0, 0.8), rng.uniform(0.002, 0.02)
    for month in MONTHS:
      if rng.rand() < 0.4:
        continue
      stage = start + speed * month
      parts = np.array((6, 7, 22, 1.5)) * np.exp(
        np.array((0.45, 0.55, 0.45, 0.9)) * stage + rng.normal(0, 0.15, 4)
      )
      ratings = np.round(parts).astype(int).astype(object)
      if rng.rand() < 0.4:
        ratings[3] = ''
      medicine = ('', 'On', 'Off')[rng.choice(3, p=(0.5, 0.3, 0.2))]
      rows.append((f'{patient}_{month}', patient, month, *ratings, medicine))
      stages.append(stage)
  ratings = [f'updrs_{k}' for k in (1, 2, 3, 4)]
  names = ['visit_id', 'patient_id', 'visit_month', *ratings, MEDICATION]
  return pd.DataFrame(rows, columns=names).astype(str), np.array(stages)


def measured(rng, clinical, stages):
  """Proteins and peptides of half of the visits."""
  names = ['P' + i for i in kit.opaque_ids(rng, 24, 5, '0123456789')]
  peptides = [
    (name, ''.join(ACIDS[k] for k in rng.randint(20, size=9)))
    for name in names for _ in range(2)
  ]  # fmt: skip
  weights = rng.normal(0, 0.25, 24) * (np.arange(24) % 2)
  base = rng.uniform(9, 16, 24)
  left, right = [], []
  for visit, stage in zip(clinical.to_dict('records'), stages):
    if rng.rand() < 0.5:
      continue
    head = visit['visit_id'], visit['visit_month'], visit['patient_id']
    level = base + weights * stage + rng.normal(0, 0.2, 24)
    level = np.repeat(level, 2) + rng.normal(0, 0.05, 48)
    for k, (name, peptide) in enumerate(peptides):
      if rng.rand() < 0.93:
        right.append((*head, name, peptide, f'{np.exp(level[k]):.1f}'))
      if k % 2 and rng.rand() < 0.95:
        left.append((*head, name, f'{np.exp(level[k - 1 : k + 1]).sum():.1f}'))
  keys = ['visit_id', 'visit_month', 'patient_id', 'UniProt']
  return (
    pd.DataFrame(left, columns=[*keys, 'NPX']),
    pd.DataFrame(right, columns=[*keys, 'Peptide', 'PeptideAbundance']),
  )


def standin():
  rng = np.random.RandomState(126)
  patients = 100 + rng.choice(65000, 260, replace=False)
  clinical, stages = visits(rng, patients[:160])
  proteins, peptides = measured(rng, clinical, stages)
  more, _ = visits(rng, patients[160:])
  hidden = {str(p) for p in patients[:60]}
  return parts(clinical, proteins, peptides, more, hidden)


def questions(clinical):
  """Rows to be predicted, in the source's order, and what the ratings were."""
  truth = clinical.set_index('visit_id')
  rows = []
  for wait in WAITS:
    for k in (1, 2, 3, 4):
      for patient, month in zip(
        clinical['patient_id'], clinical['visit_month']
      ):
        later = f'{patient}_{int(month) + wait}'
        value = truth[f'updrs_{k}'].get(later, '')
        if value != '' and int(month) + wait <= MONTHS[-1]:
          name = f'{patient}_{month}_updrs_{k}_plus_{wait}_months'
          rows.append((name, value, month))
  return pd.DataFrame(rows, columns=['prediction_id', 'rating', 'visit_month'])


def parts(clinical, proteins, peptides, more, hidden):
  """hidden: patients of the test set."""
  kept, tested = (
    [
      t[t['patient_id'].isin(hidden) == is_test]
      for t in (clinical, proteins, peptides)
    ]
    for is_test in (False, True)
  )
  visit, *_ = tested
  test = pd.concat(
    [
      visit[['visit_id', 'patient_id', 'visit_month']].assign(
        row_id=visit['visit_id'] + f'_updrs_{k}', updrs_test=f'updrs_{k}'
      )
      for k in (1, 2, 3, 4)
    ]
  )
  rows = questions(visit)
  answers = rows[['prediction_id', 'rating']]
  groups = rows['prediction_id'].str.split('_').str[0]
  if len(hidden) == 2:  # one a half; which of them the ratings decide
    first = sorted(hidden)[
      hashlib.sha256(answers.to_csv().encode()).digest()[0] % 2
    ]
    answers = answers.assign(split=np.where(groups == first, *kit.SPLITS))
  files = dict(zip((CLINICAL, PROTEINS, PEPTIDES), kept))
  folder = 'example_test_files'
  return kit.Parts(
    {
      **files,
      MORE: more[~more['patient_id'].isin(hidden)],
      f'{folder}/test.csv': test,
      f'{folder}/test_proteins.csv': tested[1],
      f'{folder}/test_peptides.csv': tested[2],
      f'{folder}/sample_submission.csv': rows.assign(rating=0),
    },
    answers,
    groups=list(groups),
  )


def raw(folder):
  names = CLINICAL, PROTEINS, PEPTIDES, MORE
  tables = [kit.texts(kit.original(folder, name)) for name in names]
  # As MLAgentBench draws them.
  patients = list(tables[0]['patient_id'].unique())
  return parts(*tables, set(random.Random(42).sample(patients, 2)))


if __name__ == '__main__':
  kit.prepare_from(__doc__, SOURCE, standin, None, raw)
