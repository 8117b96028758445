#!/usr/bin/env bash
# numpy: one NaN in a bfloat16 array leaves it unsorted, and its quantiles are wrong numbers.
# One would expect: np.sort puts a NaN last, and np.quantile and np.percentile are NaN then,
#   as for float16, float32 and float64.
# What happens: the type that ml_dtypes adds compares by < alone, to which a NaN is equal to
#   everything. A sort stops half-way, in silence; the lower quartile of 0, 0.01, ..., 1 with
#   one NaN in the middle is 0.75 and the upper 0.25, and np.unique keeps what occurs twice.
#   np.asarray of a bfloat16 array of jax is such an array: the 99th percentile of log-probs
#   on the host is some number where one is NaN. Cast to float32 first.
# Versions: numpy 2.4.6, ml_dtypes 0.6.0, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages numpy==2.4.6 ml_dtypes==0.6.0
program <<'PY'
import warnings

import ml_dtypes
import numpy as np

warnings.simplefilter('ignore')
for dtype in (np.float16, ml_dtypes.bfloat16):
  few = np.array([3, np.nan, 1, 2, 3], dtype)
  many = np.linspace(0, 1, 101).astype(dtype)
  print(dtype.__name__)
  print('  sort', np.sort(few).tolist(), 'unique', np.unique(few).tolist())
  for name in ('no', 'one'):
    quantiles = np.quantile(many, (0.25, 0.75, 0.99)).astype(float).round(2)
    print(f'  {name} NaN of 101: quantiles 0.25, 0.75, 0.99:', quantiles.tolist())
    many[50] = np.nan
PY
recorded <<'SEEN'
float16
  sort [1.0, 2.0, 3.0, 3.0, nan] unique [1.0, 2.0, 3.0, nan]
  no NaN of 101: quantiles 0.25, 0.75, 0.99: [0.25, 0.75, 0.99]
  one NaN of 101: quantiles 0.25, 0.75, 0.99: [nan, nan, nan]
bfloat16
  sort [3.0, nan, 1.0, 2.0, 3.0] unique [3.0, nan, 1.0, 2.0, 3.0]
  no NaN of 101: quantiles 0.25, 0.75, 0.99: [0.25, 0.75, 0.99]
  one NaN of 101: quantiles 0.25, 0.75, 0.99: [0.75, 0.25, 0.49]
SEEN
