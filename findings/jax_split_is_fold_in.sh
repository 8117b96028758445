#!/usr/bin/env bash
# jax: split(key)[i] and fold_in(key, i) are the same key.
# One would expect: a key that is split for one purpose, and into which numbers are folded
#   for another, gives streams that have nothing to do with each other; where they are one,
#   jax_debug_key_reuse says so.
# What happens: with the default generator split(key, n)[i] is fold_in(key, i), bit for bit.
#   A step that takes `a, b = split(key)` and gives worker 1 fold_in(key, 1) draws the same
#   numbers twice, and the check for reused keys is silent, for fold_in uses no key up.
#   nnx.Rngs(7) folds in a count, so its first key is split(key(7))[0]: a model and data of one
#   seed share draws. Without jax_threefry_partitionable, which is the default since 0.5,
#   they differ; fold_in of a name's hash, or a key of its own for each purpose, is safe.
# Versions: jax 0.10.2, jaxlib 0.10.2, flax 0.12.8, numpy 2.4.6, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages jax==0.10.2 jaxlib==0.10.2 flax==0.12.8 numpy==2.4.6
program <<'PY'
import os

os.environ['JAX_PLATFORMS'] = 'cpu'
import jax
from flax import nnx


def same(a, b):
  return bool((jax.random.key_data(a) == jax.random.key_data(b)).all())


def pairs(key):
  parts = jax.random.split(key, 4)
  return [same(parts[i], jax.random.fold_in(key, i)) for i in range(4)]


@jax.jit
def draws(key):
  _, noise = jax.random.split(key)
  worker = jax.random.fold_in(key, 1)
  return jax.random.normal(noise, (3,)), jax.random.normal(worker, (3,))


for kind in ('threefry2x32', 'rbg'):
  print(kind, 'split(key, 4)[i] is fold_in(key, i):', pairs(jax.random.key(7, impl=kind)))
jax.config.update('jax_debug_key_reuse', True)
key = jax.random.key(7)
noise, worker = draws(key)
print('checked for reuse, split and fold_in: no error, equal draws:', bool((noise == worker).all()))
try:
  jax.random.normal(jax.random.split(key)[0])
except Exception as error:
  print('checked for reuse, split twice:', type(error).__name__)
jax.config.update('jax_debug_key_reuse', False)
first = nnx.Rngs(7).params()
print('first key of nnx.Rngs(7) is split(key(7))[0]:', same(first, jax.random.split(jax.random.key(7))[0]))
jax.config.update('jax_threefry_partitionable', False)
print('not partitionable:', pairs(jax.random.key(7)))
PY
recorded <<'SEEN'
threefry2x32 split(key, 4)[i] is fold_in(key, i): [True, True, True, True]
rbg split(key, 4)[i] is fold_in(key, i): [True, True, True, True]
checked for reuse, split and fold_in: no error, equal draws: True
checked for reuse, split twice: KeyReuseError
first key of nnx.Rngs(7) is split(key(7))[0]: True
not partitionable: [False, False, False, False]
SEEN
