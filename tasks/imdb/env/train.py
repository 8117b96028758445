"""Film reviews: how many of a short list of words a review has."""

import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

WORDS = ('great', 'lovely', 'perfect', 'amazing', 'awful', 'boring', 'terrible')

train = pd.read_csv('data/train.csv')
test = pd.read_csv('data/test.csv')


def features(table):
  text = table['text'].str.lower()
  return pd.DataFrame({w: text.str.count(w) for w in WORDS})


x_train, x_test = features(train), features(test)
y_train = train['label']

model = make_pipeline(LogisticRegression(tol=1e-8))
model.fit(x_train, y_train)
pred = model.predict_proba(x_test).round(6)

submission = pd.DataFrame(pred, columns=['0', '1'])
submission.insert(0, 'idx', test['idx'])
submission.to_csv('submission.csv', index=False)
