"""The next byte: how often each byte follows the last one in the training texts."""

import pathlib

import numpy as np

contexts = np.load('data/contexts.npy')

counts = np.full((256, 256), 0.01)
for path in sorted(pathlib.Path('data/babylm_data/babylm_10M').glob('*.train')):
  text = np.frombuffer(path.read_bytes(), np.uint8).astype(int)
  pairs = np.bincount(text[:-1] * 256 + text[1:], minlength=256 * 256)
  counts += pairs.reshape(256, 256)

pred = counts / counts.sum(axis=1, keepdims=True)
np.save('submission.npy', pred[contexts[:, -1]].astype(np.float32))
