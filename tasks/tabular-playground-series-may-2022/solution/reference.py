"""Tabular Playground May 2022: letters of f_27 and signs, boosted trees."""

import pandas as pd
from sklearn.ensemble import GradientBoostingClassifier

train = pd.read_csv('data/train.csv')
test = pd.read_csv('data/test.csv')


def features(table):
  x = table.drop(columns=['id', 'f_27', 'target'], errors='ignore')
  for k in range(10):
    x[f'letter_{k}'] = table['f_27'].str[k].map(ord)
  x['letters'] = table['f_27'].map(lambda text: len(set(text)))
  for one, two in (('f_00', 'f_26'), ('f_24', 'f_30'), ('f_02', 'f_21')):
    x[f'{one}*{two}'] = (x[one] * x[two]).round(6)
  x['f_11-f_13'] = x['f_11'] - x['f_13']
  return x


model = GradientBoostingClassifier(
  n_estimators=150,
  max_depth=5,
  max_features=0.3,
  subsample=0.7,
  random_state=0,
)
model.fit(features(train), train['target'])
pred = model.predict_proba(features(test))[:, 1]

pd.DataFrame({'id': test['id'], 'target': pred.round(8)}).to_csv(
  'submission.csv', index=False
)
