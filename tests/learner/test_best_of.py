"""The learner's estimators that rank scores on the host."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from jaxagent import algorithms
from jaxagent.data import batching
from jaxagent.learner import LearnerConfig, advantages
from tests.learner.conftest import make_samples

# As `solution.scale=task` pays, beside two failures.
REWARDS = [-1.0, 0.97001, 0.97002, 0.98, -0.99, 0.5, 0.5, 0.6]


def estimated(estimator, **options):
  """[N] the advantage of each sample, and the samples' scores and groups."""
  samples = [
    dataclasses.replace(s, reward=r)
    for s, r in zip(make_samples(8, observation=False), REWARDS)
  ]
  width = max(len(s.token_ids) for s in samples)
  tables = batching.sample_tables(samples, width)
  groups = np.array([int(s.group_id) for s in samples], np.int32)
  first = advantages.first_rows(samples)
  config = LearnerConfig(estimator=estimator, **options)
  found = advantages.of_the_best(tables, groups, first, config)
  assert (found[tables['mask'] == 0] == 0).all()
  return found[:, 0], groups  # the first token is the policy's


@pytest.mark.parametrize('estimator', ['best_of', 'max_rl', 'entropic'])
def test_advantages_have_one_root_mean_square_a_batch(estimator):
  found, _ = estimated(estimator)
  assert np.sqrt(np.mean(found**2)) == pytest.approx(1, rel=1e-6)


def test_the_best_of_k_is_the_exact_one_up_to_that_scale():
  found, groups = estimated('best_of', best_of=2)
  exact = algorithms.best_of_advantages(np.array(REWARDS), groups.tolist(), 2)
  np.testing.assert_allclose(
    found, exact / np.sqrt(np.mean(exact**2)), rtol=1e-6, atol=1e-6
  )
  # The best of each group gains, and its failure loses most.
  for group in (0, 1):
    own = np.flatnonzero(groups == group)
    scores = np.array(REWARDS)[own]
    assert own[scores.argmax()] == own[found[own].argmax()]
    assert own[scores.argmin()] == own[found[own].argmin()]


def test_equal_rewards_teach_nothing_whatever_they_are():
  samples = [dataclasses.replace(s, reward=0.7) for s in make_samples(8)]
  width = max(len(s.token_ids) for s in samples)
  tables = batching.sample_tables(samples, width)
  groups = np.array([int(s.group_id) for s in samples], np.int32)
  first = advantages.first_rows(samples)
  for estimator in ('best_of', 'max_rl', 'entropic'):
    config = LearnerConfig(estimator=estimator)
    assert not advantages.of_the_best(tables, groups, first, config).any()


def test_a_kl_in_the_reward_is_refused_where_scores_are_ranked():
  with pytest.raises(ValueError, match="'best_of' ranks scores, which kl_in"):
    LearnerConfig(estimator='best_of', kl_in='reward', kl_kind='k1')
