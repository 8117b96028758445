"""Scores of earlier updates, that the best of K of this one is compared with."""

from __future__ import annotations

import dataclasses
import itertools
import json

import jax
import numpy as np
import pytest

from jaxagent import algorithms
from jaxagent.data import batching
from jaxagent.learner import Learner, LearnerConfig, advantages
from jaxagent.learner.score_window import ScoreWindow, kinds_of
from jaxagent.records import SolutionRecord
from jaxagent.types import Outcome
from tests.learner.conftest import make_samples


def test_the_last_of_each_kind_are_kept_and_come_back_from_json():
  window = ScoreWindow(3)
  window.add(['a', 'b', 'a'], np.array([1.0, 2.0, 3.0]), np.array([1.0, 1, 2]))
  window.add(['a', 'a'], np.array([4.0, 5.0]), np.array([3.0, 4.0]))
  again = ScoreWindow(3)
  again.load(json.loads(json.dumps(window.state())))
  for one in (window, again):
    past = one.past(['c', 'a', 'a'], np.array([7, 2, 2]))
    assert past.scores.tolist() == [3.0, 4.0, 5.0]
    assert past.weights.tolist() == [2.0, 3.0, 4.0]
    assert past.group_ids.tolist() == [2, 2, 2]
  assert ScoreWindow(3).past(['a'], np.array([0])).scores.size == 0


@pytest.mark.parametrize('k', [1, 2, 4])
def test_a_sample_alone_is_compared_with_all_subsets_of_the_past(k):
  """S less what the best of K of the past is on average, each taken by hand."""
  past = [0.1, 0.5, 0.5, 0.9, 0.2]
  for score in (0.05, 0.5, 0.7, 1.0):
    found = algorithms.best_of_advantages(np.array([score, *past]), [0] * 6, k)[
      0
    ]
    s = np.mean(
      [max((score, *some)) for some in itertools.combinations(past, k - 1)]
    )
    u = np.mean([max(some) for some in itertools.combinations(past, k)])
    assert found == pytest.approx(k * (s - u), abs=1e-12)


@pytest.mark.parametrize('baseline', ['mean', 'weighted'])
@pytest.mark.parametrize('estimator', ['best_of', 'entropic'])
def test_earlier_scores_are_members_without_an_advantage(estimator, baseline):
  rewards = np.array([0.3, 0.8, 0.1, 0.9])
  samples = [
    dataclasses.replace(s, reward=r)
    for s, r in zip(make_samples(4, observation=False), rewards)
  ]
  width = max(len(s.token_ids) for s in samples)
  tables = batching.sample_tables(samples, width)
  seconds = np.array([1.0, 2.0, 0.5, 4.0])
  tables['weights'] = np.repeat(seconds[:, None], width, axis=1)
  groups, window = np.array([0, 1, 0, 1], np.int32), ScoreWindow(8)
  window.add(['x', 'y', 'x'], np.array([0.7, 0.2, 0.6]), np.array([3.0, 1, 2]))
  past = window.past(['x', 'y', 'x', 'y'], groups)
  config = LearnerConfig(estimator=estimator, best_of=2, baseline=baseline)
  first = advantages.first_rows(samples)
  found = advantages.of_the_best(tables, groups, first, config, past)[:, 0]
  options = {'k': 2} if estimator == 'best_of' else {}
  if baseline == 'weighted':
    options['baseline_weights'] = np.append(seconds, [3.0, 2.0, 1.0])
  want = getattr(algorithms, f'{estimator}_advantages')(
    np.append(rewards, [0.7, 0.6, 0.2]), [0, 1, 0, 1, 0, 0, 1], **options
  )[:4]
  np.testing.assert_allclose(found, want / np.sqrt(np.mean(want**2)), rtol=1e-5)


def test_drafts_and_improvements_of_a_task_are_kinds_of_their_own():
  made = [
    SolutionRecord(outcome=Outcome.OK, task='t', improves=before)
    for before in ('', 'some id')
  ]
  samples = [
    dataclasses.replace(s, record=r)
    for s, r in zip(make_samples(3), (*made, None))
  ]
  first = advantages.first_rows(samples)
  assert kinds_of(samples, first) == ['t', 't, improved', '0']
  assert kinds_of(samples, np.array([0, 0, 0])) == ['t'] * 3


CONFIG = LearnerConfig(
  estimator='best_of',
  best_of=2,
  window=6,
  kl_coef=0.0,
  ppo_epochs=1,
  policy_lr=1e-2,
  importance_level='none',
)


def _batch(seed):
  """Prompts that occur once, of one task."""
  record = SolutionRecord(outcome=Outcome.OK, task='t')
  return [
    dataclasses.replace(s, group_id=s.prompt_id, record=record)
    for s in make_samples(4, seed, observation=False)
  ]


@pytest.mark.slow
def test_a_resumed_learner_compares_with_the_same_scores(model_config):
  one, two = (Learner(model_config, CONFIG, seed=1) for _ in range(2))
  one.start_rl()
  two.start_rl()
  one.rl_update(_batch(0))
  assert one.host_state()['window'] == {
    't': [[pytest.approx(s.reward), 1.0] for s in _batch(0)]
  }
  two.load_state(jax.tree.map(np.array, one.state()))
  two.load_host_state(json.loads(json.dumps(one.host_state())))
  fresh = Learner(model_config, CONFIG, seed=1)
  fresh.start_rl()
  fresh.load_state(jax.tree.map(np.array, one.state()))
  weights = []
  for learner in (one, two, fresh):
    learner.rl_update(_batch(1))
    leaves = jax.tree.leaves(learner.policy_params)
    weights.append(np.concatenate([np.ravel(x) for x in leaves]))
  np.testing.assert_array_equal(*weights[:2])
  assert np.abs(weights[0] - weights[2]).max() > 0  # the past counts
  assert len(one.host_state()['window']['t']) == 6
