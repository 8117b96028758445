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
from jaxagent.types import OPERATORS, Outcome
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


def _by_hand(score, others, k):
  """K (S - U): each maximum over K with it, and over K without it, by hand."""
  k = min(k, len(others))
  s = np.mean([max((score, *c)) for c in itertools.combinations(others, k - 1)])
  u = np.mean([max(c) for c in itertools.combinations(others, k)])
  return k * (s - u)


@pytest.mark.parametrize('k', [2, 3, 6])
@pytest.mark.parametrize('ties', [0.0, 0.1])
def test_the_critic_is_paid_what_a_score_adds_to_the_best(k, ties):
  """Three interactions of kind x, the first of two rows, and one of kind y."""
  plain = make_samples(5, observation=False)
  rewards, later = [0.1, 0.4, 0.8, 0.31, 0.9], [0.4, 0.0, 0.0, 0.0, 0.0]
  ids = ['p', 'p', 'q', 'r', 's']
  samples = [
    dataclasses.replace(s, reward=r, later_reward=after, prompt_id=name)
    for s, r, after, name in zip(plain, rewards, later, ids)
  ]
  width = max(len(s.token_ids) for s in samples)
  tables = batching.sample_tables(samples, width)
  tables['weights'] = np.repeat([[1.0], [2], [3], [4], [5]], width, axis=1)
  first = advantages.first_rows(samples)
  groups = np.array([0, 0, 0, 0, 1], np.int32)
  window = ScoreWindow(8)
  window.add(['x'] * 3 + ['y'], np.array([0.3, 0.3, 0.72, 2.0]), np.ones(4))
  past = window.past(['x', 'x', 'x', 'x', 'y'], groups)
  config = LearnerConfig(estimator='gae', best_of=k, window=8, ties=ties)
  found = advantages.for_the_critic(tables, groups, first, config, past)

  def tied(scores):
    return [round(x / ties) * ties if ties else x for x in scores]

  own, before = tied([0.5, 0.8, 0.31]), tied([0.3, 0.3, 0.72])
  want = [
    _by_hand(x, [*own[:i], *own[i + 1 :], *before], k)
    for i, x in enumerate(own)
  ] + [_by_hand(0.9, [2.0], k)]
  for row, (reward, after) in enumerate(
    [(0, want[0]), (want[0], 0), (want[1], 0), (want[2], 0), (want[3], 0)]
  ):
    end = np.flatnonzero(tables['mask'][row])[-1]
    for name, value in (('rewards', reward), ('later', after)):
      assert np.count_nonzero(found[name][row]) == bool(value)
      assert found[name][row, end] == pytest.approx(value, rel=1e-5, abs=1e-7)


def test_what_gae_fits_its_critic_to_is_that_reward():
  samples = [
    dataclasses.replace(s, reward=r)
    for s, r in zip(make_samples(3, observation=False), (0.2, 0.9, 0.4))
  ]
  width = max(len(s.token_ids) for s in samples)
  tables = batching.sample_tables(samples, width)
  mask = tables['mask']
  zeros = np.zeros_like(mask)
  tables |= {'weights': mask, 'values': zeros, 'old_logp': zeros}
  first, groups = advantages.first_rows(samples), np.zeros(3, np.int32)
  config = LearnerConfig(
    estimator='gae', best_of=2, window=8, kl_coef=0.0, importance_level='none'
  )
  past = ScoreWindow(8).past(['x'] * 3, groups)  # nothing yet: each other alone
  paid = advantages.for_the_critic(tables, groups, first, config, past)
  out = advantages.compute(
    tables | paid, groups, first, np.float32(0), config=config
  )
  for row, (score, others) in enumerate(
    [(0.2, [0.9, 0.4]), (0.9, [0.2, 0.4]), (0.4, [0.2, 0.9])]
  ):
    returns = np.asarray(out['returns'])[row][mask[row] > 0]
    assert returns == pytest.approx(_by_hand(score, others, 2), abs=1e-6)


def test_what_each_operator_asks_for_is_a_kind_of_its_own():
  made = [
    SolutionRecord(
      outcome=Outcome.OK, task='t', operator=operator, improves='x'
    )
    for operator in OPERATORS
  ]
  assert [record.compared_with for record in made] == [
    't', 't, improved', 't, debugged', 't, crossed',
  ]  # fmt: skip


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
@pytest.mark.parametrize('estimator', ['best_of', 'gae'])
def test_a_resumed_learner_compares_with_the_same_scores(
  model_config, estimator
):
  config = dataclasses.replace(CONFIG, estimator=estimator)
  one, two = (Learner(model_config, config, seed=1) for _ in range(2))
  one.start_rl()
  two.start_rl()
  one.rl_update(_batch(0))
  assert one.host_state()['window'] == {
    't': [[pytest.approx(s.reward), 1.0] for s in _batch(0)]
  }
  two.load_state(jax.tree.map(np.array, one.state()))
  two.load_host_state(json.loads(json.dumps(one.host_state())))
  fresh = Learner(model_config, config, seed=1)
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
