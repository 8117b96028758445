#!/usr/bin/env bash
# orbax-checkpoint: a count of three billion tokens comes back negative.
# One would expect: what was saved as NumPy's int64 comes back, or the restore raises where the
#   template has another type in which the number has no place.
# What happens: the template of a state is usually jax.eval_shape of the function that makes
#   it, and eval_shape says int32 for an int64 and float32 for a float64 of NumPy. The
#   restore casts to that in silence: the count wraps, and a time loses its seconds. The
#   file is right, as a restore without a template shows, or with one of NumPy arrays.
# Versions: orbax-checkpoint 0.12.8, jax 0.10.2, jaxlib 0.10.2, numpy 2.4.6, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages orbax-checkpoint==0.12.8 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
program <<'PY'
import os
import pathlib

os.environ['JAX_PLATFORMS'] = 'cpu'
import jax
import numpy as np
import orbax.checkpoint as ocp


def state():
  return {
    'time': np.float64(1_700_000_042.0),
    'tokens': np.int64(3_000_000_000),
    'weights': np.ones(2, np.float32),
  }


path = pathlib.Path('checkpoint').absolute()
keeper = ocp.StandardCheckpointer()
keeper.save(path, state())
keeper.wait_until_finished()
for name, template in (
  ('none', None),
  ('arrays of NumPy', jax.tree.map(np.zeros_like, state())),
  ('jax.eval_shape', jax.eval_shape(state)),
):
  back = keeper.restore(path, template)
  print(f'template {name}: tokens {back["tokens"]}, time {back["time"]:.0f}')
PY
recorded <<'SEEN'
template none: tokens 3000000000, time 1700000042
template arrays of NumPy: tokens 3000000000, time 1700000042
template jax.eval_shape: tokens -1294967296, time 1700000000
SEEN
