"""Durations to weights, with the cap, and what is logged of it."""

import numpy as np
import pytest

from configs import common, ml_agent, stepwise_ppo
from jaxagent import metrics, types
from jaxagent.learner import compiles
from jaxagent.rollout.latency import GroupLatency
from jaxagent.training import weighting
from tests import made


def _samples(durations_s):
  """One sample a duration; None is a step that executed nothing."""
  return [
    types.Sample(
      prompt_id=str(i),
      group_id=str(i),
      prompt_ids=np.zeros(1, np.int32),
      token_ids=np.zeros(1, np.int32),
      loss_mask=np.ones(1, bool),
      behaviour_logprobs=np.zeros(1, np.float32),
      version=0,
      outcome=types.Outcome.OK,
      reward=0.5,
      exec_s=1e-3 if d is None else d,
      record=made.step(tier=None if d is None else 'T2'),
    )
    for i, d in enumerate(durations_s)
  ]


def _weights(durations_s, sojourns=None, **options):
  config = common.base().rl
  config.update(options)
  weights, logged = weighting.step_weights(
    config, _samples(durations_s), sojourns
  )
  metrics.check_names(logged)
  assert weights.dtype == np.float32
  return weights, {k.removeprefix('duration/'): v for k, v in logged.items()}


def test_the_cap_is_in_means_of_what_ran():
  # Over the mean 4 s: 0.25, 0.25, 0.5, 3; cut at 2 and over 0.75.
  weights, logged = _weights([1.0, None, 1.0, 2.0, 12.0], weight_cap=2.0)
  want = np.array([1 / 3, 1, 1 / 3, 2 / 3, 8 / 3])
  np.testing.assert_allclose(weights, want, rtol=1e-6)
  ran = want[[0, 2, 3, 4]]
  assert logged == pytest.approx(
    {
      'weight_capped_fraction': 0.25,
      'weight_max_uncapped': 3.0,
      'weight_max': 8 / 3,
      'weight_ess': 16 / (4 * (ran**2).sum()),
    }
  )


def test_without_a_cap_it_is_equation_3():
  durations = [1.0, 1.0, 2.0, 12.0]
  weights, logged = _weights(durations, weight_cap=0.0)
  np.testing.assert_allclose(weights, [0.25, 0.25, 0.5, 3.0], rtol=1e-6)
  assert logged['weight_capped_fraction'] == 0.0
  assert logged['weight_max'] == logged['weight_max_uncapped']
  assert logged['weight_max'] == pytest.approx(3.0)


@pytest.mark.parametrize(
  'options, durations',
  [
    ({'weighting': 'none', 'weight_cap': 1.0}, [1.0, 50.0]),
    ({'weight_cap': 1.0}, [0.3, 0.3, None]),
    ({}, [None, None]),
  ],
)
def test_equal_weights_are_one_and_still_logged(options, durations):
  weights, logged = _weights(durations, **options)
  np.testing.assert_array_equal(weights, np.ones(len(durations)))
  assert logged == {
    'weight_capped_fraction': 0.0,
    'weight_max_uncapped': 1.0,
    'weight_max': 1.0,
    'weight_ess': 1.0,
  }


def test_the_papers_mean_is_over_the_batch():
  """There a step that ran nothing has next to no weight."""
  weights, _ = _weights(
    [1.0, None, 2.0, 3.0], weight_mean='batch', weight_cap=0.0
  )
  np.testing.assert_allclose(
    weights, np.array([1.0, 1e-3, 2.0, 3.0]) / (6.001 / 4), rtol=1e-6
  )


def _sojourns(seconds, stopped: int = 4):
  """A race in which so many more were stopped when the last one had ended."""
  return GroupLatency(
    of={str(i): s for i, s in enumerate(seconds)},
    ended=tuple(seconds),
    cut=(max(seconds),) * stopped,
    allowed=(),
    kept=len(seconds),
    started=len(seconds) + stopped,
  )


def test_inclusion_weights_are_one_where_nothing_is_lost():
  weights, logged = _weights([1.0, None, 50.0], weighting='inclusion')
  np.testing.assert_array_equal(weights, np.ones(3))
  assert logged['inclusion_probability_min'] == 1.0


def test_inclusion_weights_keep_a_cap_of_their_own():
  durations = list(np.linspace(1, 20, 16))
  options = {
    'weighting': 'inclusion',
    'rest': 'cancel',
    'sojourns': _sojourns(durations),
  }
  weights, logged = _weights(durations, weight_cap=1.0, **options)
  free, _ = _weights(durations, weight_cap=0.0, **options)
  np.testing.assert_array_equal(weights, free)
  assert logged['weight_max'] > 1.0
  assert logged['weight_capped_fraction'] == 0.0
  assert logged['inclusion_weight_max'] == pytest.approx(logged['weight_max'])
  assert 0 < logged['inclusion_probability_min'] < 1


def test_how_many_steps_ran_compiles_nothing_new():
  _weights([1.0, 2.0, None, 3.0, 4.0])
  before = compiles.count()
  for durations in ([None, 2.0, None, 3.0, 4.0], [1.0, None, None, None, None]):
    _weights(durations)
  assert compiles.count() == before


def test_a_bad_cap_is_named():
  with pytest.raises(ValueError, match='cap=0.5 must be 0 .no cap. or 1'):
    _weights([1.0, 2.0], weight_cap=0.5)


def test_the_papers_preset_keeps_the_papers_weights():
  tiny = stepwise_ppo.get_config('tiny').rl
  paper = stepwise_ppo.get_config('qwen2.5-7b').rl
  assert (tiny.weight_cap, tiny.max_staleness, tiny.updates) == (3.0, 1, 64)
  assert (paper.weight_cap, paper.max_staleness, paper.updates) == (0.0, 1, 40)


@pytest.mark.parametrize('variant, updates', [('stepwise', 39), ('', 64)])
def test_paper_000_as_printed(variant, updates):
  """Equation 5 is plain PPO: each action counts once, and each is awaited."""
  config = ml_agent.get_config(variant)
  checks = config.rl.weighting, config.rl.oversample, config.rl.rest
  assert checks == ('none', 1.0, 'wait')
  assert (config.rl.updates, config.rl.group_size) == (updates, 1)
