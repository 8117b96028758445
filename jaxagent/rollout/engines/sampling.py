"""Drawing one token a row from logits: pure jnp, a seed and position a row.

A row's draw depends on its own logits, seed and position alone, never on the
rows beside it, so a request gives the same tokens in any batch.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

_BLOCK = 64


def draw(
  logits: jax.Array,
  temperature: jax.Array,
  seeds: jax.Array,
  positions: jax.Array,
  top_k: jax.Array | None = None,
  top_p: jax.Array | None = None,
  *,
  some_greedy: bool = True,
) -> tuple[jax.Array, jax.Array]:
  """logits float32 [B, V], the rest [B] -> token int32 [B], log-prob [B].

  Temperature 0 takes the most likely token and reports its log-prob at
  temperature 1. top_k (0: off) and top_p (1: off) truncate; the log-prob is
  then that of the truncated distribution. `some_greedy`: static; False where no
  temperature is 0, which saves a pass over the logits.
  """
  greedy = temperature <= 0
  logits = logits / jnp.where(greedy, 1.0, temperature)[:, None]
  if top_k is not None:
    assert top_p is not None  # the two go together
    logits = truncate(logits, top_k, top_p)
  highest = jnp.max(logits, -1)
  token, total = invert(
    jnp.exp(logits - highest[:, None]), uniform(seeds, positions)
  )
  if some_greedy:
    best = jnp.argmax(logits, -1).astype(jnp.int32)
    token = jnp.where(greedy, best, token)
  chosen = jnp.take_along_axis(logits, token[:, None], -1)[:, 0]
  return token, chosen - highest - jnp.log(total)


def uniform(seeds: jax.Array, positions: jax.Array) -> jax.Array:
  """One number in [0, 1) a row, float32 [B], from (seed, position)."""

  def row(seed, position):
    return jax.random.uniform(
      jax.random.fold_in(jax.random.key(seed), position)
    )

  return jax.vmap(row)(seeds, positions)


def invert(mass: jax.Array, u: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Inverse of the distribution function, first over blocks, then in one.

  mass: float32 [B, V], not negative, not all zero; need not sum to 1.
  u: [B] in [0, 1). Returns the token int32 [B], never one without mass, and
  the sum of the masses [B]. One number a row and short sums: noise for every
  entry costs more than the logits do.
  """
  rows, v = mass.shape
  size = -(-v // _BLOCK)
  mass = jnp.pad(mass, ((0, 0), (0, size * _BLOCK - v)))
  mass = mass.reshape(rows, size, _BLOCK)
  upto = jnp.cumsum(jnp.sum(mass, -1), -1)
  total = upto[:, -1]
  block, before = _first_above(upto, u * total)
  inside = jnp.cumsum(
    jnp.take_along_axis(mass, block[:, None, None], 1)[:, 0], -1
  )
  at, _ = _first_above(inside, u * total - before)
  return block * _BLOCK + at, total


def _first_above(upto: jax.Array, t: jax.Array):
  """Returns the index where sums [B, N] first exceed t [B], and the sum before.

  Rounding may bring t to the last sum: it is kept below, so that the entry
  found has a share above 0.
  """
  t = jnp.minimum(t, jnp.nextafter(upto[:, -1], jnp.float32(0)))
  index = jnp.sum(upto <= t[:, None], -1).astype(jnp.int32)
  before = jnp.take_along_axis(upto, jnp.maximum(index - 1, 0)[:, None], -1)
  return index, jnp.where(index > 0, before[:, 0], 0.0)


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
