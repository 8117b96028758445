"""Scores of essays: length, repetition, links, rare and misspelt words; ridge."""

import re

import numpy as np
import pandas as pd
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

TARGETS = [
  'cohesion', 'syntax', 'vocabulary', 'phraseology', 'grammar', 'conventions'
]  # fmt: skip

train = pd.read_csv('data/train.csv')
test = pd.read_csv('data/test.csv')
every = pd.concat([train['full_text'], test['full_text']])
counts = every.str.lower().str.findall('[a-z]+').explode().value_counts()
often = set(counts[counts >= 40].index)
LINKS = set(
  'however therefore moreover although because furthermore example addition '
  'hand result conclusion contrast since while'.split()
)


def features(text):
  tokens = re.findall('[a-z]+', text.lower())
  sentences = [s.strip().lower() for s in re.split(r'[.!?]', text) if s.strip()]
  n, m = max(len(tokens), 1), max(len(sentences), 1)
  strange = sum(t not in often for t in tokens)
  links = sum(t in LINKS for t in tokens)
  long = sum(len(t) > 9 for t in tokens)
  return [
    np.log(n), m, n / m, len(set(sentences)) / m, len(set(tokens)),
    strange / n, links / m, links, long / m, long, text.count(',') / m,
  ]  # fmt: skip


x_train, x_test = (
  np.array([features(t) for t in table['full_text']]).round(8)
  for table in (train, test)
)
model = make_pipeline(
  StandardScaler(), PolynomialFeatures(2), RidgeCV(np.logspace(-1, 4, 11))
)
model.fit(x_train, train[TARGETS])
pred = model.predict(x_test).clip(1, 5).round(6)

submission = pd.DataFrame(pred, columns=TARGETS)
submission.insert(0, 'text_id', test['text_id'])
submission.to_csv('submission.csv', index=False)
