"""What is done about weights that few steps hold."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from jaxagent import algorithms
from jaxagent.data import batching
from jaxagent.learner import LearnerConfig, advantages
from tests.learner.conftest import make_samples
from tests.learner.test_learner import _flat, _learner
from tests.subset import fast


@pytest.mark.parametrize(
  'weights, valid, share',
  [
    ([2.0, 2.0, 2.0], None, 1.0),
    ([0.0, 0.0, 5.0, 0.0], None, 0.25),
    ([3.0, 1.0], None, 16 / 20),
    ([3.0, 1.0, 99.0], [1, 1, 0], 16 / 20),
    ([1e30, 1e30], None, 1.0),
    ([0.0, 0.0], None, 1.0),
    ([1.0, 2.0], [0, 0], 1.0),
  ],
)
def test_the_effective_share(weights, valid, share):
  found = jax.jit(algorithms.effective_share)(
    np.array(weights, np.float32), None if valid is None else np.array(valid)
  )
  assert float(found) == pytest.approx(share)


def test_the_share_is_of_weight_times_ratio():
  """Two samples of two tokens; the second's ratio is e^0.5 * e^-0.25."""
  samples = [
    dataclasses.replace(
      s,
      token_ids=np.ones(3, np.int32),
      loss_mask=np.array([True, False, True]),
      behaviour_logprobs=np.array([-1.0, 0.0, -2.0], np.float32),
    )
    for s in make_samples(2)
  ]
  logp = np.array([[-1.0, -9.0, -2.0], [-0.5, 5.0, -2.25]], np.float32)
  w = np.array([3.0, 1.0]) * np.array([1.0, np.exp(0.25)])
  want = w.sum() ** 2 / (2 * (w**2).sum())
  found = advantages.effective_share(samples, np.array([3.0, 1.0]), logp)
  assert found == pytest.approx(want, rel=1e-5)


@pytest.mark.parametrize('step_size', fast(['ess', 'fixed'], first=1))
def test_the_step_is_scaled_by_the_root_of_the_share(model_config, step_size):
  samples = make_samples(8)
  weights = np.array([8.0, 1, 1, 1, 1, 1, 1, 1])
  plain = _learner(model_config, kl_coef=0.0)
  scaled = _learner(model_config, kl_coef=0.0, step_size=step_size)
  before = _flat(plain.policy_params), _flat(plain.value_params)
  first = plain.rl_update(samples, weights)
  second = scaled.rl_update(samples, weights)
  share = first['actor/weight_ess']
  assert 0 < share < 0.6
  assert second['actor/weight_ess'] == pytest.approx(share)
  assert first['actor/lr'] == pytest.approx(1e-2)
  factor = share**0.5 if step_size == 'ess' else 1.0
  assert second['actor/lr'] == pytest.approx(factor * first['actor/lr'])
  np.testing.assert_allclose(
    _flat(scaled.policy_params) - before[0],
    factor * (_flat(plain.policy_params) - before[0]),
    atol=2e-7,
  )
  # The critic is not weighted, so its step is its own.
  np.testing.assert_array_equal(
    _flat(scaled.value_params), _flat(plain.value_params)
  )


def _compute(**options):
  samples = make_samples(6)
  width = max(len(s.token_ids) for s in samples)
  tables = batching.sample_tables(samples, width)
  rng = np.random.default_rng(0)
  shape = tables['mask'].shape
  tables['old_logp'] = tables['behaviour_logprobs'] + rng.normal(
    0, 0.3, shape
  ).astype(np.float32)
  tables['values'] = rng.normal(size=shape).astype(np.float32)
  weights = np.array([4.0, 0.2, 1, 1, 0.5, 2], np.float32)
  tables['weights'] = batching.spread_turns(samples, weights, width)
  config = LearnerConfig(kl_coef=0.0, **options)
  own = np.arange(6, dtype=np.int32)
  out = advantages.compute(tables, own, own, np.float32(0), config=config)
  return tables, {k: np.asarray(v, np.float64) for k, v in out.items()}


@pytest.mark.parametrize('estimator', ['gae', 'reinforce_pp'])
def test_the_optimal_baseline_shifts_and_nothing_else(estimator):
  """Against its formula, from the raw advantages."""
  tables, mean = _compute(estimator=estimator)
  _, optimal = _compute(estimator=estimator, baseline='optimal')
  mask = tables['mask'] > 0
  values = tables['values'] if estimator == 'gae' else 0.0
  raw = (mean['returns'] - values)[mask]
  w = (tables['weights'] * mean['importance'])[mask]
  centre = (w**2 * raw).sum() / (w**2).sum()
  scale = np.sqrt(raw.var(ddof=1) + 1e-8)
  for found, shift in ((mean, raw.mean()), (optimal, centre)):
    np.testing.assert_allclose(
      found['advantages'][mask],
      (raw - shift) / scale * tables['weights'][mask],
      rtol=2e-3,
      atol=2e-4,
    )
  np.testing.assert_array_equal(mean['returns'], optimal['returns'])


def test_no_other_constant_gives_less_variance():
  rng = np.random.default_rng(1)
  x, w = rng.normal(1, 1, (1, 400)), rng.lognormal(0, 1, (1, 400))
  g = rng.choice([-1.0, 1.0], (1, 400))  # gradients of equal length
  best = float(algorithms.optimal_baseline(x, w, np.ones((1, 400))))

  def second_moment(b):
    return float(((w * (x - b) * g) ** 2).mean())

  assert all(second_moment(best) < second_moment(best + d) for d in (-0.1, 0.1))


def test_a_group_estimator_has_a_baseline_of_its_own():
  with pytest.raises(
    ValueError, match="estimator='rloo' takes 'mean' or 'weighted'"
  ):
    LearnerConfig(estimator='rloo', baseline='optimal')
