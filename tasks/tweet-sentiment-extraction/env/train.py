"""Sentiment parts: the whole message."""

import pandas as pd

test = pd.read_csv('data/test.csv', keep_default_na=False)
pred = test['text'].str.strip()
pd.DataFrame({'textID': test['textID'], 'selected_text': pred}).to_csv(
  'submission.csv', index=False
)
