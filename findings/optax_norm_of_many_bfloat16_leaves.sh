#!/usr/bin/env bash
# optax: the norm of bfloat16 gradients stops growing with the number of arrays.
# One would expect: the global norm of 1,000 gradients of norm 1 is 31.6, to the precision
#   of bfloat16 (0.4 %), as jnp.sum of one bfloat16 array is summed in float32.
# What happens: the squared norms of the arrays are added one after the other in bfloat16,
#   and 256 + 1 is 256 there: the norm is 16. clip_by_global_norm(1) divides by it and lets
#   a gradient of norm 2 through. A model whose layers are not stacked has hundreds of
#   arrays; of one stacked array of the same numbers the norm is right.
# Versions: optax 0.2.8, jax 0.10.2, jaxlib 0.10.2, numpy 2.4.6, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages optax==0.2.8 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
program <<'PY'
import os

os.environ['JAX_PLATFORMS'] = 'cpu'
import jax
import jax.numpy as jnp
import optax


def wide(tree):
  return jax.tree.map(lambda x: x.astype(jnp.float32), tree)


def norm(tree):
  return round(float(optax.tree.norm(tree)), 2)


stacked = jnp.ones((1000, 1), jnp.bfloat16)
for name, tree in (('one array', stacked), ('1000 arrays', list(stacked))):
  clip = optax.clip_by_global_norm(1.0)
  clipped, _ = jax.jit(clip.update)(tree, clip.init(tree))
  print(f'{name}: norm {norm(tree)}, in float32 {norm(wide(tree))}, '
        f'clipped to 1: {norm(wide(clipped))}')
PY
recorded <<'SEEN'
one array: norm 31.62, in float32 31.62, clipped to 1: 1.0
1000 arrays: norm 16.0, in float32 31.62, clipped to 1: 1.98
SEEN
