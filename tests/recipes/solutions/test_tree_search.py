"""Which node a tree search continues from, and its result."""

from __future__ import annotations

import collections
import random
import types

import pytest

from jaxagent.data.solution_pool import chances_of
from jaxagent.envs.operators import Shares
from jaxagent.recipes.solutions import tree_search
from jaxagent.recipes.solutions.evaluate import Ended
from jaxagent.recipes.solutions.tree_search import (
  Choice,
  Node,
  Search,
  table,
)
from jaxagent.records import TakenStep
from tests import made


def _search(*nodes, **options) -> Search:
  given = dict(
    higher_is_better=True, most=100, drafts=2, debug_probability=0.0, debug_depth=2,
    rng=random.Random(0),
  )  # fmt: skip
  search = Search(**{**given, **options})
  for node in nodes:
    search.add(node)
  return search


def _node(score=None, parent=None, kind='draft', valid_action=True) -> Node:
  record = made.solution(
    valid_action=valid_action,
    solution_id=f'id {score}',
    response='Plan.\n```\nx\n```',
  )
  return Node(kind, parent, score, score, record)


def test_drafts_then_the_best():
  assert _search().choose() == Choice('draft')
  search = _search(_node(0.5), _node(0.7))
  assert search.choose() == Choice('improve', 1)
  search.add(_node(0.6, 1, 'improve'))
  assert search.choose() == Choice('improve', 1) and search.best(1) == 0
  lower = _search(*search.nodes, higher_is_better=False)
  assert lower.choose() == Choice('improve', 0)


def test_ranked_parents_are_drawn_by_rank_and_by_how_often_they_were():
  nodes = [_node(0.2), _node(), _node(0.9), _node(0.5)]

  def shares(higher=True, children=0):
    """Shares of the nodes in the draw after `children` children of number 2."""
    counts = collections.Counter()
    for seed in range(4000):
      search = _search(
        *nodes,
        parents='ranked',
        higher_is_better=higher,
        rng=random.Random(seed),
      )
      drawn = [search.choose() for _ in range(1 + children)]
      assert {choice.kind for choice in drawn} == {'improve'}
      if all(choice.parent == 2 for choice in drawn[:-1]):
        counts[drawn[-1].parent] += 1
    return [counts[i] / counts.total() for i in range(len(nodes))]

  found = shares()
  chances = chances_of([0, 0, 0])
  assert found[1] == 0
  assert [found[2], found[3], found[0]] == pytest.approx(chances, abs=0.03)
  lower = shares(higher=False)
  assert [lower[0], lower[3], lower[2]] == pytest.approx(chances, abs=0.03)
  # Of those that drew the best once, and then draw again.
  again = shares(children=1)
  assert [again[2], again[3], again[0]] == pytest.approx(
    chances_of([1, 0, 0]), abs=0.04
  )


def test_a_program_that_is_made_twice_is_one_parent():
  search = _search(_node(0.5), _node(0.9), _node(0.9), parents='ranked')
  drawn = {search.choose().parent for _ in range(200)}
  assert drawn == {0, 1}


@pytest.mark.parametrize(('seconds', 'pushed'), [(0.0, 6), (5.0, 3), (99.0, 6)])
def test_a_search_ends_when_its_executions_have_taken_their_time(
  seconds, pushed
):
  """Each program runs for two seconds; the third takes it past five."""
  searches = object.__new__(tree_search._Searches)
  searches.searches = {('t', 0): _search()}
  options = types.SimpleNamespace(steps=6, seconds=seconds)
  config = types.SimpleNamespace(search=options)
  searches.context = types.SimpleNamespace(config=config)
  searches._choices, searches._by_shares, pushes = {}, False, []
  searches.push = pushes.append
  searches.begin()
  while len(pushes) > len(searches.searches['t', 0].nodes):
    record = made.solution(exec_s=2.0)
    searches.took(Ended(pushes[-1], TakenStep.of(record), private=0.5))
  assert len(pushes) == pushed


