"""Guesses a script from the words of a character name."""

import pandas as pd
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import BernoulliNB
from sklearn.pipeline import make_pipeline

train = pd.read_csv('data/train.csv', keep_default_na=False)
test = pd.read_csv('data/test.csv', keep_default_na=False)
x_train = train['text']
x_test = test['text']
y_train = train['script']

model = make_pipeline(CountVectorizer(max_features=98), BernoulliNB())
model.fit(x_train, y_train)
pred = model.predict(x_test)

pd.DataFrame({'id': test['id'], 'script': pred}).to_csv(
  'submission.csv', index=False
)
