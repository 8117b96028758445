"""The expected gradient of each KL estimate, by enumeration of all outcomes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxagent import algorithms as alg
from jaxagent.learner import LearnerConfig
from jaxagent.learner.config import USEFUL_KL


@pytest.fixture(autouse=True)
def double():
  with jax.enable_x64(True):
    yield


def _policies(seed: int, n: int = 7, apart: float = 0.5):
  rng = np.random.default_rng(seed)
  logits = rng.normal(size=n)
  return logits, jax.nn.log_softmax(logits + apart * rng.normal(size=n))


def _divergence(p, q):
  return jnp.sum(jnp.exp(p) * (p - q))


def _in_loss(logits, ref, kind):
  """sum_x p(x) grad k(x): the gradient of the loss term, x drawn from p."""
  p = jax.nn.softmax(logits)
  loss = lambda z: jnp.sum(
    p * alg.kl_estimate(jax.nn.log_softmax(z), ref, kind)
  )  # noqa: E731
  return jax.grad(loss)(logits)


def _in_reward(logits, ref, kind):
  """sum_x p(x) k(x) grad logp(x): what a reward of -k is ascended by."""
  logp = jax.nn.log_softmax(logits)
  fixed = jnp.exp(logp) * alg.kl_estimate(logp, ref, kind)
  return jax.grad(lambda z: jnp.sum(fixed * jax.nn.log_softmax(z)))(logits)


def _gradients(logits, ref):
  logp = jax.nn.log_softmax
  forward = jax.grad(lambda z: _divergence(logp(z), ref))(logits)
  return forward, jax.grad(lambda z: _divergence(ref, logp(z)))(logits)


CASES = {  # (where, kind) -> of (KL(policy || ref), KL(ref || policy))
  ('loss', 'k1'): lambda forward, reverse: 0 * forward,
  ('loss', 'k2'): lambda forward, reverse: forward,
  ('loss', 'k3'): lambda forward, reverse: reverse,
  ('reward', 'k1'): lambda forward, reverse: forward,
  ('reward', 'k3'): lambda forward, reverse: forward - reverse,
}


@pytest.mark.parametrize('where, kind', CASES)
@pytest.mark.parametrize('seed', range(5))
def test_each_gradient_is_the_one_that_is_documented(where, kind, seed):
  logits, ref = _policies(seed)
  found = (_in_loss if where == 'loss' else _in_reward)(logits, ref, kind)
  expected = CASES[where, kind](*_gradients(logits, ref))
  np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize('where, kind', [('reward', 'k2'), ('reward', 'k3')])
def test_near_the_reference_some_gradients_vanish_beside_the_kls(where, kind):
  """Halving the distance quarters them, and halves that of a KL."""
  norms = []
  for apart in (0.02, 0.01):
    logits, ref = _policies(0, apart=apart)
    forward, _ = _gradients(logits, ref)
    norms.append(
      [np.linalg.norm(g) for g in (_in_reward(logits, ref, kind), forward)]
    )
  (far, kl_far), (near, kl_near) = norms
  assert kl_far / kl_near == pytest.approx(2, rel=0.05)
  assert far / near == pytest.approx(4, rel=0.1)
  assert near < 0.05 * kl_near


@pytest.mark.parametrize('where', USEFUL_KL)
@pytest.mark.parametrize('kind', ['k1', 'k2', 'k3'])
def test_a_learner_takes_the_pairs_that_pull_towards_the_reference(where, kind):
  options = {'kl_in': where, 'kl_kind': kind}
  LearnerConfig(kl_coef=0.0, **options)  # not used: any will do
  if kind in USEFUL_KL[where]:
    LearnerConfig(kl_coef=0.1, **options)
  else:
    with pytest.raises(
      ValueError, match=f"kl_kind='{kind}' with kl_in='{where}'"
    ):
      LearnerConfig(kl_coef=0.1, **options)
