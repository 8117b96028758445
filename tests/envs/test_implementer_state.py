"""States of an Implementer's run: what a step changes, and their JSON form."""

from __future__ import annotations

import dataclasses
import json

import pytest

from jaxagent import types
from jaxagent.envs.agents.implementer import Query, Turn, write_turn
from jaxagent.envs.implementer_state import (
  Effect,
  ImplementerState,
  PastTurn,
  Program,
)

O = types.Outcome
QUERY = Query('it is stuck', '- a tree', 'a lower rmse')


def state(**changes) -> ImplementerState:
  own = {'task': 't', 'higher_is_better': True, 'files': {'train.py': 'x = 1'}}
  return ImplementerState(**own | changes)


def ran(at: ImplementerState, code: str, score=None, outcome=O.OK):
  step = PastTurn('ipython', code, 'out', outcome, score, 1.0)
  return at.after(Effect(step, {**at.files, 'made': code}, Program('ipython', code)))  # fmt: skip


def test_the_best_and_the_last_submission_are_told_apart():
  at = ran(ran(ran(state(), 'a', 0.5), 'b', 0.7), 'c', 0.6)
  assert (at.best.program.code, at.best.score, at.best.step) == ('b', 0.7, 1)
  assert (at.last.program.code, at.last.score, at.last.step) == ('c', 0.6, 2)
  assert at.files['made'] == 'c'


def test_of_a_loss_the_lower_score_is_the_best():
  at = ran(ran(state(higher_is_better=False), 'a', 0.5), 'b', 0.7)
  assert at.best.program.code == 'a'


def test_an_equal_score_does_not_replace_the_best():
  at = ran(ran(state(), 'a', 0.5), 'b', 0.5)
  assert at.best.program.code == 'a' and at.last.program.code == 'b'


def test_a_failed_program_is_the_current_one_and_no_more():
  at = ran(ran(state(), 'a', 0.5), 'b', outcome=O.SCRIPT_ERROR)
  assert at.current.code == 'b'
  assert at.best.program.code == at.last.program.code == 'a'


def test_all_steps_are_kept_whole():
  at = state()
  for number in range(40):
    at = ran(at, f'{number}' * 5000, 0.5)
  assert len(at.steps) == 40 and at.steps[0].text == '0' * 5000


def test_a_question_is_open_until_it_is_answered():
  text = write_turn(Turn('seek_help', query=QUERY))
  at = ran(state(), 'a', 0.5).with_step('seek_help', text)
  assert at.asks and at.query == QUERY and at.calls == 1
  done = at.answered('try trees')
  assert not done.asks and done.query is None and done.calls == 1
  assert done.steps[-1].observation == 'try trees' and at.asks
  with pytest.raises(ValueError, match='asks nothing'):
    done.answered('again')


def test_states_survive_json_whole():
  files = {'a.bin': types.Blob('d' * 32, 7), 'b.py': 'lone \ud800'}
  at = ran(state(files=files, start_score=0.25), 'a', 0.5)
  at = at.with_step('invalid', '\x00', 'why', O.INVALID_FORMAT)
  again = ImplementerState.from_json(json.loads(json.dumps(at.to_json())))
  assert again == at and again.state_id == at.state_id
  assert ran(at, 'b').state_id != at.state_id


def test_an_effect_survives_json_whole():
  effect = Effect(
    PastTurn('bash', 'ls', 'out', O.TIMEOUT, None, 2.0),
    {'x': types.Blob('d', 1)},
    Program('bash', 'ls'),
    tier='T2',
    untrusted='why',
    queue_s=0.5,
  )
  assert Effect.from_json(json.loads(json.dumps(effect.to_json()))) == effect


@pytest.mark.parametrize('read', [ImplementerState, Effect])
@pytest.mark.parametrize(
  'value', [{}, {'steps': 1}, {'step': None, 'files': 3}, [], None]
)
def test_what_is_no_state_is_refused_by_that_name(read, value):
  with pytest.raises(ValueError, match='damaged'):
    read.from_json(value)


def test_one_wrong_field_is_refused():
  good = ran(state(), 'a', 0.5).to_json()
  for name in good:
    bad = {k: v for k, v in good.items() if k != name}
    if name in ('start_score',):
      continue  # has a default
    with pytest.raises(ValueError, match='damaged'):
      ImplementerState.from_json(bad)
  with pytest.raises(ValueError, match='damaged'):
    ImplementerState.from_json(good | {'later': 1})


def test_states_are_values():
  at = state()
  ran(at, 'a', 0.5)
  assert at == state() and dataclasses.is_dataclass(at)
