"""Handwritten digits: a first, simple classifier."""

import pandas as pd
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline

train = pd.read_csv('data/train.csv')
test = pd.read_csv('data/test.csv')
x_train = train.drop(columns=['id', 'label'])
x_test = test.drop(columns=['id'])
y_train = train['label']

model = make_pipeline(GaussianNB())
model.fit(x_train, y_train)
pred = model.predict(x_test)

pd.DataFrame({'id': test['id'], 'label': pred}).to_csv(
  'submission.csv', index=False
)
