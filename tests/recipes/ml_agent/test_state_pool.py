"""Which of the experts' states step-wise RL starts from."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace as stub

import pytest

from configs import stepwise_ppo
from jaxagent import types
from jaxagent.data.records import state_to_json
from jaxagent.envs.snapshots import Snapshots
from jaxagent.errors import UserError
from jaxagent.recipes.ml_agent import state_pool
from tests import made

START = types.State('same', 'a', {'train.py': ''}, 0.5, 0.5)


def _host(**rl):
  config = stepwise_ppo.get_config('tiny')
  config.rl.update({'batch_size': 1, **rl})
  env = stub(store=Snapshots(':memory:'))
  return stub(config=config, heldin=('a', 'b'), env=env)


def _record(host, task, index, *states, **step):
  keys = [host.env.store.put(dataclasses.replace(s, task=task)) for s in states]
  failed = made.step('script_error', **step)
  steps = (made.taken(failed, state=key) for key in keys)
  return made.collected(*steps, task=task, index=index)


def _with(idea):
  return dataclasses.replace(START, ideas=(idea,))


def test_a_state_counts_with_its_ideas_once_whatever_came_of_the_step():
  host = _host()
  records = [
    _record(host, 'a', 0, START, _with('deeper')),
    _record(host, 'a', 1, START, _with('wider')),
    _record(host, 'c', 0, START),
  ]
  states = state_pool.make(host, records)
  assert sorted(states) == ['a-0-0', 'a-0-1', 'a-1-1']
  assert states['a-0-1'].ideas == ('deeper',) and states['a-1-1'].ideas == (
    'wider',
  )
  assert len(states) == 3


def test_states_that_records_hold_whole_are_the_same():
  host = _host()
  record = _record(host, 'a', 0, START, _with('deeper'))
  whole = dataclasses.replace(record.steps[0], state=state_to_json(START))
  record = dataclasses.replace(record, steps=(whole, *record.steps[1:]))
  states = state_pool.make(host, [record, _record(host, 'a', 1, START)])
  assert sorted(states) == ['a-0-0', 'a-0-1'] and states['a-0-0'] == START


def test_as_many_as_are_asked_for_drawn_by_the_seed():
  host = _host(states=3)
  made = [_record(host, 'b', i, _with(str(i))) for i in range(9)]
  chosen = set(state_pool.make(host, made))
  assert len(chosen) == 3 and chosen == set(state_pool.make(host, made[::-1]))
  host.config.seed = 1
  assert chosen != set(state_pool.make(host, made))


def test_the_steps_that_begin_in_the_pool():
  host = _host(tasks=('b',))
  records = [_record(host, task, 0, START, _with('deeper')) for task in 'ab']
  states = state_pool.make(host, records)
  assert [len(r.steps) for r in states.of(records)] == [0, 2]
  assert [len(r.steps) for r in records] == [2, 2]


@pytest.mark.parametrize(
  'rl', [{'states': 3}, {'batch_size': 3}, {'tasks': ('b',)}]
)
def test_too_few_are_refused_before_anything_is_trained(rl):
  host = _host(**rl)
  records = [_record(host, 'a', 0, START, _with('deeper'))]
  with pytest.raises(
    UserError, match='left [02] states of these tasks.*rl.states'
  ):
    state_pool.make(host, records)
