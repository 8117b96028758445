"""Prepares `learning-agency-lab-automated-essay-scoring-2`: essays scored 1 to 6.

The stand-in's essays have a latent quality (jaxagent/tasks/essays.py); they hold
commas, quotes and empty lines, as pupils' essays do.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from jaxagent.tasks import essays, kit

SOURCE = kit.Source(
  id='learning-agency-lab-automated-essay-scoring-2',
  url='https://www.kaggle.com/competitions/'
  'learning-agency-lab-automated-essay-scoring-2/data',
  rules='of the competition, to be accepted on its page (Kaggle)',
  files=('learning-agency-lab-automated-essay-scoring-2.zip (or train.csv)',),
)
# Of the latent quality, between the scores: shares as in the real training set.
CUTS = (-1.5, -0.5, 0.35, 1.2, 2.0)


def standin():
  rng = np.random.RandomState(105)
  count = 2600
  quality = rng.normal(0, 1, count)
  graded = quality + rng.normal(0, 0.25, count)  # readers differ
  table = pd.DataFrame(
    {
      'essay_id': kit.opaque_ids(rng, count, 7),
      'full_text': [
        essays.essay(rng, q, topic=rng.randint(5)) for q in quality
      ],
      'score': 1 + np.digitize(graded, CUTS),
    }
  )
  return parts(table[:1600], table[1600:].reset_index(drop=True))


def parts(train, test):
  tables = kit.labelled(
    train, test, 'essay_id', ['score'], {'score': 1}, stratify=True
  )
  # Scores at random, as the competition's sample has: one that is constant has no
  # kappa.
  sample = tables.public['sample_submission.csv']
  sample['score'] = np.random.RandomState(42).randint(1, 7, size=len(sample))
  return tables


def mlebench(public, private):
  paths = public / 'train.csv', private / 'answers.csv'
  return parts(*(kit.texts(path) for path in paths))


def raw(folder):
  return parts(*kit.hold_out(kit.texts(kit.original(folder, 'train.csv'))))


if __name__ == '__main__':
  kit.prepare_from(__doc__, SOURCE, standin, mlebench, raw)
