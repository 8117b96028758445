"""The next byte: contexts of up to seven bytes, each mixed with the shorter ones."""

import pathlib

import numpy as np

contexts = np.load('data/contexts.npy').astype(np.int64)
home = pathlib.Path('data/babylm_data')

texts = []
for path in sorted(home.glob('*/*')):
  texts.append(np.frombuffer(path.read_bytes(), np.uint8))
  texts.append(np.zeros(8, np.uint8))  # no context reaches into another file
text = np.concatenate(texts).astype(np.int64)

# Witten and Bell 1991: a context that was followed by many different bytes leaves
# more to the shorter one.
pred = np.full((len(contexts), 256), 1 / 256)
followed = np.arange(256)
for length in range(8):
  keys = np.zeros(len(text) - 7, np.int64)
  asked = np.zeros(len(contexts), np.int64)
  for k in range(length, -1, -1):
    keys = keys * 256 + text[7 - k : len(text) - k]
  for k in range(length, 0, -1):
    asked = asked * 256 + contexts[:, -k]
  known, counts = np.unique(keys, return_counts=True)
  wanted = (asked[:, None] * 256 + followed).ravel()
  places = np.searchsorted(known, wanted).clip(0, len(known) - 1)
  seen = np.where(known[places] == wanted, counts[places], 0)
  seen = seen.reshape(len(contexts), 256)
  kinds = (seen > 0).sum(axis=1, keepdims=True)
  total = seen.sum(axis=1, keepdims=True) + kinds
  pred = np.where(total > 0, (seen + kinds * pred) / np.maximum(total, 1), pred)

np.save('submission.npy', (pred / pred.sum(axis=1, keepdims=True)).astype(np.float32))
