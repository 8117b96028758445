"""Equation 1 of paper 001, by hand, and the record that it is derived from."""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
import subprocess
import sys

import pytest

from jaxagent import audit, records
from jaxagent.recipes.ideator.record import IdeaRecord
from jaxagent.rewards.ideator import IdeaResult, idea_result, reward_of
from jaxagent.types import NoReward, Outcome

ROOT = pathlib.Path(__file__).parents[3]
CASES = json.loads(
  (ROOT / 'tests' / 'golden' / 'ideator_equation_1.json').read_text()
)
STEP = {'task': 'wine', 'score_before': 0.8, 'score_after': 0.9}


def idea(outcome: str = 'ok', **fields) -> IdeaRecord:
  return IdeaRecord(outcome=Outcome(outcome), **{**STEP, **fields})


@pytest.mark.parametrize('case', CASES, ids=lambda case: case['worked'])
def test_equation_1_is_what_was_worked_by_hand(case):
  record = idea(**case['record'])
  assert record.result.value == case['result']
  earned = record.derive()
  if isinstance(case['reward'], str):
    assert earned is NoReward(case['reward'])
  else:
    assert not isinstance(earned, NoReward) and earned == case['reward']


def test_there_are_17_cases_of_equation_1():
  assert len(CASES) == 17
  assert {case['reward'] for case in CASES} >= {1, 0, -1}


@pytest.mark.parametrize(
  'outcome, result',
  [
    ('no_submission', IdeaResult.NO_SUBMISSION),
    ('invalid_submission', IdeaResult.FAILED),
    ('timeout', IdeaResult.FAILED),
    ('oom', IdeaResult.FAILED),
    ('invalid_action', IdeaResult.BAD_MESSAGE),
  ],
)
def test_a_step_that_leaves_no_score_earns_0_under_a_name_of_its_own(
  outcome, result
):
  record = idea(outcome)
  assert record.result is result and record.derive() == 0.0


@pytest.mark.parametrize(
  'outcome', ['infrastructure', 'deadline', 'grader_error']
)
@pytest.mark.parametrize(
  'fields',
  [
    {},
    {'valid_action': False},
    {'message_error': 'two actions'},
    {'no_op': True},
    {'score_before': None},
  ],
)
def test_an_infrastructure_error_has_no_reward_whatever_else_is_wrong(
  outcome, fields
):
  record = idea(outcome, **fields)
  assert record.derive() is NoReward(outcome) and not record.has_reward


def test_what_is_wrong_first_names_the_result():
  """An answer that is no idea, then the message, then the program."""
  record = idea(valid_action=False, message_error='none', no_op=True)
  assert record.result is IdeaResult.FORMAT_ERROR and record.derive() == -1.0
  record = idea(message_error='none', no_op=True)
  assert record.result is IdeaResult.BAD_MESSAGE
  assert idea('no_submission', no_op=True).result is IdeaResult.NO_OP


@pytest.mark.parametrize('score', [math.nan, math.inf, -math.inf, None])
def test_a_score_that_is_no_number_neither_earns_nor_is_beaten(score):
  assert idea(score_after=score).result is IdeaResult.FAILED
  assert idea(score_before=score).result is IdeaResult.FIRST_SCORE
  both = idea(score_before=score, score_after=score)
  assert both.result is IdeaResult.FAILED and both.derive() == 0.0


def test_a_margin_without_a_known_noise_is_none():
  assert idea(margin=5.0, noise=None).result is IdeaResult.IMPROVED
  assert idea(margin=5.0, noise=0.1).result is IdeaResult.NOT_BETTER


@pytest.mark.parametrize('name', ['margin', 'noise'])
@pytest.mark.parametrize('value', [-0.1, math.nan, math.inf])
def test_a_margin_or_noise_below_0_is_refused(name, value):
  with pytest.raises(ValueError, match=f'{name}={value}'):
    idea(**{'margin': 1.0, name: value}).derive()


def test_refusals_name_value_and_choices():
  with pytest.raises(
    ValueError, match='first_score=.2.; choose one of 1, 0, leave'
  ):
    reward_of(IdeaResult.FIRST_SCORE, first_score='2')
  with pytest.raises(ValueError, match='least_gain=-1'):
    idea_result(
      Outcome.OK,
      valid_format=True,
      score_before=0.5,
      score_after=0.6,
      least_gain=-1,
    )


def test_every_field_that_the_reward_is_derived_from_must_be_there():
  value = records.to_json(idea())
  for name in IdeaRecord.DERIVED_FROM:
    without = {k: v for k, v in value.items() if k != name}
    if name in ('score_before', 'score_after', 'noise'):
      records.from_json(without, whole=True)  # they may be null
      continue
    with pytest.raises(records.DamagedRecord, match=name):
      records.from_json(without, whole=True)


CHANGED = {
  'outcome': Outcome.SCRIPT_ERROR,
  'valid_action': False,
  'message_error': 'two actions',
  'no_op': True,
  'score_before': 0.95,
  'score_after': 0.7,
  'higher_is_better': False,
  'noise': 1.0,
  'margin': 100.0,
}


def test_the_reward_is_derived_from_the_fields_that_say_so_and_no_others():
  record = idea(margin=1.0, noise=0.01)
  assert set(IdeaRecord.DERIVED_FROM) == {*CHANGED, 'first_score'}
  for name, value in CHANGED.items():
    changed = dataclasses.replace(record, **{name: value})
    assert changed.derive() != record.derive(), name
  own = {name: getattr(record, name) for name in IdeaRecord.DERIVED_FROM}
  assert IdeaRecord(**own).derive() == record.derive() == 1.0


def _trace(folder: pathlib.Path, rewards) -> pathlib.Path:
  ideas = [
    idea(),
    idea(score_after=0.7),
    idea(valid_action=False, outcome='invalid_format'),
    idea('infrastructure'),
    idea(score_before=None, first_score='leave_out'),
  ]
  lines = [
    json.dumps(records.to_json(record) | {'reward': reward, 'prompt_id': '0/0'})
    for record, reward in zip(ideas, rewards, strict=True)
  ]
  path = folder / 'trace.jsonl'
  path.write_text('\n'.join(lines) + '\n')
  return path


def test_the_audit_derives_the_reward_of_an_idea_again(tmp_path):
  found = audit.audit(_trace(tmp_path, [1.0, 0.0, -1.0, None, None]))
  assert (found['records'], found['differences']) == (5, [])
  found = audit.audit(_trace(tmp_path, [0.0, 1.0, 0.0, 0.0, 1.0]))
  assert len(found['differences']) == 5


def test_the_audit_command_knows_ideas_without_being_told(tmp_path):
  """In a fresh process, where nothing has imported the recipe."""
  path = _trace(tmp_path, [1.0, 0.0, -1.0, None, None])
  done = subprocess.run(
    [sys.executable, '-m', 'jaxagent.audit', str(path)],
    cwd=ROOT,
    capture_output=True,
    text=True,
    timeout=120,
  )
  assert done.returncode == 0, done.stdout + done.stderr
  assert '5 rewards derived again' in done.stdout
