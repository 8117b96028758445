"""What the stages add to a record is beside it in one flat object."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxagent.records import (
  Collected,
  DamagedRecord,
  Evaluated,
  SearchStep,
  SolutionRecord,
  StepRecord,
  TakenStep,
  TrainedTurn,
  UnknownRecord,
)
from tests import made
from tests.records import strategies

texts, numbers = strategies.texts, strategies.numbers
any_record = st.one_of(
  strategies.records(StepRecord), strategies.records(SolutionRecord)
)
steps = st.builds(
  TakenStep,
  record=any_record,
  reward=st.none() | numbers,
  state=st.none() | texts,
  workspace_id=st.none() | texts,
  submission=st.none() | st.tuples(texts, st.integers(0, 9)),
  tokens=st.none() | st.integers(0, 9),
  answer_s=st.none() | numbers,
  edited=st.none() | texts,
)
searched = st.builds(
  SearchStep, record=any_record, parent=st.none() | st.integers(0, 9)
)
evaluated = st.builds(
  Evaluated,
  task=texts,
  index=st.integers(0, 9),
  split=texts,
  score=st.none() | numbers,
  steps=st.lists(steps | searched, max_size=2).map(tuple),
  missing=st.booleans(),
  reason=texts,
  part=texts,
  private_by_step=st.none() | st.just((None, 0.5)),
)
collected = st.builds(
  Collected,
  task=texts,
  index=st.integers(0, 9),
  ideas=st.lists(texts, max_size=2).map(tuple),
  steps=st.lists(steps, max_size=2).map(tuple),
  fault=texts,
)
turns = st.builds(
  TrainedTurn,
  record=any_record,
  prompt_id=texts,
  update=st.integers(0, 9),
  version=st.integers(0, 9),
  reward=st.none() | numbers,
  finish_reason=texts,
)


@strategies.patient
@given(st.one_of(turns, steps, evaluated, collected))
def test_each_comes_back_from_json_as_it_was(one):
  value = json.loads(json.dumps(one.to_json()))
  assert type(one).from_json(value) == one


def test_a_line_of_a_trace_has_the_names_that_it_always_had():
  value = made.turn(made.step(), finish_reason='stop').to_json()
  assert {
    'prompt_id', 'update', 'version', 'outcome', 'reward', 'exec_s',
    'prompt_tokens', 'tokens', 'task', 'state_id', 'step', 'response', 'action',
    'args', 'entries', 'valid_action', 'is_edit', 'undone', 'score_before',
    'score_after', 'alpha', 'diff', 'observation', 'tier', 'untrusted', 'queue_s',
    'startup_s', 'cpu_s', 'finish_reason',
  } <= set(value)  # fmt: skip


def test_thoughts_are_the_steps_or_the_solutions_own():
  step = made.taken(made.step(editor_thoughts='e'), thoughts='s')
  assert TakenStep.from_json(step.to_json()) == step
  solution = made.taken(made.solution(thoughts='p'))
  assert solution.to_json()['thoughts'] == 'p'
  assert TakenStep.from_json(solution.to_json()) == solution


STEP = made.taken(made.step()).to_json()
TRAJECTORY = made.evaluated(made.step()).to_json()


@pytest.mark.parametrize(
  'changes, said',
  [
    ({'steps': 'abc'}, 'trajectory wine/0 has no list of steps'),
    ({'steps': [STEP, 3]}, r'wine/0: steps\[1\]: record: int instead of an object'),
    ({'steps': [{}]}, r'wine/0: steps\[0\]: step record: fields are missing'),
    ({'index': 'x'}, "index is 'x'; it must be a whole number"),
    ({'score': 'x'}, "score is 'x'; it must be a number or null"),
    ({'missing': None}, 'missing is None; it must be true or false'),
  ],
)  # fmt: skip
def test_damage_is_named_with_its_place(changes, said):
  with pytest.raises(DamagedRecord, match=said):
    Evaluated.from_json({**TRAJECTORY, **changes})


@pytest.mark.parametrize('name', ['task', 'index', 'split', 'score', 'steps'])
def test_a_field_that_is_missing_is_named(name):
  value = {k: v for k, v in TRAJECTORY.items() if k != name}
  with pytest.raises(DamagedRecord, match=f'missing: {name}'):
    Evaluated.from_json(value)


@pytest.mark.parametrize(
  'changes, said',
  [
    ({'kind': 'collected'}, "kind 'collected', format 1, is not known"),
    ({'format': 9}, "kind 'evaluated', format 9, is not known"),
    (
      {'steps': [{**STEP, 'kind': 'poem'}]},
      r"wine/0: steps\[0\]: its kind 'poem' is not known",
    ),
  ],
)
def test_what_another_version_wrote_is_named_as_unknown(changes, said):
  with pytest.raises(UnknownRecord, match=said):
    Evaluated.from_json({**TRAJECTORY, **changes})
