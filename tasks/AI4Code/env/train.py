"""Order of cells: as they are given, the markdown cells at the end."""

import json

import pandas as pd

sample = pd.read_csv('data/sample_submission.csv')


def ordered(cells):
  """Ids in order, of cells (id, 'code' or 'markdown', text)."""
  return [name for name, _, _ in cells]


def pred(name):
  with open(f'data/test/{name}.json', encoding='utf-8') as f:
    given = json.load(f)
  kinds, texts = given['cell_type'], given['source']
  return ' '.join(ordered([(k, kinds[k], texts[k]) for k in kinds]))


sample['cell_order'] = sample['id'].map(pred)
sample.to_csv('submission.csv', index=False)
