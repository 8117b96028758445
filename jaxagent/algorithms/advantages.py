"""Advantage estimators. Time runs along axis 1; rows are independent.

Whitening and duration weights are separate stages, applied by the caller in
that order: estimate, `whiten`, multiply by the weights.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxagent.algorithms import reductions

_GROUP_EPSILON = 1e-6
# A reward is a sum of a few terms, each rounded once.
_ROUNDING_ULPS = 4


def _finite_outside(x: jax.Array, mask: jax.Array) -> jax.Array:
  """x with non-finite values under a zero of the mask read as 0."""
  return jnp.where((mask > 0) | jnp.isfinite(x), x, jnp.zeros((), x.dtype))


def gae(
  rewards: jax.Array,
  values: jax.Array,
  mask: jax.Array,
  gamma: float,
  lam: float,
  *,
  segment_ids: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
  """Generalised advantage estimation over policy tokens, unwhitened.

  Right to left, with nv and lg carried unchanged across masked-out tokens:
    delta_t = r_t + gamma nv - V_t;  x = delta_t + gamma lam lg
    m_t = 1: nv = V_t, lg = x.  A_t = lg, return_t = A_t + V_t.
  Hence observation tokens change nothing, and a reward on one would be lost:
  a step's reward belongs on its last policy token.

  Args: rewards, values, mask [B, T]; gamma, lam scalars; segment_ids [B, T]
    for packed rows: nothing is carried from one segment to another.
  Returns: advantages, returns [B, T]. Source: Schulman et al. 2016, with
    verl's treatment of masked tokens.
  """
  values = jnp.asarray(values)
  dtype = jnp.result_type(values.dtype, jnp.asarray(rewards).dtype, float)
  keep = jnp.asarray(mask) > 0
  values = _finite_outside(values.astype(dtype), keep)
  rewards = reductions.select(jnp.asarray(rewards, dtype), keep)
  if segment_ids is None:
    segment_ids = jnp.zeros(values.shape, jnp.int32)

  def step(carry: Any, token: Any):
    next_value, last, next_segment = carry
    reward, value, policy, segment = token
    same = segment == next_segment
    next_value = jnp.where(same, next_value, 0.0)
    last = jnp.where(same, last, 0.0)
    delta = reward + gamma * next_value - value
    last = jnp.where(policy, delta + gamma * lam * last, last)
    next_value = jnp.where(policy, value, next_value)
    return (next_value, last, segment), last

  zeros = jnp.zeros(values.shape[0], dtype)
  segments = jnp.asarray(segment_ids, jnp.int32)
  _, advantages = jax.lax.scan(
    step,
    (zeros, zeros, segments[:, -1]),
    (rewards.T, values.T, keep.T, segments.T),
    reverse=True,
  )
  return advantages.T, advantages.T + values


def discounted_returns(
  rewards: jax.Array,
  mask: jax.Array,
  gamma: float,
  *,
  segment_ids: jax.Array | None = None,
) -> jax.Array:
  """sum_{s >= t} gamma^(policy tokens in between) r_s on policy tokens [B, T].

  Zero on masked tokens, which are not counted as time.
  """
  zeros = jnp.zeros(jnp.shape(rewards), jnp.result_type(rewards, float))
  returns, _ = gae(rewards, zeros, mask, gamma, 1.0, segment_ids=segment_ids)
  return reductions.select(returns, mask)


def _as_groups(group_ids: Any) -> jax.Array:
  """Maps any hashable ids to integers."""
  if not isinstance(group_ids, jax.Array):
    group_ids = np.asarray(group_ids)
    if not np.issubdtype(group_ids.dtype, np.integer):
      group_ids = np.unique(group_ids, return_inverse=True)[1].reshape(-1)
  return jnp.asarray(group_ids)


def _centred(
  scores: jax.Array,
  group_ids: jax.Array,
  valid: jax.Array | None,
  weights: jax.Array | None,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
  """Centres scores [B] on their group's mean, in which `weights` count.

  Returns the centred scores [B], 0 for invalid members, the unbiased variance of the
  group's scores [B], the group's size [B] and the weight of all over that of the
  others [B], 0 where they have none. The mean is taken of distances to
  the group's lowest score, and a spread within the rounding of the scores is none:
  the mean of n equal numbers may be off by an ulp, in another direction on each
  device. Sums are elementwise: a matrix product may be rounded to TF32 or bfloat16.
  """
  scores = jnp.asarray(scores)
  scores = scores.astype(jnp.result_type(scores.dtype, float))
  keep = jnp.isfinite(scores)
  if valid is not None:
    keep &= jnp.asarray(valid, bool)
  ids = _as_groups(group_ids)
  same = (ids[:, None] == ids[None, :]) & keep[None, :] & keep[:, None]
  size = jnp.sum(same, 1).astype(scores.dtype)
  low = jnp.min(jnp.where(same, scores[None, :], jnp.inf), 1)
  high = jnp.max(jnp.where(same, scores[None, :], -jnp.inf), 1)
  rounding = _ROUNDING_ULPS * jnp.finfo(scores.dtype).eps
  varies = high - low > rounding * jnp.maximum(jnp.abs(low), jnp.abs(high))
  same &= varies[:, None]
  distance = jnp.where(same, scores[None, :] - low[:, None], 0.0)
  even = jnp.sum(distance, 1) / jnp.maximum(size, 1)
  squares = jnp.sum(jnp.where(same, jnp.square(distance - even[:, None]), 0), 1)
  variance = squares / jnp.maximum(size - 1, 1)
  mean, lift = even, size / jnp.maximum(size - 1, 1)
  if weights is not None:
    weight = jnp.where(same, jnp.asarray(weights, scores.dtype)[None, :], 0.0)
    total = jnp.sum(weight, 1)
    mean = jnp.sum(weight * distance, 1) / jnp.where(total > 0, total, 1.0)
    others = jnp.sum(jnp.where(jnp.eye(len(ids), dtype=bool), 0, weight), 1)
    lift = jnp.where(others > 0, total / jnp.where(others > 0, others, 1.0), 0)
  centred = jnp.where(keep & varies, (scores - low) - mean, 0.0)
  return centred, variance, size, lift


def group_relative_advantages(
  scores: jax.Array,
  group_ids: jax.Array,
  *,
  normalize_std: bool = True,
  valid: jax.Array | None = None,
  weights: jax.Array | None = None,
) -> jax.Array:
  """GRPO: (R - mean_g) / (std_g + 1e-6) [B]; Dr.GRPO without the division.

  The standard deviation is unbiased. A group with fewer than two valid
  members gets 0, as do invalid members, which stay out of the statistics, and
  a group whose scores differ by rounding alone. A score that is not finite is
  not valid.

  Args: scores [B]; group_ids [B] (integers; on the host anything sortable);
    valid [B] bool, False on infrastructure failures; weights [B], 0 or more, of the
    members in their group's mean (None: 1 each; the deviation is never weighted).
  """
  centred, variance, size, _ = _centred(scores, group_ids, valid, weights)
  if normalize_std:
    centred = centred / (jnp.sqrt(variance) + _GROUP_EPSILON)
  return jnp.where(size > 1, centred, 0.0)


def leave_one_out_advantages(
  scores: jax.Array,
  group_ids: jax.Array,
  *,
  valid: jax.Array | None = None,
  weights: jax.Array | None = None,
) -> jax.Array:
  """RLOO: R minus the mean of the others = n/(n-1) (R - mean_g) [B].

  Singletons and invalid members get 0; see `group_relative_advantages`. With duration
  weights d as `weights`, sum(d A grad log pi) is the gradient of E[d R] / E[d], but for
  the bias of that mean, of the order of 1/n.
  """
  centred, _, size, lift = _centred(scores, group_ids, valid, weights)
  return jnp.where(size > 1, lift * centred, 0.0)


def optimal_baseline(
  values: jax.Array, weights: jax.Array, mask: jax.Array
) -> jax.Array:
  """b = sum(w^2 x) / sum(w^2) over the mask; a scalar.

  What a constant subtracted from advantages or returns x has to be for the
  least variance of sum(w (x - b) grad log pi), the gradients of tokens taken
  as equally long and uncorrelated (OPO, arXiv 2505.23585; with importance
  weights, VCPO, arXiv 2602.17616, there on sequences). values, weights, mask
  [B, T]. 0 where nothing weighs. A constant costs no bias where w does not
  depend on the action; duration weights do, as they do with the mean.
  """
  values = _finite_outside(jnp.asarray(values), mask)
  squares = jnp.where(jnp.asarray(mask) > 0, jnp.square(weights) * mask, 0.0)
  total = jnp.sum(squares)
  low = reductions.masked_low(values, mask)
  distance = reductions.select(values - low, mask)
  return low + jnp.sum(squares * distance) / jnp.where(total > 0, total, 1.0)
