#!/usr/bin/env bash
# jax: causal attention of one new token over a cache sees the first key alone.
# One would expect: with fewer queries than keys is_causal takes the queries for the last
#   ones, as flash-attention does since 2.1, and local_window_size counts back from there; a
#   query that sees no key gives zero or NaN.
# What happens: dot_product_attention lets query i see the keys 0 to i, so a token that is
#   decoded attends to the first one; lengths of queries and keys change nothing. A window
#   of one behind lies around that key, too. A query that sees nothing, by its mask or by
#   lengths of 0, gives the mean of all values, padding with them, and a gradient to each.
# Versions: jax 0.10.2, jaxlib 0.10.2, numpy 2.4.6, Python 3.11; CPU.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
program <<'PY'
import os

os.environ['JAX_PLATFORMS'] = 'cpu'
import jax
import jax.numpy as jnp

# Scores are all equal and value n is n: what comes out is the mean of what was seen.
keys = jnp.zeros((1, 5, 1, 8))
values = keys + jnp.arange(5.0)[None, :, None, None]


def seen(name, queries, **how):
  out = jax.nn.dot_product_attention(keys[:, :queries], keys, values, **how)
  print(f'{name}: {out[0, :, 0, 0].tolist()}')


five, one, none = jnp.array([5]), jnp.array([1]), jnp.array([0])
seen('one query, not causal', 1)
seen('one query, causal', 1, is_causal=True)
lengths = {'query_seq_lengths': one, 'key_value_seq_lengths': five}
seen('with lengths', 1, is_causal=True, **lengths)
seen('three queries, causal', 3, is_causal=True)
seen('one behind', 1, local_window_size=(1, 0))
seen('masked', 1, mask=jnp.zeros((1, 1, 1, 5), bool))
seen('no keys', 1, key_value_seq_lengths=none)
PY
recorded <<'SEEN'
one query, not causal: [2.0]
one query, causal: [0.0]
with lengths: [0.0]
three queries, causal: [0.0, 0.5, 1.0]
one behind: [0.0]
masked: [2.0]
no keys: [2.0]
SEEN
