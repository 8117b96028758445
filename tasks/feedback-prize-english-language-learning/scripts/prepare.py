"""Prepares `feedback-prize-english-language-learning`: six scores of an essay.

MLAgentBench's split: of the shuffled training set the last 2 % are the test set. The
stand-in's six scores follow one latent quality (jaxagent/tasks/essays.py), each with
a part of its own.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from jaxagent.tasks import essays, kit

SOURCE = kit.Source(
  id='feedback-prize-english-language-learning',
  url='https://www.kaggle.com/competitions/'
  'feedback-prize-english-language-learning/data',
  rules='of the competition, to be accepted on its page (Kaggle)',
  files=('feedback-prize-english-language-learning.zip (or train.csv)',),
  mlebench=False,
)
TARGETS = (
  'cohesion', 'syntax', 'vocabulary', 'phraseology', 'grammar', 'conventions',
)  # fmt: skip


def standin():
  rng = np.random.RandomState(124)
  count, cut = 2600, 1700
  quality = rng.normal(0, 1, count)
  table = pd.DataFrame(
    {
      'text_id': kit.opaque_ids(rng, count, 12, '0123456789ABCDEF'),
      'full_text': [
        essays.essay(rng, q, topic=rng.randint(5)) for q in quality
      ],
    }
  )
  for mean, target in zip((3.1, 3.0, 3.2, 3.1, 3.0, 3.1), TARGETS):
    score = mean + 0.55 * quality + rng.normal(0, 0.25, count)
    table[target] = np.clip(np.round(score * 2) / 2, 1, 5)
  return parts(table[:cut], table[cut:].reset_index(drop=True))


def parts(train, test):
  return kit.labelled(
    train, test, 'text_id', TARGETS, dict.fromkeys(TARGETS, 3.0)
  )


def raw(folder):
  table = kit.texts(kit.original(folder, 'train.csv'))
  table = table.sample(frac=1, random_state=42).reset_index(drop=True)
  return parts(*kit.last_rows(table, 0.02))


if __name__ == '__main__':
  kit.prepare_from(__doc__, SOURCE, standin, None, raw)
