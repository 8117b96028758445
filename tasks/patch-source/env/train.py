"""Tells patches of two photographs apart: a first linear model."""

import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline


train = pd.read_csv('data/train.csv')
test = pd.read_csv('data/test.csv')
x_train = train.drop(columns=['id', 'china'])
x_test = test.drop(columns=['id'])
y_train = train['china']

model = make_pipeline(LogisticRegression(C=0.001, max_iter=200))
model.fit(x_train, y_train)
pred = model.predict_proba(x_test)[:, 1]

pd.DataFrame({'id': test['id'], 'china': pred}).to_csv(
  'submission.csv', index=False
)
