"""A recipe of one turn whose own code is wrong ends the run by class and file."""

from __future__ import annotations

import dataclasses
import re
import sys

import numpy as np
import pytest
from ml_collections import ConfigDict

from jaxagent import metrics
from jaxagent.errors import UserError
from jaxagent.interactions import (
  Execute,
  Generate,
  InteractionError,
  RolloutState,
)
from jaxagent.recipes import one_turn
from jaxagent.recipes.one_turn import Carried, OneTurn, Problem
from jaxagent.types import Executed, NoReward, Outcome, Record

PROBLEM = Problem('wine', 'which? ')


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlainRecord(Record):
  KIND = 'plain'
  given: object = 0.5

  def derive(self, switches=None):
    return self.given


class Plain(OneTurn):
  name = 'plain'
  record_type = PlainRecord
  given: object = None

  def __init__(self):
    pass

  def problems(self, tasks):
    return {}

  def metrics(self, found):
    return self.given(found)

  def carry_out(self, problem, response, job_id):
    if isinstance(self.given, Exception):
      raise self.given
    return self.given


def _carried(given, response='x'):
  recipe = Plain()
  recipe.given = given
  return one_turn._carried_out(recipe, PROBLEM, response, 'job')


WHERE = re.escape(f'Plain in {sys.modules[__name__].__file__}')


@pytest.mark.parametrize(
  'error',
  [KeyError('x'), ZeroDivisionError('0'), NameError('y'), RecursionError('deep'),
   TypeError('none'), NotImplementedError('later')],
)  # fmt: skip
def test_an_error_of_its_own_code_ends_the_run_by_class_file_and_line(error):
  with pytest.raises(UserError) as found:
    _carried(error)
  assert re.search(
    rf'{WHERE}\.carry_out raised {type(error).__name__}.*, line \d+',
    str(found.value),
  )


@pytest.mark.parametrize(
  'error', [OSError('no space'), TimeoutError('late'), RuntimeError('pool')]
)
def test_an_error_of_the_machine_stays_what_it_is(error):
  with pytest.raises(type(error)):
    _carried(error)


@pytest.mark.parametrize(
  'given',
  [
    None,
    0.5,
    PlainRecord(outcome=Outcome.OK),
    Carried(None),
    Carried(Record(outcome=Outcome.OK)),
  ],
)
def test_what_is_no_carried_record_ends_the_run_by_class_and_file(given):
  with pytest.raises(UserError, match=rf'{WHERE}\.carry_out returned .*'):
    _carried(given)


def test_a_response_that_ran_nothing_has_a_duration_above_zero():
  executed, run = _carried(Carried(PlainRecord(outcome=Outcome.OK)))
  assert run is None and executed.exec_s > 0


def _trained(given):
  recipe = Plain()
  recipe.given = given
  return one_turn.OneTurnWorkflow(recipe, {}).trained([])


@pytest.mark.parametrize(
  'given, problem',
  [
    (lambda found: {'plain/rate': 1.0}, "unknown metric 'plain/rate'.*metric_names"),
    (lambda found: {'actor/lr': 'much'}, 'raised ValueError: .*, line'),
    (lambda found: {'actor/lr': 1 / len(found)}, 'raised ZeroDivisionError: .*, line'),
    (lambda found: None, 'raised AttributeError'),
  ],
)  # fmt: skip
def test_metrics_that_cannot_be_logged_end_the_run_by_class_and_file(
  given, problem, monkeypatch
):
  monkeypatch.setattr(metrics, '_added', {})  # of recipes of other tests
  with pytest.raises(UserError, match=rf'{WHERE}\.metrics.*{problem}'):
    _trained(given)


def test_metrics_of_its_own_are_numbers(monkeypatch):
  described = {'plain/rate': 'Share of good ones.'}
  monkeypatch.setattr(metrics, '_added', described)
  assert _trained(lambda found: {'plain/rate': np.float32(0.5)}) == {
    'plain/rate': 0.5
  }


def _ended(given) -> RolloutState:
  """A rollout whose record gives this reward."""

  class Policy:
    max_prompt_tokens = 8
    tokenizer = type(
      'T', (), {'encode_prompt': lambda self, text, most: [1, 2]}
    )()

    def text(self, result):
      return result

  recipe = Plain()
  recipe.policy = Policy()
  workflow = one_turn.OneTurnWorkflow(recipe, {})
  progress = RolloutState(workflow, PROBLEM)
  (ask,) = progress.open.values()
  assert isinstance(ask, Generate)
  (work,) = progress.take(ask.call, 'the response')
  assert isinstance(work, Execute) and work.request == (PROBLEM, 'the response')
  record = PlainRecord(outcome=Outcome.OK, given=given)
  progress.take(work.call, Executed(Outcome.OK, 1.0, record=record))
  return progress


@pytest.mark.parametrize('reward', (-1.0, 0, NoReward.NO_SCALE))
def test_the_reward_is_what_the_record_derives(reward):
  assert _ended(reward).credits[0].reward == reward


@pytest.mark.parametrize('reward', (float('nan'), None, 'much'))
def test_a_record_without_a_reward_is_no_broken_interaction(reward):
  """That would be tried again, and its prompt given up."""
  with pytest.raises(UserError, match='PlainRecord in .*derive') as found:
    _ended(reward)
  assert not isinstance(found.value, InteractionError)


@pytest.mark.parametrize(
  'problems, error',
  [
    ({}, 'batch_size=6 is more than the 0 problems'),
    ({'a': PROBLEM}, 'batch_size=6 is more than the 1 problems .*group_size=3'),
    ({'a': PROBLEM, 'b': 'which? '}, "problems gives 'which\\? ' for 'b'"),
    (
      {'a': PROBLEM, 'b': Problem('wine', '')},
      "for 'b'; it must give a Problem",
    ),
  ],
)
def test_problems_that_rl_cannot_draw_from_end_the_run_before_long_work(
  problems, error
):
  recipe = Plain()
  recipe.config = ConfigDict(
    {'stage': 'all', 'rl': {'batch_size': 6, 'group_size': 3}}
  )
  with pytest.raises(UserError, match=error):
    recipe._check_problems(problems)
  recipe._check_problems({'a': PROBLEM, 'b': PROBLEM})
  recipe.config.stage = 'evaluate'
  recipe._check_problems({'a': PROBLEM})
