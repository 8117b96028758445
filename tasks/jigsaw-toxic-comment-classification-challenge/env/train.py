"""Toxic comments: how many of a short list of words a comment has."""

import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

LABELS = (
  'toxic', 'severe_toxic', 'obscene', 'threat', 'insult', 'identity_hate'
)  # fmt: skip
WORDS = ('idiot', 'moron', 'fool', 'crap', 'hurt', 'you', 'stupid', '!')

train = pd.read_csv('data/train.csv', keep_default_na=False)
test = pd.read_csv('data/test.csv', keep_default_na=False)


def features(table):
  text = table['comment_text'].str.lower()
  return pd.DataFrame({w: text.str.count(w) for w in WORDS})


x_train, x_test = features(train), features(test)
submission = test[['id']].copy()
for label in LABELS:
  y_train = train[label]
  model = make_pipeline(LogisticRegression())
  model.fit(x_train, y_train)
  submission[label] = model.predict_proba(x_test)[:, 1].round(8)

submission.to_csv('submission.csv', index=False)
