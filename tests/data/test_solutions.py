"""Prompts for whole solutions, from scratch and from what was kept."""

from __future__ import annotations

import json

import pytest

from jaxagent.data.solutions import SolutionSource
from jaxagent.envs.solution import Solution, solution_id


def _source(**options) -> SolutionSource:
  return SolutionSource(('a', 'b', 'c'), **options)


def _kept(code: str, plan: str = 'plan') -> Solution:
  return Solution(plan, code)


def test_each_epoch_has_every_task_as_often_as_asked():
  source = _source(repeats=4)
  assert source.size == 12
  for _ in range(2):
    names = [source.draw().prompts[0].payload.name for _ in range(12)]
    assert sorted(names) == ['a'] * 4 + ['b'] * 4 + ['c'] * 4


def test_one_task_fills_a_batch():
  source = SolutionSource(('only',), group_size=1)
  ids = [source.draw().prompts[0].prompt_id for _ in range(128)]
  assert len(set(ids)) == 128


def test_a_group_shares_its_prompt():
  source = _source(group_size=3)
  source.keep('a', _kept('x'), 'out')
  for _ in range(6):
    drawn = source.draw()
    assert len({p.prompt_id for p in drawn.prompts}) == 3
    assert {p.group_id for p in drawn.prompts} == {drawn.group_id}
    assert len({id(p.payload) for p in drawn.prompts}) == 1


@pytest.mark.parametrize('improve', [0.0, 0.5, 1.0])
def test_the_share_that_improves(improve):
  source = SolutionSource(('a',), improve=improve)
  source.keep('a', _kept('x'), 'printed')
  tasks = [source.draw().prompts[0].payload for _ in range(400)]
  improved = [t for t in tasks if t.previous]
  assert abs(len(improved) / 400 - improve) < 0.07
  for task in improved:
    assert task.previous.solution == _kept('x')
    assert task.previous.output == 'printed' and task.previous_id


def test_bounded_and_without_doubles():
  source = SolutionSource(('a',), improve=1.0, most=2)
  source.keep('a', _kept('1'), 'first')
  source.keep('a', _kept('2'), '')
  source.keep('a', _kept('1', 'another plan'), 'again')  # moves to the end
  source.keep('a', _kept('3'), '')
  kept = {source.draw().prompts[0].payload.previous for _ in range(60)}
  assert {(p.solution.code, p.output) for p in kept} == {
    ('1', 'first'), ('3', ''),
  }  # fmt: skip


def test_a_prompt_outlives_the_solution_that_it_improves():
  source = SolutionSource(('a',), improve=1.0, most=1)
  source.keep('a', _kept('1'), '')
  drawn = source.draw()
  source.keep('a', _kept('2'), '')
  prompt = source.restore(drawn.key, drawn.prompts[0].prompt_id)
  assert prompt == drawn.prompts[0]
  for code in '3456':
    source.keep('a', _kept(code), '')
  with pytest.raises(KeyError, match='is kept no more'):
    source.restore(drawn.key, drawn.prompts[0].prompt_id)


def test_a_prompt_shows_the_same_after_the_solution_came_again():
  source = SolutionSource(('a',), improve=1.0, most=1)
  source.keep('a', _kept('1'), 'first')
  drawn = source.draw()
  for code, output in (('1', 'second'), ('2', ''), ('1', 'third')):
    source.keep('a', _kept(code, 'another plan'), output)
    (prompt,) = drawn.prompts
    assert source.restore(drawn.key, prompt.prompt_id) == prompt


def test_resumed_it_draws_what_it_would_have_drawn():
  source = _source(seed=3)
  for code in '123':
    source.keep('a', _kept(code), code)
    source.draw()
  state = json.loads(json.dumps(source.state_dict()))
  again = _source(seed=3)
  again.load_state_dict(state)
  for _ in range(50):
    assert source.draw() == again.draw()
  assert source.state_dict() == again.state_dict()


@pytest.mark.parametrize(
  ('change', 'why'),
  [
    ({'seed': 4}, 'seed=4'),
    ({'tasks': ['a']}, "tasks=\\['a'\\]"),
    ({'kept': [['only', 'two']]}, 'is no solution'),
    ({'kept': [['id', 'a', 'plan', 1, 'out']]}, 'is no solution'),
    ({'kept': 'text'}, 'is no solution'),
    ({'kept': None}, 'is damaged'),
    ({'kept': [5]}, 'is damaged'),
    ({'position': 'x'}, 'invalid literal'),
    ({'kept': [[solution_id('z', '1'), 'z', '', '1', '']]}, "of task 'z'"),
    ({'gone': [['ab', 'a', 'plan', '1', 'out']]}, 'not the id of its program'),
  ],
)
def test_another_or_a_damaged_state_is_refused(change, why):
  source = _source()
  with pytest.raises(ValueError, match=why):
    source.load_state_dict({**source.state_dict(), **change})


def test_a_state_that_lacks_a_part_is_refused_and_a_longer_one_is_bounded():
  source = _source(most=5)
  for code in '12345':
    source.keep('a', _kept(code), '')
  state = source.state_dict()
  short = _source(most=2)
  short.load_state_dict(state)
  assert [kept[3] for kept in short.state_dict()['kept']] == ['4', '5']
  with pytest.raises(ValueError, match='is damaged'):
    source.load_state_dict({k: v for k, v in state.items() if k != 'gone'})


@pytest.mark.parametrize(
  ('options', 'why'),
  [
    ({'group_size': 0}, 'group_size=0'),
    ({'repeats': 0}, 'repeats=0'),
    ({'most': 0}, 'most=0'),
    ({'improve': 1.5}, 'improve=1.5'),
  ],
)
def test_bad_options(options, why):
  with pytest.raises(ValueError, match=why):
    _source(**options)
  with pytest.raises(ValueError, match='no task'):
    SolutionSource(())
