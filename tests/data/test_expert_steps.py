"""Which of the experts' steps are learned from."""

import pytest

from jaxagent.data.expert_steps import training_steps
from jaxagent.data.records import state_to_json
from jaxagent.types import State


def _step(score=None, *, outcome='ok', valid=True, alpha=2.0, start=0.5):
  return {
    'state': state_to_json(State('s', 'wine', {}, start, start)),
    'valid_action': valid,
    'outcome': outcome,
    'score_after': score,
    'alpha': alpha,
  }


def _none(key):
  raise AssertionError(f'{key} was asked for')


def test_valid_actions_that_ran():
  steps = [_step(), _step(outcome='runtime_error'), _step(valid=False)]
  (kept,) = training_steps([{'steps': steps}], _none)
  assert isinstance(kept['state'], State)


@pytest.mark.parametrize('improved', [False, True])
def test_states_are_looked_up_by_their_keys(improved):
  states = {f'key {i}': State(f's{i}', 'wine', {}, 0.5, 0.5) for i in range(3)}
  steps = [{**_step(0.6), 'state': key} for key in states]
  steps[1]['valid_action'] = False
  kept = list(training_steps([{'steps': steps}], states.get, improved=improved))
  assert [step['state'].state_id for step in kept] == ['s0', 's2']


@pytest.mark.parametrize(
  'score, alpha, better',
  [(0.6, 2.0, True), (0.4, 2.0, False), (0.4, -2.0, True), (0.5, 2.0, False),
   (None, 2.0, False), (0.6, None, False)],
)  # fmt: skip
def test_of_trajectories_that_were_once_better(score, alpha, better):
  record = {'steps': [_step(), _step(score, alpha=alpha), _step(0.45)]}
  worse = {'steps': [_step(0.5), _step(0.5)]}
  kept = list(training_steps([record, worse], _none, improved=True))
  assert len(kept) == (3 if better else 0)
  assert len(list(training_steps([record, worse], _none))) == 5


def test_without_a_score_to_begin_with():
  records = [{'steps': [_step(0.6, start=None)]}, {'steps': []}]
  assert not list(training_steps(records, _none, improved=True))
