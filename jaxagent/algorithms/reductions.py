"""Masked reductions and loss aggregation.

The mask m is 1 on tokens the policy produced, 0 on padding and observation
tokens. What stands under a zero never matters, not even NaN or infinity.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp

AGGREGATIONS = (
  'token-mean',
  'seq-mean-token-sum',
  'seq-mean-token-mean',
  'seq-mean-token-sum-norm',
)


def choose(name: str, choices: Sequence[str], what: str) -> str:
  """Returns `name` if it is one of `choices`, else says what there is."""
  if name not in choices:
    known = ', '.join(sorted(choices))
    raise ValueError(f'Unknown {what} {name!r}; choose one of: {known}.')
  return name


def select(x: jax.Array, mask: jax.Array) -> jax.Array:
  """x where the mask is set, else 0; also stops gradients and NaN there."""
  x = jnp.asarray(x)
  return jnp.where(jnp.asarray(mask) > 0, x, jnp.zeros((), x.dtype))


def masked_sum(x: jax.Array, mask: jax.Array) -> jax.Array:
  """sum(x m), a scalar."""
  x = select(x, mask)
  return jnp.sum(x * jnp.asarray(mask, x.dtype))


def masked_mean(x: jax.Array, mask: jax.Array) -> jax.Array:
  """sum(x m) / sum(m), a scalar; 0 where the mask is empty."""
  x = jnp.asarray(x)
  count = jnp.sum(jnp.asarray(mask, x.dtype))
  return masked_sum(x, mask) / jnp.where(count > 0, count, 1)


def masked_low(x: jax.Array, mask: jax.Array) -> jax.Array:
  """The least x over the mask, a scalar; 0 where the mask is empty.

  Means are taken of distances to it where equal numbers must have their own
  value as the mean: the plain mean of n equal floats may be off by an ulp.
  """
  x = jnp.asarray(x)
  low = jnp.min(jnp.where(jnp.asarray(mask) > 0, x, jnp.inf))
  return jnp.where(jnp.isfinite(low), low, 0.0)


def masked_variance(x: jax.Array, mask: jax.Array) -> jax.Array:
  """Unbiased variance over the mask; 0 with fewer than two tokens.

  Exactly 0 where all are equal.
  """
  x = jnp.asarray(x)
  x = select(x - masked_low(x, mask), mask)
  count = jnp.sum(jnp.asarray(mask, x.dtype))
  squares = masked_sum(jnp.square(select(x, mask) - masked_mean(x, mask)), mask)
  return jnp.where(count > 1, squares / jnp.maximum(count - 1, 1), 0.0)


def whiten(
  x: jax.Array, mask: jax.Array, centre: jax.Array | None = None
) -> jax.Array:
  """(x - mean) rsqrt(var + 1e-8) over the mask (verl's masked_whiten).

  [B, T] to [B, T]. The shift and the scale come from masked-in tokens alone;
  they are applied everywhere, as verl does. Non-finite values under a zero
  of the mask are read as 0. centre: what is subtracted instead of the mean.
  """
  x = jnp.asarray(x)
  x = jnp.where((jnp.asarray(mask) > 0) | jnp.isfinite(x), x, 0.0)
  if centre is None:
    low = masked_low(x, mask)
    centre = low + masked_mean(x - low, mask)
  return (x - centre) * jax.lax.rsqrt(masked_variance(x, mask) + 1e-8)


def _sequence_ids(
  shape: tuple[int, ...], segment_ids: jax.Array | None
) -> jax.Array:
  """Flat id of the sequence of each token: row, or row and segment."""
  rows = jnp.arange(shape[0])[:, None]
  if segment_ids is None:
    return jnp.broadcast_to(rows, shape)
  return rows * (shape[1] + 1) + jnp.asarray(segment_ids, jnp.int32)


def _sequence_counts(
  mask: jax.Array, segment_ids: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
  """Policy tokens in each token's sequence [B, T]; number of sequences."""
  ids = _sequence_ids(mask.shape, segment_ids).reshape(-1)
  n_ids = mask.shape[0] * (1 if segment_ids is None else mask.shape[1] + 1)
  counts = jax.ops.segment_sum(mask.reshape(-1), ids, num_segments=n_ids)
  n_sequences = jnp.sum(counts > 0).astype(mask.dtype)
  return counts[ids].reshape(mask.shape), n_sequences


def aggregation_denominator(
  mask: jax.Array, mode: str, *, segment_ids: jax.Array | None = None
) -> jax.Array:
  """Returns the divisor of `aggregate`: policy tokens or sequences with any.

  Compute it over the whole batch and pass it to each micro-batch: the sum of
  the micro-batches' losses is then the loss of the batch, however it is cut.
  """
  choose(mode, AGGREGATIONS, 'aggregation')
  mask = jnp.asarray(mask, jnp.result_type(float))
  if mode == 'token-mean':
    return jnp.sum(mask)
  return _sequence_counts(mask, segment_ids)[1]


def aggregate(
  x: jax.Array,
  mask: jax.Array,
  mode: str,
  *,
  segment_ids: jax.Array | None = None,
  denominator: jax.Array | float | None = None,
  norm_length: float | None = None,
) -> jax.Array:
  """Reduces per-token losses [B, T] to a scalar.

  token-mean: sum(x m) / sum(m).
  seq-mean-token-sum: mean over sequences of sum_t(x m).
  seq-mean-token-mean: mean over sequences of sum_t(x m) / sum_t(m).
  seq-mean-token-sum-norm: as token-sum, over the constant `norm_length`
    (Dr.GRPO; default: T, which depends on padding, so set it).
  A sequence is a row, or with `segment_ids` [B, T] a segment of a row
  (packing); sequences without a policy token do not count.

  Raises: ValueError for an unknown mode.
  """
  choose(mode, AGGREGATIONS, 'aggregation')
  x = select(x, mask)
  weights = jnp.asarray(mask, x.dtype)
  if mode == 'seq-mean-token-mean':
    counts, _ = _sequence_counts(weights, segment_ids)
    weights = weights / jnp.where(counts > 0, counts, 1)
  elif mode == 'seq-mean-token-sum-norm':
    weights = weights / (norm_length or x.shape[-1])
  if denominator is None:
    denominator = aggregation_denominator(mask, mode, segment_ids=segment_ids)
  denominator = jnp.asarray(denominator, x.dtype)
  return jnp.sum(x * weights) / jnp.where(denominator > 0, denominator, 1)


@dataclasses.dataclass(frozen=True, eq=False)
class Aggregation:
  """A way to reduce per-token losses to a scalar: `aggregate` and its options.

  Raises ValueError for an unknown mode.
  """

  mode: str
  segment_ids: jax.Array | None = None
  denominator: jax.Array | float | None = None
  norm_length: float | None = None

  def __post_init__(self):
    choose(self.mode, AGGREGATIONS, 'aggregation')

  def __call__(self, x: jax.Array, mask: jax.Array) -> jax.Array:
    """Reduces x [B, T] over the mask."""
    return aggregate(
      x,
      mask,
      self.mode,
      segment_ids=self.segment_ids,
      denominator=self.denominator,
      norm_length=self.norm_length,
    )