def test_nothing_valid_means_another_draft():
  search = _search(_node(), _node())
  assert search.choose() == Choice('draft') and search.best() is None


def test_failed_leaves_are_debugged_but_not_for_ever():
  search = _search(_node(0.5), _node(), debug_probability=1.0)
  assert search.choose() == Choice('debug', 1)
  search.add(_node(None, 1, 'debug'))  # two failures in a row
  assert search.choose() == Choice('debug', 2)
  search.add(_node(None, 2, 'debug'))  # three
  assert search.choose() == Choice('improve', 0)


def test_words_are_no_program_to_debug():
  search = _search(_node(0.5), _node(valid_action=False), debug_probability=1.0)
  assert search.choose() == Choice('improve', 0)


@pytest.mark.parametrize(('higher', 'best'), [(True, 0.9), (False, 0.5)])
def test_the_table(higher, best):
  records = [
    made.evaluated(task='t', private_by_step=curve)
    for curve in ((None, 0.4, 0.5), (0.7, 0.7, 0.9), (None, None, None))
  ]
  found = table(records, {'t': higher})['t']
  assert found['n'] == 3 and found['valid'] == pytest.approx(2 / 3)
  assert found['mean'] == pytest.approx(0.7) and found['best'] == best
  assert found['by_step'] == {'1': 0.7, '2': pytest.approx(0.55)}


FOUR = Shares({'draft': 1, 'improve': 1, 'debug': 1, 'crossover': 1})


@pytest.mark.parametrize('parents', ['best', 'ranked'])
def test_shares_of_operators_hold_after_the_drafts(parents):
  search = _search(_node(0.5), _node(), shares=FOUR, drafts=3, parents=parents)
  assert search.choose() == Choice('draft')
  for node in (_node(0.9), _node(0.9, 0, 'improve'), _node(0.2)):
    search.add(node)
  drawn = [search.choose() for _ in range(800)]
  for kind in ('draft', 'improve', 'debug', 'crossover'):
    assert abs(sum(c.kind == kind for c in drawn) - 200) < 50
  assert {c.parent for c in drawn if c.kind == 'debug'} == {1}
  joined = [c for c in drawn if c.kind == 'crossover']
  # Two nodes of one program, 2 and 3, are never joined with each other.
  pairs = {(c.parent, c.second) for c in joined}
  assert not pairs & {(2, 3), (3, 2)} and all(a != b for a, b in pairs)
  assert {b for _, b in pairs} >= {0, 4}
  if parents == 'best':
    assert {c.parent for c in joined} == {2}


def test_an_operator_that_cannot_be_had_is_said():
  options = {
    'shares': Shares({'crossover': 1, 'improve': 1e-6}), 'drafts': 1,
  }  # fmt: skip
  search = _search(_node(0.5), _node(0.5), **options)  # one program, twice
  assert search.choose() == Choice('improve', 0, asked='crossover')
  search = _search(_node(), **options)
  assert search.choose() == Choice('draft', asked='crossover')


def test_what_a_search_asks_for_is_what_training_asks_for():
  search = _search(*(
    Node('draft', None, score, None, made.solution(
      outcome, response=f'Plan.\n```\n{code}\n```', score_after=score,
      solution_id=code, observation='said', message='why',
    ))
    for code, score, outcome in (
      ('x', 0.5, 'ok'), ('y', 0.7, 'ok'), ('z', None, 'timeout')
    )
  ))  # fmt: skip
  asked = tree_search._asked('t', search, Choice('crossover', 1, 0), True)
  assert (asked.kind, asked.previous_id, asked.second_id) == (
    'crossover', 'y', 'x',
  )  # fmt: skip
  assert (asked.previous.score, asked.second.score) == (0.7, 0.5)
  asked = tree_search._asked('t', search, Choice('debug', 2), True)
  assert asked.kind == 'debug' and asked.previous.outcome == 'timeout'
  # By AIDE's rule all is asked for as an improvement.
  plain = tree_search._asked('t', search, Choice('debug', 2), False)
  assert plain.kind == 'improve' and plain.previous.outcome == ''
