#!/usr/bin/env bash
# flax: from_bytes takes weights of other shapes and types than those of its target.
# One would expect: a file of another model is refused, as a missing name is, since the target
#   is given to compare with.
# What happens: names are compared, shapes and types are not. The vocabulary of the file
#   replaces that of the model, and int8 stands where float32 was.
# Versions: flax 0.12.8, jax 0.10.2, jaxlib 0.10.2, numpy 2.4.6, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages flax==0.12.8 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
program <<'PY'
import os

os.environ['JAX_PLATFORMS'] = 'cpu'
import numpy as np
from flax import serialization

target = {'embedding': np.zeros((32, 8), np.float32)}
for name, stored in (
  ('equal', {'embedding': np.ones((32, 8), np.float32)}),
  ('fewer ids', {'embedding': np.ones((16, 8), np.float32)}),
  ('int8', {'embedding': np.ones((32, 8), np.int8)}),
  ('one dimension', {'embedding': np.ones(5, np.float32)}),
  ('another name', {'tokens': np.ones((32, 8), np.float32)}),
):
  try:
    found = serialization.from_bytes(target, serialization.to_bytes(stored))
    print(f'{name}: {found["embedding"].dtype}{found["embedding"].shape}')
  except ValueError:
    print(f'{name}: refused')
PY
recorded <<'SEEN'
equal: float32(32, 8)
fewer ids: float32(16, 8)
int8: int8(32, 8)
one dimension: float32(5,)
another name: refused
SEEN
