"""Prompts for whole solutions, from scratch and from what was kept."""

from __future__ import annotations

import json

import numpy as np
import pytest

from jaxagent.data.solutions import DEEPEST, MOST_FAILURES, SolutionSource
from jaxagent.envs.solution import Previous, Solution, Task, solution_id


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


def _ranked(merits, **options) -> SolutionSource:
  source = SolutionSource(('a',), improve=1.0, parents='ranked', **options)
  for number, merit in enumerate(merits):
    source.keep('a', _kept(str(number)), '', merit)
  return source


def _codes(source, draws) -> list[str]:
  drawn = [source.draw() for _ in range(draws)]
  return [d.prompts[0].payload.previous.solution.code for d in drawn]


def test_ranked_parents_are_drawn_by_rank_and_by_how_often_they_were():
  """The first draw of many sources: exp(-rank / 3); later ones go down by visits."""
  merits = [0.1, 0.9, None, 0.5]  # the best is 1, then 3, 0 and the failure
  first = [_codes(_ranked(merits, seed=s), 1)[0] for s in range(3000)]
  shares = np.array([first.count(code) / 3000 for code in '1302'])
  chances = np.exp(-np.arange(4) / 3)
  assert np.abs(shares - chances / chances.sum()).max() < 0.03
  many = _codes(_ranked(merits), 3000)
  # In the long run chances level out: exp(-rank / 3) / sqrt(v) is alike where
  # v goes as exp(-2 rank / 3) of it.
  counts = np.array([many.count(code) for code in '1302'])
  assert (np.diff(counts) < 0).all() and counts[3] > 100


def test_the_ten_best_stay_however_old_they_are():
  source = _ranked([100.0 + n for n in range(12)] + [0.0] * 40, most=20)
  state = json.loads(json.dumps(source.state_dict()))
  codes = {record[3] for record in state['kept']}
  assert {str(n) for n in range(2, 12)} < codes and len(codes) == 20
  assert {str(n) for n in range(42, 52)} < codes  # and the newest of the rest
  plain = SolutionSource(('a',), most=20)
  for number in range(52):
    plain.keep('a', _kept(str(number)), '', -number)
  kept = plain.state_dict()['kept']
  assert [record[3] for record in kept] == [str(n) for n in range(32, 52)]


def test_ranked_and_resumed_it_draws_what_it_would_have_drawn():
  source = _ranked([0.3, 0.1, None, 0.7, 0.7], seed=5)
  _codes(source, 20)
  again = SolutionSource(('a',), improve=1.0, parents='ranked', seed=5)
  again.load_state_dict(json.loads(json.dumps(source.state_dict())))
  assert _codes(source, 60) == _codes(again, 60)


def test_a_checkpoint_without_scores_is_read():
  source = SolutionSource(('a',), improve=1.0)
  source.keep('a', _kept('x'), 'out', 0.5)
  state = source.state_dict()
  later = ('visits', 'failed', 'best')
  older = {k: v for k, v in state.items() if k not in later}
  older['kept'] = [record[:5] for record in state['kept']]
  again = SolutionSource(('a',), improve=1.0)
  again.load_state_dict(json.loads(json.dumps(older)))
  rest = [None, None, '', '', 0]
  assert again.state_dict()['kept'] == [[*state['kept'][0][:5], *rest]]
  assert again.best('a') is None


FOUR = {'draft': 1, 'improve': 1, 'debug': 1, 'crossover': 1}


def _failure(code: str) -> Previous:
  return Previous(Solution('plan', code), 'error', 'script_error', 'exit 1')


def _with_operators(**options) -> SolutionSource:
  """Three programs and two failures of one task."""
  source = SolutionSource(('a',), operators=FOUR, **options)
  for number in range(3):
    source.keep('a', _kept(f'good {number}'), 'out', number, score=-number)
  for number in range(2):
    source.fail('a', _failure(f'bad {number}'))
  return source


def _payloads(source, draws):
  return [source.draw().prompts[0].payload for _ in range(draws)]


def test_each_operator_shows_what_it_goes_on_from():
  tasks = _payloads(_with_operators(), 400)
  assert all(abs(sum(t.kind == k for t in tasks) - 100) < 30 for k in FOUR)
  for task in tasks:
    shown = [one for one in (task.previous, task.second) if one]
    codes = [one.solution.code for one in shown]
    ids = [i for i in (task.previous_id, task.second_id) if i]
    assert ids == [solution_id('a', code) for code in codes]
    assert len(codes) == {'draft': 0, 'crossover': 2}.get(task.kind, 1)
    assert len(set(codes)) == len(codes) and task.asked == ''
    bad = task.kind == 'debug'
    assert all(code.startswith('bad' if bad else 'good') for code in codes)
    for one in shown:
      assert one.outcome == ('script_error' if bad else '')
      assert (one.score is None) == bad


