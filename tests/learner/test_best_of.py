"""The learner's estimators that rank scores on the host."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest

from jaxagent import algorithms
from jaxagent.data import batching
from jaxagent.learner import LearnerConfig, advantages
from tests.learner.conftest import make_samples

# As `solution.scale=task` pays, beside two failures.
REWARDS = [-1.0, 0.97001, 0.97002, 0.98, -0.99, 0.5, 0.5, 0.6]


def estimated(estimator, weights=None, **options):
  """[N] the advantage of each sample, and the samples' groups; weights: [N]."""
  samples = [
    dataclasses.replace(s, reward=r)
    for s, r in zip(make_samples(8, observation=False), REWARDS)
  ]
  width = max(len(s.token_ids) for s in samples)
  tables = batching.sample_tables(samples, width)
  if weights is not None:
    tables['weights'] = np.repeat(np.array(weights)[:, None], width, axis=1)
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


@pytest.mark.parametrize('estimator', ['best_of', 'max_rl', 'entropic'])
def test_a_weighted_baseline_takes_the_duration_weights(estimator):
  seconds = [0.5, 4.0, 0.25, 2.0, 1.0, 0.5, 8.0, 1.5]
  given = {'best_of': 2} if estimator != 'entropic' else {}
  found, groups = estimated(estimator, seconds, baseline='weighted', **given)
  k = {'k': 2} if given else {}
  exact = getattr(algorithms, f'{estimator}_advantages')(
    np.array(REWARDS),
    groups.tolist(),
    baseline_weights=np.array(seconds),
    **k,
  )
  np.testing.assert_allclose(
    found, exact / np.sqrt(np.mean(exact**2)), rtol=1e-6, atol=1e-6
  )
  plain, _ = estimated(estimator, seconds, **given)
  assert np.abs(found - plain).max() > 0.05


@pytest.mark.parametrize('estimator', ['rloo', 'dr_grpo', 'grpo'])
def test_so_do_the_estimators_on_the_device(estimator):
  samples = [
    dataclasses.replace(s, reward=r)
    for s, r in zip(make_samples(8, observation=False), REWARDS)
  ]
  width = max(len(s.token_ids) for s in samples)
  tables = batching.sample_tables(samples, width)
  seconds = np.array([0.5, 4.0, 0.25, 2.0, 1.0, 0.5, 8.0, 1.5], np.float32)
  tables['weights'] = np.repeat(seconds[:, None], width, axis=1)
  tables['old_logp'] = tables['behaviour_logprobs']
  groups = np.array([int(s.group_id) for s in samples], np.int32)
  padded = advantages.pad_tables(tables, groups, advantages.first_rows(samples))
  config = LearnerConfig(estimator=estimator, baseline='weighted', kl_coef=0.0)
  found = advantages.compute(*padded, np.float32(0), config=config)
  plain = {
    'rloo': algorithms.leave_one_out_advantages,
    'grpo': algorithms.group_relative_advantages,
    'dr_grpo': functools.partial(
      algorithms.group_relative_advantages, normalize_std=False
    ),
  }[estimator]
  scores = np.array(REWARDS, np.float32)
  np.testing.assert_allclose(
    np.asarray(found['advantages'])[:8, 0],
    seconds * np.asarray(plain(scores, groups, weights=seconds)),
    rtol=1e-5,
    atol=1e-5,
  )


def test_equal_rewards_teach_nothing_whatever_they_are():
  samples = [dataclasses.replace(s, reward=0.7) for s in make_samples(8)]
  width = max(len(s.token_ids) for s in samples)
  tables = batching.sample_tables(samples, width)
  groups = np.array([int(s.group_id) for s in samples], np.int32)
  first = advantages.first_rows(samples)
  for estimator in ('best_of', 'max_rl', 'entropic'):
    config = LearnerConfig(estimator=estimator)
    assert not advantages.of_the_best(tables, groups, first, config).any()


def test_scores_nearer_than_the_ties_are_equal():
  found, groups = estimated('best_of', best_of=2, ties=0.001)
  rounded = np.round(np.array(REWARDS) / 0.001) * 0.001
  exact = algorithms.best_of_advantages(rounded, groups.tolist(), 2)
  np.testing.assert_allclose(
    found, exact / np.sqrt(np.mean(exact**2)), rtol=1e-6, atol=1e-6
  )
  assert found[1] == found[2]  # 0.97001 and 0.97002
  plain, _ = estimated('best_of', best_of=2)
  assert plain[1] < plain[2]


def test_samples_of_one_prompt_are_a_group_whatever_was_drawn_together():
  samples = make_samples(6)
  same, other = samples[0].prompt_ids, samples[0].prompt_ids + 1
  given = [same, other, same, other, same, same[:-1]]
  rows = [
    dataclasses.replace(s, group_id=str(i // 2), prompt_ids=ids)
    for i, (s, ids) in enumerate(zip(samples, given))
  ]
  first = advantages.first_rows(rows)
  drawn = advantages.groups_of(rows, first, 'drawn')
  assert drawn.tolist() == [0, 0, 1, 1, 2, 2]
  by_prompt = advantages.groups_of(rows, first, 'prompt')
  assert by_prompt.tolist() == [0, 1, 0, 1, 0, 2]
  # A later row of an interaction belongs to the prompt of its first one.
  later = dataclasses.replace(rows[1], prompt_id=rows[0].prompt_id)
  rows = [rows[0], later, *rows[2:]]
  first = advantages.first_rows(rows)
  assert advantages.groups_of(rows, first, 'prompt')[1] == 0


def test_a_kl_in_the_reward_is_refused_where_scores_are_ranked():
  with pytest.raises(ValueError, match="'best_of' ranks scores, which kl_in"):
    LearnerConfig(estimator='best_of', kl_in='reward', kl_kind='k1')
