"""Film reviews: runs of one to three words, logistic regression."""

import pandas as pd
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

train = pd.read_csv('data/train.csv')
test = pd.read_csv('data/test.csv')


def clean(table):
  # The ends of sentences are words, too: what is negated ends there.
  text = table['text'].str.replace('<br />', ' ', regex=False)
  return text.str.replace('.', ' endofit ', regex=False)


model = make_pipeline(
  TfidfVectorizer(
    ngram_range=(1, 3), min_df=2, sublinear_tf=True, token_pattern=r'\w+'
  ),
  LogisticRegression(C=20.0, max_iter=300, tol=1e-6),
)
model.fit(clean(train), train['label'])
pred = model.predict_proba(clean(test)).round(6)

submission = pd.DataFrame(pred, columns=['0', '1'])
submission.insert(0, 'idx', test['idx'])
submission.to_csv('submission.csv', index=False)
