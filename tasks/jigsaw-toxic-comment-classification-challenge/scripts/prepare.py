"""Prepares `jigsaw-toxic-comment-classification-challenge`: six kinds of rudeness.

The test set is Kaggle's own, two fifths of whose rows have -1 for every label: they
stand in the test set and do not count. With `--packages DIR` the stand-in's insults, and
its words of praise and blame, are those of the lexicon that comes with vaderSentiment.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from jaxagent.tasks import comments, kit, language, lexicon

SOURCE = kit.Source(
  id='jigsaw-toxic-comment-classification-challenge',
  url='https://www.kaggle.com/c/'
  'jigsaw-toxic-comment-classification-challenge/data',
  rules='of the competition, to be accepted on its page (Kaggle)',
  files=('train.csv.zip', 'test.csv.zip', 'test_labels.csv.zip'),
)
LABELS = (
  'toxic', 'severe_toxic', 'obscene', 'threat', 'insult', 'identity_hate',
)  # fmt: skip
# How likely a rude comment is rude in this way.
KINDS = {'insult': 0.6, 'obscene': 0.5, 'threat': 0.15, 'identity_hate': 0.2}


def row(rng, words=language.LEXICON):
  """(text, the six labels)."""
  kinds = []
  if rng.rand() < 0.25:
    kinds = [kind for kind, odds in KINDS.items() if rng.rand() < odds]
  severe = len(kinds) > 0 and rng.rand() < 0.2
  text = comments.comment(rng, kinds, loud=severe, words=words)
  found = {'toxic': bool(kinds), 'severe_toxic': severe}
  labels = [int(found.get(name, name in kinds)) for name in LABELS]
  if rng.rand() < 0.01:  # raters differ
    labels[0] = 1 - labels[0] if not any(labels[1:]) else 1
  return text, *labels


def standin(files=None):
  rng = np.random.RandomState(120)
  words = lexicon.words(files, every=4, strength=(1.0, 1.3))
  count, cut = 8000, 4000
  table = pd.DataFrame(
    [row(rng, words) for _ in range(count)], columns=['comment_text', *LABELS]
  )
  table.insert(0, 'id', kit.opaque_ids(rng, count, 16))
  test = table[cut:].reset_index(drop=True)
  test.loc[rng.rand(len(test)) < 0.4, list(LABELS)] = -1
  return parts(table[:cut], test[['id', 'comment_text']], test)


def parts(train, test, labels):
  answers = test[['id']].merge(labels[['id', *LABELS]], on='id', how='left')
  values = answers[list(LABELS)].astype(int)
  rarest = values.sum().sort_values(kind='stable').index
  # A row's rarest label, so that each half has some of each.
  kinds = np.select([values[c] == 1 for c in rarest], list(rarest), 'none')
  kinds = np.where(values['toxic'] < 0, 'not counted', kinds)
  return kit.Parts(
    {
      'train.csv': train,
      'test.csv': test,
      'sample_submission.csv': test[['id']].assign(
        **dict.fromkeys(LABELS, 0.5)
      ),
    },
    answers,
    groups=list(answers['id']),
    classes=kit.frequent(kinds),
  )


def mlebench(public, private):
  paths = public / 'train.csv', public / 'test.csv', private / 'test.csv'
  return parts(*(kit.texts(path) for path in paths))


def raw(folder):
  names = 'train.csv', 'test.csv', 'test_labels.csv'
  return parts(*(kit.texts(kit.original(folder, name)) for name in names))


if __name__ == '__main__':
  kit.prepare_from(
    __doc__, SOURCE, standin, mlebench, raw, packaged=lexicon.PACKAGED
  )
