"""Attention of new tokens to what a key-value cache holds.

Keys are stored [S, K, h, C] and values [S, K, C, h], S slots of C columns: both
products then run along what lies side by side in memory, for which they wait.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

_MASKED = -1e30


def attend_one(
  q: jax.Array, k: jax.Array, v: jax.Array, visible: jax.Array
) -> jax.Array:
  """One new token a row against a cache that holds it already.

  q [B, H, h], k [B * K, h, S], v [B * K, S, h], visible bool [B, S] -> as q.
  """
  b, heads, h = q.shape
  q = q.reshape(len(k), -1, h)
  scores = jnp.einsum('ngh,nhs->ngs', q, k, preferred_element_type=jnp.float32)
  scores = scores.reshape(b, heads, -1) * h**-0.5
  probs = jax.nn.softmax(jnp.where(visible[:, None], scores, _MASKED), axis=-1)
  probs = probs.astype(v.dtype).reshape(*q.shape[:2], -1)
  return jnp.einsum('ngs,nsh->ngh', probs, v).reshape(b, heads, h)


def attend_block(
  q: jax.Array, k: jax.Array, v: jax.Array, visible: jax.Array
) -> jax.Array:
  """Several new tokens a row against a cache that holds them already.

  q [B, T, H, h], k [B, K, h, S], v [B, K, S, h], visible bool [B, T, S] -> as q.
  """
  b, t, heads, h = q.shape
  kv = k.shape[1]
  q = q.reshape(b, t, kv, heads // kv, h)
  scores = jnp.einsum(
    'btkgh,bkhs->bkgts', q, k, preferred_element_type=jnp.float32
  )
  scores = jnp.where(visible[:, None, None], scores * h**-0.5, _MASKED)
  probs = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
  return jnp.einsum('bkgts,bksh->btkgh', probs, v).reshape(b, t, heads, h)
