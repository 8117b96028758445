#!/usr/bin/env bash
# jax: a NumPy counter that a jax number is added to is a jax one of 32 bits from then on.
# One would expect: `counter += x` leaves a NumPy array the same array and float64 or int64,
#   as with any x that NumPy can read; a function that adds into an array that it was given
#   has added; a Python int does not overflow.
# What happens: jax's arrays take the operation over, and the name is bound to a new array
#   on a device, float32 or int32. The caller's array, and the array that a row is a view
#   of, stay as they were; a float64 sum stops at 16,777,216, and an int64 or Python count
#   of tokens is negative after 2**31, all in silence. `counter[i] += x` is NumPy's own
#   assignment and right, as are np.add(counter, x, out=counter) and += int(x).
# Versions: jax 0.10.2, jaxlib 0.10.2, numpy 2.4.6, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
program <<'PY'
import os

os.environ['JAX_PLATFORMS'] = 'cpu'
import jax
import jax.numpy as jnp
import numpy as np


def add(into, x):
  into += x


for x in (np.ones(2, np.float32), jnp.ones(2)):
  sums = np.zeros((2, 2))
  add(sums, x)
  row = sums[0]
  row += x
  print(type(x).__module__.split('.')[0], 'added by a function and to a view:', sums.tolist())
for name, counter in (
  ('int', 0), ('np.int64', np.int64(0)), ('int64 array', np.zeros((), np.int64))
):  # fmt: skip
  for _ in range(3):
    counter += jnp.int32(1_000_000_000)  # tokens of an epoch
  print(f'{name}: 3 epochs of 1,000,000,000 tokens: {counter}, {counter.dtype}')
for one in (np.float32(1), jnp.float32(1)):
  loss = np.float64(16_777_216)
  for _ in range(4):
    loss += one
  print(type(one).__module__.split('.')[0], 'np.float64(16777216) and four times 1:', f'{loss:.0f}, {loss.dtype}')
PY
recorded <<'SEEN'
numpy added by a function and to a view: [[2.0, 2.0], [1.0, 1.0]]
jaxlib added by a function and to a view: [[0.0, 0.0], [0.0, 0.0]]
int: 3 epochs of 1,000,000,000 tokens: -1294967296, int32
np.int64: 3 epochs of 1,000,000,000 tokens: -1294967296, int32
int64 array: 3 epochs of 1,000,000,000 tokens: -1294967296, int32
numpy np.float64(16777216) and four times 1: 16777220, float64
jaxlib np.float64(16777216) and four times 1: 16777216, float32
SEEN
