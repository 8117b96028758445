"""Insults: how many of a short list of words a comment has."""

import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

WORDS = ('idiot', 'moron', 'fool', 'loser', 'liar', 'stupid', 'you')

train = pd.read_csv('data/train.csv', keep_default_na=False)
test = pd.read_csv('data/test.csv', keep_default_na=False)


def features(table):
  text = table['Comment'].str.lower()
  return pd.DataFrame({w: text.str.count(w) for w in WORDS})


x_train, x_test = features(train), features(test)
y_train = train['Insult']

model = make_pipeline(LogisticRegression())
model.fit(x_train, y_train)
pred = model.predict_proba(x_test)[:, 1]

pd.DataFrame({'Insult': pred.round(8), 'Comment': test['Comment']}).to_csv(
  'submission.csv', index=False
)
