"""Requests for pizza: length of the text and age of the account."""

import json

import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

with open('data/train.json') as file:
  train = pd.DataFrame(json.load(file))
with open('data/test.json') as file:
  test = pd.DataFrame(json.load(file))


def features(table):
  words = table['request_text_edit_aware'].str.split().str.len()
  age = table['requester_account_age_in_days_at_request']
  return pd.DataFrame({'words': words, 'age': age})


x_train, x_test = features(train), features(test)
y_train = train['requester_received_pizza'].astype(int)

model = make_pipeline(StandardScaler(), LogisticRegression(tol=1e-8))
model.fit(x_train, y_train)
pred = model.predict_proba(x_test)[:, 1].round(8)

pd.DataFrame(
  {'request_id': test['request_id'], 'requester_received_pizza': pred}
).to_csv('submission.csv', index=False)
