"""A layer of filters over images, in plain loops.

  python train.py                  tries it on data/ and hands it over
  python submission.py INPUT OUTPUT   is what is measured
"""

import shutil
import sys
import time

import numpy as np

DTYPE = np.float64


def convolve(images, filters, bias):
  """Filters [k, k, C, F] over images [N, H, W, C]; what is negative becomes 0."""
  k, count = filters.shape[0], filters.shape[3]
  size = images.shape[1] - k + 1
  out = np.zeros((len(images), size, size, count), DTYPE)
  for n in range(len(images)):
    for i in range(size):
      for j in range(size):
        window = images[n, i : i + k, j : j + k]
        for f in range(count):
          total = np.sum(window * filters[:, :, :, f]) + bias[f]
          out[n, i, j, f] = max(total, 0.0)
  return out


def solve(path):
  with np.load(path) as given:
    arrays = [given[name].astype(DTYPE) for name in ('images', 'filters', 'bias')]
  return convolve(*arrays)


if __name__ == '__main__':
  if len(sys.argv) == 3:
    np.save(sys.argv[2], solve(sys.argv[1]))
  else:
    begun = time.process_time()
    found = solve('data/example_input.npz')
    seconds = time.process_time() - begun
    off = np.abs(found - np.load('data/example_output.npy')).max()
    print(f'{seconds:.3f} s of CPU time, off by {off:.2g}')
    shutil.copyfile(__file__, 'submission.py')
