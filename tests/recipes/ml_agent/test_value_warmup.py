"""The critic's samples: every collected step that has a reward."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace as types_of

import numpy as np
import pytest

from configs import stepwise_ppo
from jaxagent import types
from jaxagent.recipes.ml_agent import value_warmup
from jaxagent.rewards.ml_agent import sigmoid
from tests import made

STATE = types.State('s0', 'task', {'train.py': ''}, None, None)


class _Tokenizer:
  def encode_response(self, text):
    return list(range(len(text)))


@dataclasses.dataclass
class _Policy:
  tokenizer = _Tokenizer()
  sampling = types.Sampling(max_new_tokens=8)

  def prompt_ids(self, state):
    assert state.task == 'task'
    return np.arange(3, dtype=np.int32)


def _step(response, gain, outcome='ok'):
  """gain: of the score, times alpha; None: no edit."""
  record = made.step(
    outcome,
    response=response,
    valid_action=outcome != 'invalid_action',
    is_edit=gain is not None,
    alpha=1.0,
    score_before=0.0,
    score_after=gain,
    exec_s=1.0,
  )
  # The reward is that of the experts' run, not of this one.
  return made.taken(record, state='key', reward=-7.0)


STEPS = (
  _step('good', 0.7),
  _step('bad', None, 'invalid_action'),
  _step('ours', None, 'infrastructure'),
  _step('longer than the engine allows', 0.9),
  _step('read', None),
)


def _samples(**options):
  return value_warmup.samples_of(
    [made.collected(*STEPS, task='task', index=4)],
    _Policy(),
    {'key': STATE}.__getitem__,
    **{'switches': {}, **options},
  )


def test_failed_steps_count_and_what_has_no_reward_does_not():
  found = _samples()
  assert [(s.reward, len(s.token_ids)) for s in found] == [
    (pytest.approx(sigmoid(0.7)), 4),
    (0.0, 3),
    (0.5, 4),
  ]
  assert len({s.prompt_id for s in found}) == 3
  assert found[1].outcome is types.Outcome.INVALID_ACTION


def test_the_reward_is_the_one_that_rl_is_trained_on():
  assert [s.reward for s in _samples(switches={'binary': True})] == [
    1.0,
    0.0,
    0.5,
  ]
  switches = {'binary': True, 'format_term': False}
  assert [s.reward for s in _samples(switches=switches)] == [1.0, 0.5, 0.5]


def test_in_whole_trajectories_a_step_is_worth_what_follows_too():
  binary = {'binary': True}
  found = _samples(switches=binary, horizon=4)
  assert [s.reward for s in found] == [2.0, 1.0]  # the long one earns, too
  assert [s.reward for s in _samples(switches=binary, horizon=9)] == [
    2.5,
    1.5,
    0.5,
  ]


@pytest.mark.parametrize('tasks, want', [((), {'a', 'b'}), (('b',), {'b'})])
def test_only_the_tasks_of_rl(tasks, want, monkeypatch):
  config = stepwise_ppo.get_config('tiny')
  config.rl.tasks = tasks
  host = types_of(
    config=config, heldin=('a', 'b'), env=types_of(store=types_of(get=None))
  )
  seen = {}
  monkeypatch.setattr(
    value_warmup,
    'samples_of',
    lambda own, *_, **options: seen.update(options, own=own),
  )
  records = [made.collected(task=t) for t in 'abc']
  value_warmup._samples(host, None, records, 1)
  assert {r.task for r in seen['own']} == want and seen['horizon'] == 1
  value_warmup._samples(host, None, [], config.episode.max_steps)
  assert seen['horizon'] == config.episode.max_steps


def test_each_epoch_is_another_seeded_order_of_whole_batches():
  found = list(value_warmup._batches(list(range(10)), 4, 2, seed=1))
  assert [len(b) for b in found] == [4] * 4
  assert found[:2] != found[2:]
  assert len({*found[0], *found[1]}) == 8
  again = list(value_warmup._batches(list(range(10)), 4, 2, seed=1))
  assert again == found
