"""Records come back from JSON as they were, or are refused by name."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxagent import records, types
from jaxagent.data import codec as saved
from jaxagent.recipes.ideator.record import IdeaRecord
from jaxagent.records import DamagedRecord, UnknownRecord
from jaxagent.records import codec as records_codec
from jaxagent.testing.arms import ArmRecord
from jaxagent.types import Outcome, Record
from tests import made
from tests.records import strategies

KINDS = (
  records.StepRecord,
  records.SolutionRecord,
  records.GainRecord,
  IdeaRecord,
  ArmRecord,
)
any_record = st.one_of([strategies.records(kind) for kind in KINDS])


def _there_and_back(value: Any) -> Any:
  return json.loads(json.dumps(value))


@strategies.patient
@given(any_record)
def test_every_record_comes_back_from_json_as_it_was(record):
  value = _there_and_back(records.to_json(record))
  assert records.from_json(value) == record
  assert records.from_json(value, whole=True) == record


@strategies.patient
@given(any_record)
def test_every_record_comes_back_from_a_checkpoint_as_it_was(record):
  for kept in (
    types.Executed(record.outcome, 1.0, record=record),
    types.Turn(0, 1, 2, record.outcome, 0.5, 1.0, record, 'stop'),
  ):
    assert saved.decode(_there_and_back(saved.encode(kept))) == kept


@strategies.patient
@given(st.sampled_from((math.nan, math.inf, -math.inf)))
def test_numbers_that_are_not_finite_come_back(number):
  record = made.step(score_after=number, alpha=number)
  for back in (
    records.from_json(_there_and_back(records.to_json(record))),
    saved.decode(_there_and_back(saved.encode(record))),
  ):
    assert repr(back) == repr(record)


def test_numbers_of_numpy_are_kept_as_plain_ones():
  record = made.step(score_after=np.float32(0.5), step=np.int64(3))
  value = records.to_json(record)
  assert type(value['score_after']) is float and type(value['step']) is int


def test_an_unset_optional_field_is_left_out_of_json():
  assert 'editor_thoughts' not in records.to_json(made.step())
  value = records.to_json(made.step(editor_thoughts='hm'))
  assert value['editor_thoughts'] == 'hm'


def test_a_solution_is_an_edit_where_it_holds_a_program():
  assert records.to_json(made.solution())['is_edit'] is True
  assert not made.solution(valid_action=False).is_edit
  fields = [f.name for f in dataclasses.fields(records.SolutionRecord)]
  assert 'is_edit' not in fields


@pytest.mark.parametrize(
  'value, said',
  [
    ({'kind': 'poem', 'outcome': 'ok'}, "kind 'poem' is not known, but arm"),
    ({'kind': ['step']}, 'is not known'),
    ({'format': 2, 'outcome': 'ok'}, "'step' has format 2, and known is 1"),
    ({'format': True, 'outcome': 'ok'}, 'has format True'),
    ({'format': 0, 'outcome': 'ok'}, 'has format 0'),
  ],
)
def test_what_another_version_wrote_is_unknown_and_not_damaged(value, said):
  with pytest.raises(UnknownRecord, match=said) as e:
    records.from_json(value)
  assert 'the version of jaxagent' in str(e.value)
  assert not isinstance(e.value, DamagedRecord)


@pytest.mark.parametrize(
  'value, said',
  [
    (3, 'int instead of an object'),
    ({}, 'fields are missing: outcome'),
    ({'outcome': 'nice'}, "outcome is 'nice'; it must be one of ok"),
    ({'outcome': ['ok']}, 'outcome is .* it must be one of'),
    ({'alpha': 'x'}, "alpha is 'x'; it must be a number or null"),
    ({'alpha': True}, 'alpha is True; it must be a number or null'),
    ({'alpha': 10**301}, 'alpha is 1000.* it must be a number'),
    ({'alpha': 10**5000}, 'alpha is a int that cannot be shown'),
    ({'step': 1.5}, 'step is 1.5; it must be a whole number'),
    ({'is_edit': 1}, 'is_edit is 1; it must be true or false'),
    ({'response': None}, 'response is None; it must be a text'),
    ({'args': []}, r'args is \[\]; it must be an object'),
    ({'entries': {'a': 1}}, 'entries is .* each value a text'),
    ({'kind': 'solution', 'milestones': 'abc'}, 'milestones is .* a list'),
    ({'kind': 'solution', 'milestones': [1]}, 'milestones is .* each a text'),
  ],
)
def test_a_field_of_a_wrong_type_is_named(value, said):
  if isinstance(value, dict) and value:
    value = {'outcome': 'ok', **value}
  with pytest.raises(DamagedRecord, match=said):
    records.from_json(value)


@pytest.mark.parametrize('value', [object(), {1: 2}, {'a': {'b': object()}}])
def test_a_field_that_cannot_be_written_is_named(value):
  with pytest.raises(DamagedRecord, match='step record: args is .* an object'):
    records.to_json(made.step(args=value))


def test_a_value_that_is_nested_without_end_is_refused():
  endless: dict[str, Any] = {}
  endless['a'] = endless
  with pytest.raises(DamagedRecord, match='args is'):
    records.to_json(made.step(args=endless))


@pytest.mark.parametrize('field', ['valid_action', 'is_edit'])
def test_a_whole_record_has_what_its_reward_is_derived_from(field):
  value = records.to_json(made.step())
  del value[field]
  records.from_json(value)
  with pytest.raises(DamagedRecord, match=f'fields are missing: {field}'):
    records.from_json(value, whole=True)


def _class(name: str = 'Ours', /, **members: Any) -> type:
  members = {'KIND': 'ours', **members}
  hints = members.pop('hints', {})
  space = {**members, '__annotations__': hints, '__module__': __name__}
  return dataclasses.dataclass(frozen=True, kw_only=True)(
    type(name, (Record,), space)
  )


@pytest.mark.parametrize(
  'cls, said',
  [
    (dict, 'must be a subclass of jaxagent.types.Record'),
    (type('Bare', (Record,), {'KIND': 'bare'}), 'dataclass with frozen=True'),
    (_class(KIND=''), "KIND='' must be a name"),
    (_class(VERSION=0), 'VERSION=0 must be 1 or more'),
    (_class(DERIVED_FROM=('luck',)), 'DERIVED_FROM names luck; its fields'),
    (_class(KIND='step'), "KIND='step' is that of StepRecord in .*step.py"),
    (_class(hints={'reward': float}), 'cannot be called reward'),
    (_class(hints={'held': set}), "Ours.held: <class 'set'> cannot be kept"),
    (_class(hints={'held': int | str}), 'Ours.held: .*cannot be kept'),
    (_class(hints={'held': tuple[int, str]}), 'Ours.held: .*cannot be kept'),
  ],
)
def test_a_class_that_is_no_record_is_refused_by_name(cls, said):
  before = dict(records_codec._known)
  with pytest.raises(ValueError, match=said):
    records.register(cls)
  assert records_codec._known == before


def test_a_class_of_its_own_is_read_once_it_is_registered(monkeypatch):
  monkeypatch.setattr(records_codec, '_known', dict(records_codec._known))
  ours = _class(hints={'luck': float}, DERIVED_FROM=('luck',))
  record = ours(outcome=Outcome.OK, luck=0.5)
  with pytest.raises(UnknownRecord, match='not a registered record'):
    records.to_json(record)
  records.register(ours)
  records.register(ours)  # as often as one likes
  assert records.from_json(records.to_json(record)) == record


def test_a_record_of_an_older_version_is_upgraded(monkeypatch):
  monkeypatch.setattr(records_codec, '_known', dict(records_codec._known))

  @records.register
  @dataclasses.dataclass(frozen=True, kw_only=True)
  class Timed(Record):
    KIND: ClassVar[str] = 'timed'
    VERSION: ClassVar[int] = 3

    minutes: float

    @classmethod
    def upgraded(cls, fields, version) -> Mapping[str, Any] | None:
      if version < 2:
        return None
      return {**fields, 'minutes': fields['seconds'] / 60}

  old = {'kind': 'timed', 'format': 2, 'outcome': 'ok', 'seconds': 90.0}
  assert records.from_json(old).minutes == 1.5
  with pytest.raises(UnknownRecord, match='format 1, and known is 3'):
    records.from_json({**old, 'format': 1})


def test_a_class_is_loaded_by_its_place():
  assert records.load('jaxagent.testing.arms:ArmRecord') is ArmRecord
  for place in ('jaxagent.nothing:A', 'jaxagent.testing.arms:A', 'x', ''):
    with pytest.raises(ValueError, match='give MODULE:CLASS'):
      records.load(place)


@strategies.patient
@given(any_record)
def test_a_reward_is_a_number_or_a_reason(record):
  try:
    reward = record.derive()
  except ValueError:
    return  # the fields contradict each other
  assert isinstance(reward, int | float | types.NoReward)
  assert record.has_reward == (not isinstance(reward, types.NoReward))
  if record.outcome.is_infrastructure:
    assert reward is types.NoReward.of(record.outcome)
