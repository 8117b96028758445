"""Equal rewards teach nothing: advantages are 0 exactly, not by rounding alone."""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxagent import algorithms as alg
from jaxagent.learner import LearnerConfig, advantages

SIZES = range(2, 65)
REWARDS = (
  np.random.default_rng(3).uniform(-12, 12, 300).round(1).astype(np.float32)
)
ESTIMATORS = {
  'grpo': alg.group_relative_advantages,
  'dr_grpo': functools.partial(
    alg.group_relative_advantages, normalize_std=False
  ),
  'rloo': alg.leave_one_out_advantages,
}


@pytest.mark.parametrize('name', ESTIMATORS)
def test_a_group_without_spread_has_no_advantage(name):
  """300 rewards, groups of 2 to 64 members."""
  groups = np.zeros(SIZES[-1], int)
  valid = np.arange(SIZES[-1]) < np.array(SIZES)[:, None]  # a row a size
  one = lambda scores, who: ESTIMATORS[name](scores, groups, valid=who)  # noqa: E731
  estimate = jax.jit(jax.vmap(jax.vmap(one, (None, 0)), (0, None)))
  for part in np.array_split(REWARDS, 10):
    scores = np.repeat(part[:, None], SIZES[-1], axis=1)
    np.testing.assert_array_equal(estimate(scores, valid), 0.0)


@pytest.mark.parametrize('name', ESTIMATORS)
def test_a_spread_of_rounding_is_none(name):
  """Equal sums of unequal terms: the order of addition shows in the last digit."""
  terms = np.array([0.1, 0.7, 0.3, -9.8], np.float32)
  orders = [terms[list(o)] for o in itertools.permutations(range(4))]
  scores = np.array([functools.reduce(np.add, order) for order in orders])
  assert len(set(scores)) > 1
  np.testing.assert_array_equal(
    ESTIMATORS[name](scores, np.zeros(24, int)), 0.0
  )


@pytest.mark.parametrize('name', ESTIMATORS)
def test_a_small_spread_is_one(name):
  scores = np.array([-9.8, -9.8, -9.7999], np.float32)
  found = np.asarray(ESTIMATORS[name](scores, np.zeros(3, int)))
  assert found[2] > 0 > found[0] == found[1]


@pytest.mark.parametrize('size', [2, 7, 9, 14, 64])
def test_whitening_makes_nothing_of_equal_numbers(size):
  for reward in REWARDS[:50]:
    x = jnp.full((size, 3), reward)
    mask = jnp.ones_like(x).at[0, 1].set(0)
    np.testing.assert_array_equal(alg.whiten(x, mask), 0.0)
    centre = alg.optimal_baseline(
      x, jnp.linspace(0.1, 2, size)[:, None] + 0 * x, mask
    )
    np.testing.assert_array_equal(alg.whiten(x, mask, centre), 0.0)


@pytest.mark.parametrize(
  'options',
  [
    dict(estimator='grpo'),
    dict(estimator='dr_grpo'),
    dict(estimator='rloo'),
    dict(estimator='reinforce_pp'),
    dict(estimator='reinforce_pp', baseline='optimal'),
  ],
  ids=lambda options: '-'.join(options.values()),
)
@pytest.mark.parametrize('size', [7, 9, 14])
def test_a_whole_batch_of_equal_rewards_moves_nothing(options, size):
  """As the learner computes it: weights of durations, rows of unequal lengths."""
  n, width = 2 * size, 6
  rng = np.random.default_rng(size)
  lengths = rng.integers(2, width + 1, n)
  mask = (np.arange(width) < lengths[:, None]).astype(np.float32)
  last = np.arange(width) == lengths[:, None] - 1
  weights = np.repeat(rng.uniform(0.2, 3, n)[:, None], width, 1)
  for reward in (-9.8, -9.7, -9.3, 0.1):
    tables = dict(
      mask=mask,
      rewards=np.where(last, np.float32(reward), np.float32(0)),
      later=np.zeros_like(mask),
      weights=weights.astype(np.float32),
      old_logp=-np.ones_like(mask),
      behaviour_logprobs=-1.1 * np.ones_like(mask),
      turn=np.zeros_like(mask),
    )
    config = LearnerConfig(kl_coef=0.0, **options)
    found = advantages.compute(
      tables, np.arange(n) // size, np.arange(n), 0.0, config=config
    )
    np.testing.assert_array_equal(found['advantages'], 0.0)
