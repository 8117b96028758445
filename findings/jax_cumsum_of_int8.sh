#!/usr/bin/env bash
# jax: the running sum of an int8 mask of 300 ones, as positions in a packed row are made.
# One would expect: 300 at the end, as jnp.sum and NumPy's cumsum say.
# What happens: jnp.sum widens small integers and jnp.cumsum does not, so it wraps at 127
#   and ends at 44. A mask of bool gives 300.
# Versions: jax 0.10.2, numpy 2.4.6, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages jax==0.10.2 numpy==2.4.6
program <<'PY'
import jax.numpy as jnp
import numpy as np

for kind in (np.bool_, np.int8, np.uint8):
  mask = np.ones(300, kind)
  ends = np.cumsum(mask)[-1], jnp.sum(jnp.asarray(mask)), jnp.cumsum(jnp.asarray(mask))[-1]
  print(kind.__name__, *(f'{end.dtype} {int(end)}' for end in ends))
PY
recorded <<'SEEN'
bool int64 300 int32 300 int32 300
int8 int64 300 int32 300 int8 44
uint8 uint64 300 uint32 300 uint8 44
SEEN