def test_what_cannot_be_had_is_replaced_and_said():
  source = SolutionSource(('a',), operators={'crossover': 1, 'improve': 1})
  tasks = _payloads(source, 20)
  assert {t.kind for t in tasks} == {'draft'}
  assert {t.asked for t in tasks} == {'crossover', 'improve'}
  source.keep('a', _kept('only'), '')
  assert {(t.kind, t.asked) for t in _payloads(source, 20)} == {
    ('improve', ''), ('improve', 'crossover'),
  }  # fmt: skip
  source = SolutionSource(('a',), operators={'debug': 1})
  assert {(t.kind, t.asked) for t in _payloads(source, 5)} == {
    ('draft', 'debug')
  }
  source.fail('a', _failure('bad'))
  assert {(t.kind, t.asked) for t in _payloads(source, 5)} == {('debug', '')}


def test_failures_are_a_ring_and_are_kept_where_they_are_asked_for_alone():
  source = SolutionSource(('a',), operators={'debug': 1}, most=2)
  for number in range(MOST_FAILURES + 5):
    source.fail('a', _failure(str(number)))
  kept = source.state_dict()['failed']['kept']
  codes = [record[3] for record in kept]
  assert codes == [str(n) for n in range(5, MOST_FAILURES + 5)]
  plain = SolutionSource(('a',))
  plain.fail('a', _failure('x'))
  assert plain.state_dict()['failed']['kept'] == []


def test_a_failure_that_was_mended_in_vain_too_often_is_given_up():
  source = SolutionSource(('a',), operators={'debug': 1})
  mended = ''
  for number in range(DEEPEST + 2):
    source.fail('a', _failure(str(number)), mended)
    mended = solution_id('a', str(number))
  kept = source.state_dict()['failed']['kept']
  # Where the chain broke off, it is not known how it began.
  assert [(k[3], k[-1]) for k in kept][:DEEPEST] == [
    (str(n), n + 1) for n in range(DEEPEST)
  ]
  assert str(DEEPEST) not in [k[3] for k in kept]


@pytest.mark.parametrize('parents', ['uniform', 'ranked'])
def test_with_operators_and_resumed_it_draws_what_it_would_have_drawn(parents):
  source = _with_operators(parents=parents, seed=4)
  _payloads(source, 30)
  again = SolutionSource(('a',), operators=FOUR, parents=parents, seed=4)
  again.load_state_dict(json.loads(json.dumps(source.state_dict())))
  assert again.best('a') == source.best('a') == 2
  for number in range(60):
    drawn = source.draw()
    assert drawn == again.draw()
    for one in (source, again):
      one.fail('a', _failure(f'late {number}'))
  assert source.state_dict() == again.state_dict()


def test_prompts_under_way_are_made_again_from_their_keys():
  source = _with_operators(most=3)
  drawn = [source.draw() for _ in range(40)]
  for number in range(3):  # what they show leaves the pool
    source.keep('a', _kept(f'new {number}'), '')
  for number in range(MOST_FAILURES):
    source.fail('a', _failure(f'newer {number}'))
  again = SolutionSource(('a',), operators=FOUR, most=3)
  again.load_state_dict(json.loads(json.dumps(source.state_dict())))
  for one in drawn:
    (prompt,) = one.prompts
    key = json.loads(json.dumps(one.key))
    assert again.restore(key, prompt.prompt_id) == prompt


def test_a_program_that_failed_once_and_ran_once_is_shown_as_either():
  source = SolutionSource(('a',), operators={'improve': 1, 'debug': 1})
  source.keep('a', _kept('x'), 'fine', 1.0, score=1.0)
  source.fail('a', _failure('x'))
  for task in _payloads(source, 20):
    said = 'error' if task.kind == 'debug' else 'fine'
    assert task.previous.output == said


def test_a_key_of_an_older_journal_is_read():
  source = SolutionSource(('a',))
  source.keep('a', _kept('x'), 'out')
  name = solution_id('a', 'x')
  assert source.restore(['a', ''], '0/0/0').payload == Task(
    'a', operator='draft'
  )
  found = source.restore(['a', name], '0/0/0').payload
  assert found.previous.output == 'out' and found.kind == 'improve'
  with pytest.raises(KeyError, match='is kept no more'):
    source.restore(['a', 'other'], '0/0/0')
  with pytest.raises(KeyError, match="task 'z' is not solved"):
    source.restore(['z', ''], '0/0/0')


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
    ({'failed': 5}, 'is damaged'),
    ({'failed': {'kept': [['a']], 'gone': []}}, 'is no solution'),
    ({'best': {'a': 'x'}}, 'could not convert'),
    ({'best': 3}, 'is damaged'),
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
    ({'operators': {'draft': -1}}, "share of 'draft' is -1"),
  ],
)
def test_bad_options(options, why):
  with pytest.raises(ValueError, match=why):
    _source(**options)
  with pytest.raises(ValueError, match='no task'):
    SolutionSource(())
