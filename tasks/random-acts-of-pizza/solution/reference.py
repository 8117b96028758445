"""Requests for pizza: words of title and text beside all figures, logistic."""

import json

import numpy as np
import pandas as pd
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

with open('data/train.json') as file:
  train = pd.DataFrame(json.load(file))
with open('data/test.json') as file:
  test = pd.DataFrame(json.load(file))
figures = [
  c
  for c in test.select_dtypes('number').columns
  if not c.startswith('unix_timestamp')
]


def texts(table):
  return table['request_title'] + ' ' + table['request_text_edit_aware']


def numbers(table):
  x = np.log1p(table[figures].clip(lower=0))
  x['words'] = texts(table).str.split().str.len()
  return x.to_numpy()


words = TfidfVectorizer(ngram_range=(1, 2), min_df=10, sublinear_tf=True)
scaler = StandardScaler().fit(numbers(train))
x_train = words.fit_transform(texts(train)), scaler.transform(numbers(train))
x_test = words.transform(texts(test)), scaler.transform(numbers(test))
model = LogisticRegression(C=0.5, max_iter=500, tol=1e-6)
model.fit(
  hstack([x_train[0] * 2, csr_matrix(x_train[1] * 0.5)]).tocsr(),
  train['requester_received_pizza'].astype(int),
)
pred = model.predict_proba(
  hstack([x_test[0] * 2, csr_matrix(x_test[1] * 0.5)]).tocsr()
)[:, 1].round(8)

pd.DataFrame(
  {'request_id': test['request_id'], 'requester_received_pizza': pred}
).to_csv('submission.csv', index=False)
