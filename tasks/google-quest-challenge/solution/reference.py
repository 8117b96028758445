"""Scores of questions and answers: words of each text, and how they are written."""

import re

import numpy as np
import pandas as pd
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

TEXTS = ('question_title', 'question_body', 'answer')

train = pd.read_csv('data/train.csv')
test = pd.read_csv('data/test.csv')
targets = list(pd.read_csv('data/sample_submission.csv').columns[1:])
every = pd.concat([train[name] for name in TEXTS]).fillna('')
counts = every.str.lower().str.findall('[a-z]+').explode().value_counts()
often = set(counts[counts >= 30].index)


def style(text):
  words = re.findall('[a-z]+', text.lower())
  strange = sum(word not in often for word in words)
  sentences = text.count('.') + 1
  return np.log1p(len(words)), strange / (len(words) + 1), sentences, strange


blocks = []
for name in TEXTS:
  a, b = train[name].fillna(''), test[name].fillna('')
  words = TfidfVectorizer(
    ngram_range=(1, 2), min_df=5, sublinear_tf=True, max_features=4000
  )
  blocks.append((words.fit_transform(a), words.transform(b)))
  scaler = StandardScaler()
  blocks.append((
    csr_matrix(scaler.fit_transform([style(t) for t in a]) / 2),
    csr_matrix(scaler.transform([style(t) for t in b]) / 2),
  ))  # fmt: skip
x_train, x_test = (hstack(side).tocsr() for side in zip(*blocks))

model = Ridge(alpha=3.0, solver='sparse_cg', tol=1e-8)
model.fit(x_train, train[targets])
pred = model.predict(x_test).round(6)

submission = pd.DataFrame(pred, columns=targets)
submission.insert(0, 'qa_id', test['qa_id'])
submission.to_csv('submission.csv', index=False)
