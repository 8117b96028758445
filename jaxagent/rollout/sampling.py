"""Drawing one token a row from logits: pure jnp, a seed and position a row.

A row's draw depends on its own logits, seed and position alone, never on the
rows beside it, so a request gives the same tokens in any batch.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def draw(
  logits: jax.Array,
  temperature: jax.Array,
  seeds: jax.Array,
  positions: jax.Array,
  top_k: jax.Array | None = None,
  top_p: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
  """logits float32 [B, V], the rest [B] -> token int32 [B], log-prob [B].

  Temperature 0 takes the most likely token and reports its log-prob at
  temperature 1. top_k (0: off) and top_p (1: off) truncate; the log-prob is
  then that of the truncated distribution.
  """
  greedy = temperature <= 0
  logits = logits / jnp.where(greedy, 1.0, temperature)[:, None]
  if top_k is not None:
    logits = truncate(logits, top_k, top_p)
  noise = gumbel(seeds, positions, logits.shape[-1])
  noisy = jnp.where(greedy[:, None], logits, logits + noise)
  token = jnp.argmax(noisy, -1).astype(jnp.int32)
  chosen = jnp.take_along_axis(logits, token[:, None], -1)[:, 0]
  return token, chosen - jax.nn.logsumexp(logits, -1)


def gumbel(seeds: jax.Array, positions: jax.Array, size: int) -> jax.Array:
  """Standard Gumbel noise float32 [B, size] from (seed, position) a row.

  Adding it and taking the maximum draws from the softmax. A rounding
  difference between two batch shapes then changes a token only where two
  candidates tie to the last digits; with an inverse cumulative sum it would
  at any of V boundaries.
  """

  def row(seed, position):
    key = jax.random.fold_in(jax.random.key(seed), position)
    return jax.random.gumbel(key, (size,))

  return jax.vmap(row)(seeds, positions)


def truncate(
  logits: jax.Array, top_k: jax.Array, top_p: jax.Array
) -> jax.Array:
  """Sets to -inf what top_k [B] or top_p [B] cut away (ties are kept)."""
  v = logits.shape[-1]
  ordered = jnp.sort(logits, -1, descending=True)
  k = jnp.where(top_k > 0, jnp.minimum(top_k, v), v)
  floor_k = jnp.take_along_axis(ordered, (k - 1)[:, None], -1)
  kept = jnp.where(ordered >= floor_k, ordered, -jnp.inf)
  probs = jax.nn.softmax(kept, -1)
  # A token stays while the mass before it is below top_p: never none.
  inside = jnp.cumsum(probs, -1) - probs < top_p[:, None]
  floor_p = jnp.min(jnp.where(inside, kept, jnp.inf), -1, keepdims=True)
  return jnp.where(logits >= jnp.maximum(floor_k, floor_p), logits, -jnp.inf)
