"""Flukes: new_whale, then the four whales with the most pictures."""

import pandas as pd

train = pd.read_csv('data/train.csv')
sample = pd.read_csv('data/sample_submission.csv')

whales = train['Id'][train['Id'] != 'new_whale']
counts = whales.value_counts().reset_index()
counts = counts.sort_values(['count', 'Id'], ascending=[False, True])
pred = ' '.join(['new_whale', *counts['Id'][:4]])

pd.DataFrame({'Image': sample['Image'], 'Id': pred}).to_csv(
  'submission.csv', index=False
)
