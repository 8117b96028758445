"""Spooky authors: probabilities from counts of the most frequent words."""

import pandas as pd
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

train = pd.read_csv('data/train.csv')
test = pd.read_csv('data/test.csv')
x_train, x_test = train['text'], test['text']
y_train = train['author']

model = make_pipeline(
  CountVectorizer(min_df=20), LogisticRegression(C=0.02, tol=1e-8)
)
model.fit(x_train, y_train)
pred = model.predict_proba(x_test)

submission = pd.DataFrame(pred, columns=model.classes_)
submission.insert(0, 'id', test['id'])
submission.to_csv('submission.csv', index=False)
