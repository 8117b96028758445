#!/usr/bin/env bash
# jax: with is_causal a decoded token sees the first key alone.
# One would expect: jax.nn.dot_product_attention(q, k, v, is_causal=True) with one query and
#   the keys of five tokens is the fifth token's attention to all of them, and with two queries
#   the last two tokens', as in flash-attention; or shapes that do not match are refused.
# What happens: query i sees keys 0 to i, counted from the first of both, so a step of
#   decoding with a cache sees one key of the prompt, and chunks of a long prompt see its
#   beginning. local_window_size counts in the same way. A row whose mask hides all keys is
#   no row of zeros or NaN: it is the mean of all values, hidden ones included.
# Versions: jax 0.10.2, jaxlib 0.10.2, numpy 2.4.6, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
program <<'PY'
import os

os.environ['JAX_PLATFORMS'] = 'cpu'
import jax
import jax.numpy as jnp

keys = jnp.ones((1, 5, 1, 8))  # all alike: an output is the mean of the values seen
values = jnp.broadcast_to(jnp.arange(5.0)[None, :, None, None], keys.shape)


def seen(queries, **how):
  out = jax.nn.dot_product_attention(keys[:, :queries], keys, values, **how)
  return out[0, :, 0, 0].tolist()


print('values', values[0, :, 0, 0].tolist())
for queries in (5, 2, 1):
  print(queries, 'queries, is_causal:', seen(queries, is_causal=True))
print('1 query, a window of two tokens before:', seen(1, local_window_size=(2, 0)))
hidden = jnp.zeros((1, 1, 1, 5), bool)
print('1 query, all keys hidden:', seen(1, mask=hidden))
PY
recorded <<'SEEN'
values [0.0, 1.0, 2.0, 3.0, 4.0]
5 queries, is_causal: [0.0, 0.5, 1.0, 1.5, 2.0]
2 queries, is_causal: [0.0, 0.5]
1 queries, is_causal: [0.0]
1 query, a window of two tokens before: [0.0]
1 query, all keys hidden: [2.0]
SEEN
