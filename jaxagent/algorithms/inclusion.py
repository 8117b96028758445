"""Inverse inclusion probabilities for first-n-of-M scheduling.

M actions start together, their durations drawn independently from F; the n
that finish first enter the update and the rest are cancelled. An action with
duration d is in where fewer than n of the other M - 1 finish before it:
  pi(d) = P(Binomial(M - 1, F(d)) <= n - 1).
With an atom at d, F jumps from a = F(d-) to b = F(d); ties are broken at
random, which is as if u were uniform on [a, b]:
  pi(d) = 1 / (b - a) integral_a^b P(Binomial(M - 1, u) <= n - 1) du.
The integral is taken by Gauss-Legendre quadrature; the binomial tail is the
incomplete beta function I_{1-u}(M - n, n). Weighting by 1 / pi makes the
expected weighted sum over the kept equal to the sum over everything started
(Horvitz-Thompson); dividing by the weights' mean (Hajek) makes it a mean.
It is neither dt nor 1 / dt: it depends on M, n and the whole of F.

F is estimated from durations of which the cancelled are only known to exceed
the moment of the cut: Kaplan-Meier, with the mass that is left beyond the
longest one seen put on that one (Efron). With nothing but the batch at hand
the k-th fastest so has mass 1/M and the slowest kept stands for all that was
cut. With the durations of past batches (finished and cut) F is better known.
Where pi is below 1 / cap, positivity fails for practical purposes: the
weight is capped, which leaves some bias, and counted.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(48)
DEFAULT_CAP = 20.0


def kaplan_meier(
  durations_s: jax.Array, finished: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
  """Sorted durations [R] and their probability masses [R], summing to 1.

  finished [R]: False where the duration is only a lower bound (cancelled
  then). Censored entries get no mass of their own; at equal times the
  finished come first. The mass beyond the last finished one goes to it.
  """
  durations = jnp.asarray(durations_s)
  durations = durations.astype(jnp.result_type(durations.dtype, float))
  n = durations.shape[0]
  if finished is None:
    finished = jnp.ones(n, bool)
  finished = jnp.asarray(finished, bool)
  order = jnp.lexsort((~finished, durations))
  durations, finished = durations[order], finished[order]
  at_risk = n - jnp.arange(n)
  hazard = jnp.where(finished, 1.0 / at_risk, 0.0).astype(durations.dtype)
  after = jnp.cumprod(1 - hazard)
  before = jnp.concatenate([jnp.ones(1, after.dtype), after[:-1]])
  masses = before * hazard
  last = n - 1 - jnp.argmax(finished[::-1])
  return durations, masses.at[last].add(1 - jnp.sum(masses))


def inclusion_probabilities(
  durations_s: jax.Array,
  n_kept: int,
  n_dispatched: int,
  reference_s: jax.Array,
  masses: jax.Array,
) -> jax.Array:
  """pi(d) [B] for durations [B], with F given by atoms [R] and masses [R].

  F(d-) and F(d) count the reference strictly below and up to d.
  """
  durations = jnp.asarray(durations_s)
  durations = durations.astype(jnp.result_type(durations.dtype, float))
  reference = jnp.asarray(reference_s, durations.dtype)
  masses = jnp.asarray(masses, durations.dtype)
  if n_kept >= n_dispatched:
    return jnp.ones_like(durations)
  below = (reference[None, :] < durations[:, None]) @ masses
  up_to = (reference[None, :] <= durations[:, None]) @ masses
  nodes = jnp.asarray(0.5 * (_NODES + 1), durations.dtype)
  u = below[:, None] + (up_to - below)[:, None] * nodes
  u = jnp.clip(u, 0.0, 1.0)
  tail = jax.scipy.special.betainc(
    float(n_dispatched - n_kept), float(n_kept), 1.0 - u
  )
  return jnp.sum(tail * jnp.asarray(0.5 * _NODE_WEIGHTS, u.dtype), axis=1)


def inverse_probability_weights(
  probabilities: jax.Array, *, cap: float = DEFAULT_CAP
) -> tuple[jax.Array, dict[str, jax.Array]]:
  """min(1 / pi, cap), divided by its mean [B]; and what happened.

  For any scheduler whose inclusion probabilities are known: for drops by a
  staleness bound, 1 minus the drop rate of the duration's bucket.
  """
  if not cap >= 1:
    raise ValueError(f'cap={cap!r} must be 1 or more (1 turns weights off).')
  probabilities = jnp.asarray(probabilities)
  failing = ~(probabilities * cap >= 1.0)
  safe = jnp.where(failing, 1.0, probabilities)
  raw = jnp.where(failing, cap, 1.0 / safe)
  weights = raw / jnp.mean(raw)
  effective = jnp.square(jnp.sum(raw)) / jnp.sum(jnp.square(raw))
  return weights, {
    'duration/inclusion_positivity_failures': jnp.sum(failing),
    'duration/inclusion_weight_max': jnp.max(weights),
    'duration/inclusion_effective_fraction': effective / raw.shape[0],
    'duration/inclusion_probability_min': jnp.min(probabilities),
  }
