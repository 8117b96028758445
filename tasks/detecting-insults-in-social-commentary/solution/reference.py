"""Insults: words in pairs and character n-grams, logistic regression."""

import pandas as pd
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline, make_union

train = pd.read_csv('data/train.csv', keep_default_na=False)
test = pd.read_csv('data/test.csv', keep_default_na=False)


def clean(table):
  text = table['Comment'].str.lower().str.replace(r'\\n|\\xa0', ' ', regex=True)
  return text.str.replace('*', 'o', regex=False)


model = make_pipeline(
  make_union(
    TfidfVectorizer(ngram_range=(1, 3), min_df=2, token_pattern=r'\w+'),
    TfidfVectorizer(analyzer='char_wb', ngram_range=(3, 5), min_df=3),
  ),
  LogisticRegression(C=6.0, max_iter=300, tol=1e-6),
)
model.fit(clean(train), train['Insult'])
pred = model.predict_proba(clean(test))[:, 1]

pd.DataFrame({'Insult': pred.round(8), 'Comment': test['Comment']}).to_csv(
  'submission.csv', index=False
)
