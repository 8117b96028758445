"""Choice of the experts' steps that SFT learns from."""

import dataclasses

import pytest

from jaxagent.data.expert_steps import training_steps
from jaxagent.data.records import state_to_json
from jaxagent.types import State
from tests import made


def _step(score=None, *, outcome='ok', valid=True, alpha=2.0, start=0.5):
  record = made.step(
    outcome, valid_action=valid, score_after=score, alpha=alpha
  )
  state = state_to_json(State('s', 'wine', {}, start, start))
  return made.taken(record, state=state)


def _none(key):
  raise AssertionError(f'{key} was asked for')


def test_valid_actions_that_ran():
  steps = [_step(), _step(outcome='script_error'), _step(valid=False)]
  ((state, record),) = training_steps([made.collected(*steps)], _none)
  assert isinstance(state, State) and record is steps[0].record


@pytest.mark.parametrize('improved', [False, True])
def test_states_are_looked_up_by_their_keys(improved):
  states = {f'key {i}': State(f's{i}', 'wine', {}, 0.5, 0.5) for i in range(3)}
  steps = [
    dataclasses.replace(_step(0.6, valid=i != 1), state=key)
    for i, key in enumerate(states)
  ]
  record = made.collected(*steps)
  kept = list(training_steps([record], states.get, improved=improved))
  assert [state.state_id for state, _ in kept] == ['s0', 's2']


@pytest.mark.parametrize(
  'score, alpha, better',
  [(0.6, 2.0, True), (0.4, 2.0, False), (0.4, -2.0, True), (0.5, 2.0, False),
   (None, 2.0, False), (0.6, None, False)],
)  # fmt: skip
def test_of_trajectories_that_were_once_better(score, alpha, better):
  record = made.collected(_step(), _step(score, alpha=alpha), _step(0.45))
  worse = made.collected(_step(0.5), _step(0.5))
  kept = list(training_steps([record, worse], _none, improved=True))
  assert len(kept) == (3 if better else 0)
  assert len(list(training_steps([record, worse], _none))) == 5


def test_without_a_score_to_begin_with():
  records = [made.collected(_step(0.6, start=None)), made.collected()]
  assert not list(training_steps(records, _none, improved=True))
