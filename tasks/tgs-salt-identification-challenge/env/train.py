"""Salt: the pixels that are darker than the image's mean."""

import numpy as np
import pandas as pd
from PIL import Image

sample = pd.read_csv('data/sample_submission.csv')


def run_lengths(mask):
  """Starts and lengths, counted from 1 down the columns."""
  flat = np.concatenate([[0], mask.T.ravel().astype(int), [0]])
  starts = np.flatnonzero(np.diff(flat) == 1) + 1
  ends = np.flatnonzero(np.diff(flat) == -1) + 1
  return ' '.join(f'{s} {e - s}' for s, e in zip(starts, ends))


pred = []
for name in sample['id']:
  image = Image.open(f'data/test/images/{name}.png').convert('L')
  grey = np.asarray(image, dtype=float)
  mask = grey < grey.mean()
  pred.append(run_lengths(mask) if mask.mean() > 0.5 else '')

pd.DataFrame({'id': sample['id'], 'rle_mask': pred}).to_csv(
  'submission.csv', index=False
)
