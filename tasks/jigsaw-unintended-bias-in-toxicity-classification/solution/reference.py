"""Toxic comments: n-grams, without the words that go with a group; balanced."""

import numpy as np
import pandas as pd
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline, make_union

GROUPS = (
  'male', 'female', 'homosexual_gay_or_lesbian', 'christian', 'jewish',
  'muslim', 'black', 'white', 'psychiatric_or_mental_illness',
)  # fmt: skip

train = pd.read_csv('data/train.csv')
test = pd.read_csv('data/test.csv')
asked = train[train[GROUPS[0]].notna()]

# Words that stand mostly where readers saw a group.
counter = CountVectorizer(binary=True, min_df=5)
counts = counter.fit_transform(asked['comment_text'])
words = counter.get_feature_names_out()
every = np.asarray(counts.sum(axis=0)).ravel()
names = set()
for group in GROUPS:
  with_it = np.asarray(counts[(asked[group] >= 0.5).to_numpy()].sum(axis=0))
  names |= set(words[with_it.ravel() > 0.8 * every])

analyzers = (
  TfidfVectorizer(
    ngram_range=(1, 2), min_df=2, stop_words=sorted(names), sublinear_tf=True
  ),
  TfidfVectorizer(analyzer='char_wb', ngram_range=(3, 4), min_df=5),
)
pattern = r'(?i)\b(' + '|'.join(sorted(names) or ['-']) + r')\b'
text, hidden = (
  table['comment_text'].str.replace(pattern, ' ', regex=True)
  for table in (train, test)
)
model = make_pipeline(
  make_union(*analyzers),
  LogisticRegression(C=10.0, class_weight='balanced', tol=1e-6, max_iter=300),
)
model.fit(text, train['target'] >= 0.5)
pred = model.predict_proba(hidden)[:, 1].round(6)

pd.DataFrame({'id': test['id'], 'prediction': pred}).to_csv(
  'submission.csv', index=False
)
