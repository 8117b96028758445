"""A layer of filters over images: one product of matrices.

  python train.py                  tries it on data/ and hands it over
  python submission.py INPUT OUTPUT   is what is measured
"""

import shutil
import sys
import time

import numpy as np

DTYPE = np.float32


def convolve(images, filters, bias):
  """Filters [k, k, C, F] over images [N, H, W, C]; what is negative becomes 0."""
  k, count = filters.shape[0], filters.shape[3]
  windows = np.lib.stride_tricks.sliding_window_view(images, (k, k), (1, 2))
  columns = windows.transpose(0, 1, 2, 4, 5, 3).reshape(-1, filters[..., 0].size)
  out = columns @ filters.reshape(-1, count)
  out += bias
  np.maximum(out, 0, out=out)
  return out.reshape(*windows.shape[:3], count)


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
