"""Toxic comments: counts of the frequent words, whomever they name."""

import pandas as pd
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

train = pd.read_csv('data/train.csv', keep_default_na=False)
test = pd.read_csv('data/test.csv', keep_default_na=False)
x_train, x_test = train['comment_text'], test['comment_text']
y_train = train['target'] >= 0.5

model = make_pipeline(
  CountVectorizer(min_df=30), LogisticRegression(C=0.02, tol=1e-8)
)
model.fit(x_train, y_train)
pred = model.predict_proba(x_test)[:, 1].round(6)

pd.DataFrame({'id': test['id'], 'prediction': pred}).to_csv(
  'submission.csv', index=False
)
