#!/usr/bin/env bash
# jax: top_k puts a NaN first or last, by its sign, and on x86 arithmetic makes the last kind.
# One would expect: the NaN of a broken row of logits is the largest of top_k, as it is of
#   jnp.sort, jnp.max and argmax and as jnp.nan itself is; a sampler that cuts to the top k
#   gives NaN.
# What happens: top_k orders by sign, too, and 0 / 0, inf - inf and 0 * inf give a NaN with
#   the sign bit set on x86: it comes after -inf. The k logits are finite, their softmax is
#   fine, and a sampler draws on from a row of which jnp.max says NaN.
# Versions: jax 0.10.2, jaxlib 0.10.2, numpy 2.4.6, Python 3.11, Linux x86-64.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
program <<'PY'
import os

os.environ['JAX_PLATFORMS'] = 'cpu'
import jax
import jax.numpy as jnp


@jax.jit
def made(x):
  return {'0 / 0': x / x, 'inf - inf': 1 / x - 1 / x, '0 * inf': x * (1 / x)}


for name, nan in {'jnp.nan': jnp.float32(jnp.nan), **made(jnp.float32(0))}.items():
  logits = jnp.array([1.0, -jnp.inf, 2.0, 3.0]).at[1].set(nan)
  top, ids = jax.lax.top_k(logits, 2)
  shares = [f'{x:.2f}' for x in jax.nn.softmax(top)]
  print(f'{name} at 1: top_k at {ids.tolist()}, shares {shares}; argmax at '
        f'{jnp.argmax(logits)}, max {jnp.max(logits)}, last of sort {jnp.sort(logits)[-1]}')
PY
recorded <<'SEEN'
jnp.nan at 1: top_k at [1, 3], shares ['nan', 'nan']; argmax at 1, max nan, last of sort nan
0 * inf at 1: top_k at [3, 2], shares ['0.73', '0.27']; argmax at 1, max nan, last of sort nan
0 / 0 at 1: top_k at [3, 2], shares ['0.73', '0.27']; argmax at 1, max nan, last of sort nan
inf - inf at 1: top_k at [3, 2], shares ['0.73', '0.27']; argmax at 1, max nan, last of sort nan
SEEN
