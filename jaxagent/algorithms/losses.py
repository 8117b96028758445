"""Policy and value losses over arrays [B, T]."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from jaxagent.algorithms import reductions
from jaxagent.algorithms.weights import LOG_RATIO_BOUND


@dataclasses.dataclass(frozen=True)
class Clips:
  """Bounds of the ratio in `policy_loss`.

  clip_low, clip_high: it counts within [1 - clip_low, 1 + clip_high];
    clip_high > clip_low is DAPO's clip-higher.
  dual_clip: c, the bound of the loss where A < 0; None for no bound.

  Raises ValueError for clips outside [0, 1) and [0, inf), or dual_clip <= 1.
  """

  clip_low: float
  clip_high: float
  dual_clip: float | None = None

  def __post_init__(self):
    if not 0 <= self.clip_low < 1:
      raise ValueError(f'clip_low={self.clip_low!r} must be in [0, 1).')
    if not self.clip_high >= 0:
      raise ValueError(f'clip_high={self.clip_high!r} must be zero or more.')
    if self.dual_clip is not None and not self.dual_clip > 1:
      raise ValueError(
        f'dual_clip={self.dual_clip!r} must be greater than 1, or None for no '
        'bound.'
      )


def policy_loss(
  logp: jax.Array,
  old_logp: jax.Array,
  advantages: jax.Array,
  mask: jax.Array,
  clips: Clips,
  aggregation: reductions.Aggregation,
  importance_weights: jax.Array | None = None,
) -> tuple[jax.Array, dict[str, jax.Array]]:
  """PPO's clipped loss, to be minimised.

    ratio = exp(clip(logp - old_logp, -20, 20))
    L = max(-A ratio, -A clip(ratio, 1 - clip_low, 1 + clip_high))
    dual clip c: where A < 0, L = min(L, -A c)
  `old_logp` is the policy at the start of the update. `importance_weights`
  multiply L before aggregation (decoupled PPO); no gradient flows through them,
  nor through A.

  Args: all arrays [B, T]; advantages may be [B].
  Returns: (loss, metrics); metrics are means over this call's mask.
  """
  logp = reductions.select(logp, mask)
  old_logp = reductions.select(old_logp, mask)
  advantages = jnp.asarray(advantages)
  if advantages.ndim == 1:
    advantages = jnp.broadcast_to(advantages[:, None], logp.shape)
  advantages = jax.lax.stop_gradient(reductions.select(advantages, mask))
  log_ratio = jnp.clip(logp - old_logp, -LOG_RATIO_BOUND, LOG_RATIO_BOUND)
  ratio = jnp.exp(log_ratio)
  plain = -advantages * ratio
  clipped = -advantages * jnp.clip(
    ratio, 1.0 - clips.clip_low, 1.0 + clips.clip_high
  )
  losses = jnp.maximum(plain, clipped)
  lower = jnp.zeros_like(losses)
  if clips.dual_clip is not None:
    bound = -advantages * clips.dual_clip
    lower = (losses > bound) & (advantages < 0)
    losses = jnp.where(advantages < 0, jnp.minimum(losses, bound), losses)
  if importance_weights is not None:
    weights = reductions.select(importance_weights, mask)
    losses = losses * jax.lax.stop_gradient(weights)
  loss = aggregation(losses, mask)
  mean = lambda x: reductions.masked_mean(x.astype(losses.dtype), mask)  # noqa: E731
  metrics = {
    'actor/pg_loss': loss,
    'actor/pg_clipfrac': mean(clipped > plain),
    'actor/pg_clipfrac_lower': mean(lower),
    'actor/ppo_kl': mean(-log_ratio),
  }
  return loss, jax.lax.stop_gradient(metrics)


def value_loss(
  values: jax.Array,
  old_values: jax.Array,
  returns: jax.Array,
  mask: jax.Array,
  *,
  clip: float,
  aggregation: reductions.Aggregation,
) -> tuple[jax.Array, dict[str, jax.Array]]:
  """0.5 agg(max((v - R)^2, (clip(v, V_old - c, V_old + c) - R)^2)).

  All arrays [B, T]. Returns (loss, metrics). Source: PPO2, as in verl.
  Raises: ValueError for a clip not above zero.
  """
  if not clip > 0:
    raise ValueError(
      f'clip={clip!r} must be greater than zero (float("inf") for none).'
    )
  values = reductions.select(values, mask)
  old_values = jax.lax.stop_gradient(reductions.select(old_values, mask))
  returns = jax.lax.stop_gradient(reductions.select(returns, mask))
  clipped = jnp.clip(values, old_values - clip, old_values + clip)
  plain_error = jnp.square(values - returns)
  clipped_error = jnp.square(clipped - returns)
  loss = 0.5 * aggregation(jnp.maximum(plain_error, clipped_error), mask)
  clipfrac = (clipped_error > plain_error).astype(values.dtype)
  metrics = {
    'critic/vf_loss': loss,
    'critic/vf_clipfrac': reductions.masked_mean(clipfrac, mask),
    'critic/vf_explained_var': explained_variance(values, returns, mask),
  }
  return loss, jax.lax.stop_gradient(metrics)


def explained_variance(
  values: jax.Array, returns: jax.Array, mask: jax.Array
) -> jax.Array:
  """1 - var(R - V) / var(R) over the mask; 0 where returns do not vary."""
  spread = reductions.masked_variance(returns, mask)
  rest = reductions.masked_variance(
    reductions.select(returns, mask) - reductions.select(values, mask), mask
  )
  return jnp.where(spread > 0, 1 - rest / jnp.where(spread > 0, spread, 1), 0.0)
