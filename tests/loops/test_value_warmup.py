"""The critic's samples: every collected step that has a reward."""

from __future__ import annotations

import dataclasses

import numpy as np

from jaxagent import types
from jaxagent.loops import value_warmup

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


def _step(response, reward, outcome='ok'):
  return {
    'state': 'key',
    'response': response,
    'reward': reward,
    'outcome': outcome,
    'exec_s': 1.0,
  }


def test_failed_steps_count_and_what_has_no_reward_does_not():
  steps = [
    _step('good', 0.7),
    _step('bad', 0.0, 'invalid_action'),
    _step('ours', None, 'infrastructure'),
    _step('longer than the engine allows', 0.9),
  ]
  found = value_warmup.samples_of(
    [{'task': 'task', 'index': 4, 'steps': steps}],
    _Policy(),
    {'key': STATE}.__getitem__,
  )
  assert [(s.reward, len(s.token_ids)) for s in found] == [(0.7, 4), (0.0, 3)]
  assert len({s.prompt_id for s in found}) == 2
  assert found[1].outcome is types.Outcome.INVALID_ACTION


def test_each_epoch_is_another_seeded_order_of_whole_batches():
  found = list(value_warmup._batches(list(range(10)), 4, 2, seed=1))
  assert [len(b) for b in found] == [4] * 4
  assert found[:2] != found[2:]
  assert len({*found[0], *found[1]}) == 8
  again = list(value_warmup._batches(list(range(10)), 4, 2, seed=1))
  assert again == found
