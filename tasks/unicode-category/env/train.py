"""Guesses the general category of a character from its name."""

import pandas as pd
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline

train = pd.read_csv('data/train.csv', keep_default_na=False)
test = pd.read_csv('data/test.csv', keep_default_na=False)
x_train = train['text']
x_test = test['text']
y_train = train['category']

model = make_pipeline(TfidfVectorizer(max_features=55), MultinomialNB())
model.fit(x_train, y_train)
pred = model.predict(x_test)

pd.DataFrame({'id': test['id'], 'category': pred}).to_csv(
  'submission.csv', index=False
)
