#!/usr/bin/env bash
# jax: randint(key, shape, 0, np.int64(2**40)) is always 0; hashes that differ are one stream.
# One would expect: an OverflowError, as for the Python numbers of the same size.
# What happens: np.int64 and np.uint64 lose their upper half without a word. fold_in of a hash
#   or of run * 2^32 + step gives the stream of its lower half, and a bound of a multiple of
#   2^32 is 0, of which randint gives 0.
# Versions: jax 0.10.2, jaxlib 0.10.2, numpy 2.4.6, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
program <<'PY'
import os
import warnings

os.environ['JAX_PLATFORMS'] = 'cpu'
import jax
import numpy as np

warnings.simplefilter('error')
key = jax.random.key(0)
for kind in (int, np.int64, np.uint64):
  try:
    one = jax.random.fold_in(key, kind(2**32 + 5))
    print(kind.__name__, 'stream of 2^32 + 5 is that of 5:',
          bool((one == jax.random.fold_in(key, 5)).all()))
  except OverflowError:
    print(kind.__name__, 'stream of 2^32 + 5: refused')
  try:
    drawn = jax.random.randint(key, (5,), 0, kind(2**40))
    print(kind.__name__, 'randint below 2^40:', drawn.tolist())
  except OverflowError:
    print(kind.__name__, 'randint below 2^40: refused')
PY
recorded <<'SEEN'
int stream of 2^32 + 5: refused
int randint below 2^40: refused
int64 stream of 2^32 + 5 is that of 5: True
int64 randint below 2^40: [0, 0, 0, 0, 0]
uint64 stream of 2^32 + 5 is that of 5: True
uint64 randint below 2^40: [0, 0, 0, 0, 0]
SEEN
