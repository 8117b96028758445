"""KL estimates against the reference policy, and their coefficient.

An estimate k of KL(policy || reference) can be good while its gradient is that of
something else. With x drawn from the policy and d = logp - ref_logp, in expectation:

  in the loss (the gradient of k itself):
    k1  0: the gradient of logp alone averages out
    k2  that of KL(policy || reference)
    k3  that of KL(reference || policy)
  in the reward (k times the gradient of logp):
    k1  that of KL(policy || reference)
    k2  that of no KL; near the reference it is of second order
    k3  that of KL(policy || reference) - KL(reference || policy): near the
        reference the two cancel

`tests/algorithms/test_kl.py` enumerates each. `learner.config.USEFUL_KL` holds the
pairs that pull towards the reference.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp

from jaxagent.algorithms import reductions

KL_KINDS = ('k1', 'abs', 'k2', 'k3')


def kl_estimate(logp: jax.Array, ref_logp: jax.Array, kind: str) -> jax.Array:
  """Per-token estimate of KL(policy || reference), with d = logp - ref_logp.

  k1: d. abs: |d|. k2: d^2 / 2. k3: clip(exp(-d) + d - 1, -10, 10), with -d
  clipped to +-20 first. Any shape. Source: Schulman, "Approximating KL
  divergence" (2020), with verl's clips.

  Raises: ValueError for an unknown kind.
  """
  reductions.choose(kind, KL_KINDS, 'KL estimator')
  difference = jnp.asarray(logp) - jnp.asarray(ref_logp)
  if kind == 'k1':
    return difference
  if kind == 'abs':
    return jnp.abs(difference)
  if kind == 'k2':
    return 0.5 * jnp.square(difference)
  minus = jnp.clip(-difference, -20.0, 20.0)
  # expm1 keeps float32 digits where the two policies nearly agree.
  return jnp.clip(jnp.expm1(minus) - minus, -10.0, 10.0)


@dataclasses.dataclass
class AdaptiveKL:
  """beta *= 1 + clip(kl / target - 1, -0.2, 0.2) n / horizon.

  Ziegler et al. 2019. `horizon` and `n` count the same thing (verl: samples).
  """

  init: float
  target: float
  horizon: float
  value: float = dataclasses.field(default=math.nan)

  def __post_init__(self):
    for name in ('init', 'target', 'horizon'):
      number = getattr(self, name)
      lowest = number >= 0 if name == 'init' else number > 0
      if not (math.isfinite(number) and lowest):
        raise ValueError(
          f'AdaptiveKL {name}={number!r} must be finite and positive.'
        )
    if math.isnan(self.value):
      self.value = float(self.init)

  @property
  def coefficient(self) -> float:
    return self.value

  def update(self, current_kl: float, n_steps: int) -> float:
    """Moves the coefficient; a KL that is not finite leaves it alone."""
    current_kl = float(current_kl)
    if math.isfinite(current_kl):
      error = min(max(current_kl / self.target - 1.0, -0.2), 0.2)
      self.value *= 1.0 + error * n_steps / self.horizon
    return self.value

  def state_dict(self) -> dict[str, float]:
    return {'value': self.value}

  def load_state_dict(self, state: dict[str, float]) -> None:
    self.value = float(state['value'])


class FixedKL:
  """A coefficient that stays where it is; AdaptiveKL's interface."""

  def __init__(self, value: float):
    if not (math.isfinite(value) and value >= 0):
      raise ValueError(f'FixedKL value={value!r} must be finite and >= 0.')
    self.value = float(value)

  @property
  def coefficient(self) -> float:
    return self.value

  def update(self, current_kl: float, n_steps: int) -> float:
    del current_kl, n_steps
    return self.value

  def state_dict(self) -> dict[str, float]:
    return {'value': self.value}

  def load_state_dict(self, state: dict[str, float]) -> None:
    self.value = float(state['value'])
