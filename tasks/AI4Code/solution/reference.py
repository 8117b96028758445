"""Order of cells: the place of a text learned from its words and near code."""

import json

import numpy as np
import pandas as pd
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

orders = pd.read_csv('data/train_orders.csv')
sample = pd.read_csv('data/sample_submission.csv')


def cells(path):
  with open(path, encoding='utf-8') as f:
    record = json.load(f)
  return [
    (name, kind, record['source'][name])
    for name, kind in record['cell_type'].items()
  ]


# The place of each cell among the code cells, from 0 to 1.
texts, places = {'code': [], 'markdown': []}, {'code': [], 'markdown': []}
for name, order in zip(orders['id'], orders['cell_order']):
  found = {i: (kind, text) for i, kind, text in cells(f'data/train/{name}.json')}
  total = sum(kind == 'code' for kind, _ in found.values())
  before = 0
  for i in order.split():
    kind, text = found[i]
    places[kind].append(before / total)
    texts[kind].append(text)
    before += kind == 'code'
models = {}
for kind in texts:
  words = TfidfVectorizer(token_pattern=r'[A-Za-z]+', ngram_range=(1, 2), min_df=3)
  models[kind] = make_pipeline(words, Ridge(alpha=0.3, solver='lsqr', tol=1e-9))
  models[kind].fit(texts[kind], places[kind])


def names(text):
  return {w for w in text.replace('"', ' ').split() if '_' in w}


def ordered(given):
  code = [(i, text) for i, kind, text in given if kind == 'code']
  rest = [(i, text) for i, kind, text in given if kind == 'markdown']
  keys = [(k, i) for k, (i, _) in enumerate(code)]
  if not rest or not code:
    return [i for i, _, _ in given]
  # A text stands before the code cell whose step is the nearest to its own,
  # first among those that share a name with it.
  steps = models['code'].predict([t for _, t in code])
  steps = np.maximum.accumulate(steps).round(6)
  guesses = models['markdown'].predict([t for _, t in rest]).round(6)
  for guess, (i, text) in zip(guesses, rest):
    shared = np.array([len(names(text) & names(t)) for _, t in code])
    far = np.abs(steps - guess) - 0.15 * (shared > 0)
    at = int(np.argmin(far.round(6)))
    keys.append((at - 0.5, i))
  return [i for _, i in sorted(keys, key=lambda key: key[0])]


pred = [
  ' '.join(ordered(cells(f'data/test/{name}.json'))) for name in sample['id']
]
pd.DataFrame({'id': sample['id'], 'cell_order': pred}).to_csv(
  'submission.csv', index=False
)
