"""Order of cells: as they are given, the markdown cells at the end."""

import json

import pandas as pd

sample = pd.read_csv('data/sample_submission.csv')

orders = []
for name in sample['id']:
  with open(f'data/test/{name}.json', encoding='utf-8') as f:
    orders.append(' '.join(json.load(f)['cell_type']))

pd.DataFrame({'id': sample['id'], 'cell_order': orders}).to_csv(
  'submission.csv', index=False
)
