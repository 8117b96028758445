"""Duration weights and off-policy importance weights.

Three weightings stand at one place in the loss: they multiply the advantage
of every token of a step, after any normalisation.
  none: 1.
  duration: paper 003, equation 3, w = dt / mean(dt).
  inclusion: 1 / P(the step is in the update), for the scheduler in use.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxagent.algorithms import reductions

IMPORTANCE_LEVELS = ('token', 'sequence')
LOG_RATIO_BOUND = 20.0


def _check_durations(durations_s, valid) -> None:
  """Refuses bad durations where they are concrete; tracers pass."""
  if isinstance(durations_s, jax.core.Tracer) or isinstance(
    valid, jax.core.Tracer
  ):
    return
  values = np.asarray(durations_s)
  keep = np.ones(values.shape, bool) if valid is None else np.asarray(valid) > 0
  bad = np.argwhere(keep & ~(np.isfinite(values) & (values > 0)))
  if bad.size:
    where = tuple(int(i) for i in bad[0])
    raise ValueError(
      f'durations_s{list(where)}={float(values[where])}: every duration must be '
      'finite and greater than zero. Pass the execution time alone, and leave '
      'out infrastructure failures with valid=...'
    )


def duration_weights(
  durations_s: jax.Array, *, valid: jax.Array | None = None
) -> jax.Array:
  """w_k = dt_k / mean(dt in the batch): paper 003, equation 3.

  durations_s: [B], or [B, K] for K steps a trajectory, in seconds of
  execution alone (no queueing, start-up or grading). The mean runs over all
  valid steps of the batch, so valid weights have mean 1; invalid ones get 0.
  Equal durations give 1 exactly; the unit of time does not matter.

  Raises: ValueError for a valid duration that is not finite and positive.
    Under jit, where nothing can be raised, such an entry weighs 0.
  """
  _check_durations(durations_s, valid)
  durations = jnp.asarray(durations_s)
  durations = durations.astype(jnp.result_type(durations.dtype, float))
  keep = jnp.isfinite(durations) & (durations > 0)
  if valid is not None:
    keep &= jnp.asarray(valid) > 0
  return _to_mean_one(durations, keep)


def _to_mean_one(values: jax.Array, keep: jax.Array) -> jax.Array:
  """values >= 0 over their mean where kept; 0 elsewhere."""
  # Dividing by the largest first keeps the sum finite, and keeps equal
  # values at exactly 1.
  values = jnp.where(keep, values, 0.0)
  largest = jnp.max(values)
  scaled = values / jnp.where(largest > 0, largest, 1)
  mean = reductions.masked_mean(scaled, keep)
  return scaled / jnp.where(mean > 0, mean, 1)


def capped_weights(
  weights: jax.Array, cap: float, valid: jax.Array | None = None
) -> jax.Array:
  """min(w, cap), scaled so that valid weights have mean 1 again.

  A truncation of the weights of paper 003, equation 3, which is not in the
  paper. weights: [B] or [B, K], >= 0, of mean 1 over the valid ones (as
  `duration_weights` gives them), so that the cap is in means. cap: 0 is no
  cap (the weights as they are), else 1 or more. valid: as weights; invalid
  entries get 0. Scaling may lift the largest above the cap again, to cap /
  mean(min(w, cap)). Equal weights give 1 exactly.

  Raises: ValueError for a cap that is neither 0 nor 1 or more.
  """
  if not (cap == 0 or cap >= 1):
    raise ValueError(
      f'cap={cap!r} must be 0 (no cap) or 1 or more (usual: 3; at 1 all that '
      'is above the mean is cut to it).'
    )
  weights = jnp.asarray(weights)
  weights = weights.astype(jnp.result_type(weights.dtype, float))
  keep = jnp.ones(weights.shape, bool)
  if valid is not None:
    keep = jnp.asarray(valid) > 0
  if cap == 0:
    return jnp.where(keep, weights, 0.0)
  return _to_mean_one(jnp.minimum(weights, cap), keep)


def importance_weights(
  logp: jax.Array,
  behaviour_logp: jax.Array,
  mask: jax.Array,
  *,
  level: str,
  cap: float,
  segment_ids: jax.Array | None = None,
) -> jax.Array:
  """Truncated importance sampling: min(p / p_behaviour, cap) [B, T].

  level 'token': each token's own ratio. 'sequence': the product over the
  sequence's policy tokens (a row, or a segment of a packed row), on each of
  them. Log-ratios are clipped to +-20 first. 0 outside the mask; constant
  for gradients. `logp` is the policy at the start of the update (decoupled
  PPO: the clipped ratio then compares the current policy with that one).

  Raises: ValueError for an unknown level or a cap that is not positive.
  """
  reductions.choose(level, IMPORTANCE_LEVELS, 'importance-weight level')
  if not cap > 0:
    raise ValueError(f'cap={cap!r} must be greater than zero (usual: 2).')
  ratio = reductions.select(logp, mask) - reductions.select(
    behaviour_logp, mask
  )
  if level == 'sequence':
    flat = reductions._sequence_ids(ratio.shape, segment_ids).reshape(-1)
    n_ids = ratio.shape[0] * (1 if segment_ids is None else ratio.shape[1] + 1)
    sums = jax.ops.segment_sum(ratio.reshape(-1), flat, num_segments=n_ids)
    ratio = sums[flat].reshape(ratio.shape)
  ratio = jnp.clip(ratio, -LOG_RATIO_BOUND, LOG_RATIO_BOUND)
  weights = jnp.minimum(jnp.exp(ratio), cap)
  return jax.lax.stop_gradient(reductions.select(weights, mask))


def effective_share(
  weights: jax.Array, valid: jax.Array | None = None
) -> jax.Array:
  """Effective sample size as a share: (sum w)^2 / (n sum w^2), in (0, 1].

  weights: >= 0, any shape; valid: as weights, the n that count (default: all).
  1 where all are equal, 1 / n where one has all the weight, and 1 where there
  is none. Of duration weight times importance ratio it falls before
  asynchronous runs collapse (VCPO, arXiv 2602.17616).
  """
  weights = jnp.asarray(weights)
  weights = weights.astype(jnp.result_type(weights.dtype, float))
  keep = jnp.ones(weights.shape, bool)
  if valid is not None:
    keep = jnp.asarray(valid) > 0
  # Over the largest first: squares of large ratios overflow.
  largest = jnp.max(jnp.where(keep, weights, 0.0))
  scaled = jnp.where(keep, weights, 0.0) / jnp.where(largest > 0, largest, 1)
  squares = jnp.sum(keep) * jnp.sum(jnp.square(scaled))
  share = jnp.square(jnp.sum(scaled)) / jnp.where(squares > 0, squares, 1)
  return jnp.where(squares > 0, share, 1.0)
