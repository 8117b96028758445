"""A recipe of one program: what its records hold, and their reward."""

from __future__ import annotations

import json
import math
import re
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxagent.errors import UserError
from jaxagent.recipes.one_program import OneProgram, Problem
from jaxagent.records import GainRecord
from jaxagent.rewards.gain import gain_reward
from jaxagent.types import NoReward, Outcome

PROBLEM = Problem('wine', 'which? ')
SPEC = SimpleNamespace(m_init=0.4, m_best=0.2)  # lower is better


class Spelled(OneProgram):
  """A response of letters is a program; run_program is replaced."""

  name = 'spelled'

  def __init__(self):
    self.ran = []
    self.context = SimpleNamespace(spec=lambda task: SPEC)

  def problems(self, tasks):
    return {}

  def program(self, problem, response):
    return f'print({response!r})' if response.isalpha() else None

  def run_program(self, task, code, job_id):
    self.ran.append((task, code, job_id))
    return 'the run'

  def fields_of(self, task, run):
    return {'task': task, 'outcome': Outcome.OK, 'score_after': 0.3}


class Asked(Spelled):
  """Is asked by a prompt, and shown the same responses for each problem."""

  problems = OneProgram.problems
  prompt, responses = 'for {task} {x}: ', ('a', 'b')

  def __init__(self):
    self.context = SimpleNamespace(heldin=('wine', 'digits'))


def test_a_prompt_asks_for_each_task_and_the_responses_are_shown_for_each():
  recipe = Asked()
  assert recipe.problems(['wine']) == {
    'wine': Problem('wine', 'for wine {x}: ')
  }
  shown = [(p.task, p.prompt, text) for p, text in recipe.demonstrations()]
  assert shown == [
    (task, f'for {task} {{x}}: ', text)
    for task in ('wine', 'digits')
    for text in ('a', 'b')
  ]


def test_without_responses_there_is_nothing_to_learn_from():
  assert list(Spelled().demonstrations()) == []


def test_a_recipe_that_asks_nothing_is_told_what_to_give():
  class Silent(Asked):
    prompt = ''

  with pytest.raises(
    UserError, match='Silent in .* asks nothing; give it a `prompt`'
  ):
    Silent().problems(['wine'])


def test_a_response_is_run_as_its_program_and_paid_by_its_gain():
  recipe = Spelled()
  carried = recipe.carry_out(PROBLEM, 'abc', 'job')
  assert recipe.ran == [('wine', "print('abc')", 'job')]
  assert carried.run == 'the run' and carried.record.response == 'abc'
  assert (carried.record.start, carried.record.best) == (0.4, 0.2)
  assert carried.record.derive() == pytest.approx(0.5)


def test_a_response_without_a_program_runs_nothing_and_is_a_failure():
  recipe = Spelled()
  carried = recipe.carry_out(PROBLEM, '1', 'job')
  assert not recipe.ran and carried.run is None
  assert carried.record.outcome is Outcome.INVALID_FORMAT
  assert not carried.record.valid_action and carried.record.derive() == -1.0


def test_a_record_of_its_own_gives_its_own_reward():
  class Flat(GainRecord):
    def derive(self, switches=None):
      return 0.25

  recipe = Spelled()
  recipe.record_type = Flat
  assert recipe.carry_out(PROBLEM, 'abc', 'job').record.derive() == 0.25


@pytest.mark.parametrize(
  'score, start, best, reward',
  [
    (0.8, 0.8, 1.0, 0.0),
    (1.0, 0.8, 1.0, 1.0),
    (0.9, 0.8, 1.0, 0.5),
    (0.7, 0.8, 1.0, -0.5),
    (0.1, 0.8, 1.0, -1.0),
    (0.3, 0.4, 0.2, 0.5),
    (0.1, 0.4, 0.2, 1.0),
    (9.0, 0.4, 0.2, -1.0),
    (1e308, -1e308, 0.0, 1.0),
  ],
)
def test_the_gain_is_a_share_of_the_way_for_either_direction(
  score, start, best, reward
):
  found = gain_reward(Outcome.OK, score=score, start=start, best=best)
  assert found == pytest.approx(reward)


@pytest.mark.parametrize(
  'outcome, score, start, reward',
  [
    (Outcome.INFRASTRUCTURE, 0.9, 0.5, NoReward.INFRASTRUCTURE),
    (Outcome.GRADER_ERROR, None, 0.5, NoReward.GRADER_ERROR),
    (Outcome.OK, 0.9, None, NoReward.NO_SCALE),
    (Outcome.OK, 0.9, 1.0, NoReward.NO_SCALE),
    (Outcome.OK, 0.9, math.inf, NoReward.NO_SCALE),
    (Outcome.TIMEOUT, None, None, NoReward.NO_SCALE),
    (Outcome.TIMEOUT, None, 1.0, NoReward.NO_SCALE),
    (Outcome.TIMEOUT, None, 0.5, -1.0),
    (Outcome.SCRIPT_ERROR, 0.9, 0.5, -1.0),
    (Outcome.OK, math.nan, 0.5, -1.0),
  ],
)
def test_no_gain_is_paid_for_a_failure_nor_charged_for_the_machinery(
  outcome, score, start, reward
):
  record = GainRecord(outcome=outcome, score_after=score, start=start, best=1.0)
  assert record.derive() == reward


_NUMBERS = st.none() | st.floats()


@given(st.sampled_from(Outcome), _NUMBERS, _NUMBERS, _NUMBERS)
def test_a_gain_is_none_or_between_minus_1_and_1(outcome, score, start, best):
  found = gain_reward(outcome, score=score, start=start, best=best)
  assert found is None or -1.0 <= found <= 1.0


@pytest.mark.parametrize(
  'fails',
  [
    lambda response: re.compile('('),
    lambda response: json.loads(response)['code'],
    lambda response: open('x' * 5000),
    lambda response: next(iter(())),
  ],
)
def test_what_program_raises_is_the_recipes_and_names_its_line(fails):
  class Wrong(Spelled):
    def program(self, problem, response):
      return fails(response)

  with pytest.raises(UserError, match=r'Wrong in .*\.program raised') as found:
    Wrong().carry_out(PROBLEM, 'nope', 'job')
  line = re.search(r'\(([^()]*), line (\d+)\)\. Fix', str(found.value))
  assert line and line[1] == __file__


@pytest.mark.parametrize('code', [7, b'print()', ['print()']])
def test_what_is_no_text_of_a_program_is_the_recipes_error(code):
  class Wrong(Spelled):
    def program(self, problem, response):
      return code

  with pytest.raises(UserError, match='must return the text of a program'):
    Wrong().carry_out(PROBLEM, 'abc', 'job')


@pytest.mark.parametrize('code', ['print("\ud800")', 'print()\0'])
def test_a_program_that_no_file_can_hold_is_a_failure_and_not_run(code):
  class Odd(Spelled):
    def program(self, problem, response):
      return code

  recipe = Odd()
  carried = recipe.carry_out(PROBLEM, 'abc', 'job')
  assert not recipe.ran and carried.record.derive() == -1.0
