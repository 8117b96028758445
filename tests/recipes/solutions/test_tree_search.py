"""Which node a tree search continues from, and its result."""

from __future__ import annotations

import random
import types

import pytest

from jaxagent.data.solutions import chances_of
from jaxagent.recipes.solutions import tree_search
from jaxagent.recipes.solutions.evaluate import Ended
from jaxagent.recipes.solutions.tree_search import Node, Search, table
from jaxagent.records import TakenStep
from tests import made


def _search(**options) -> Search:
  given = dict(
    higher_is_better=True, drafts=2, debug_probability=0.0, debug_depth=2,
    rng=random.Random(0),
  )  # fmt: skip
  return Search(**{**given, **options})


def _node(score=None, parent=None, kind='draft', valid_action=True) -> Node:
  record = made.solution(valid_action=valid_action)
  return Node(kind, parent, score, score, record)


def test_drafts_then_the_best():
  search = _search()
  assert search.choose() == ('draft', None)
  search.nodes += [_node(0.5), _node(0.7)]
  assert search.choose() == ('improve', 1)
  search.nodes.append(_node(0.6, 1, 'improve'))
  assert search.choose() == ('improve', 1) and search.best(1) == 0
  lower = _search(higher_is_better=False)
  lower.nodes = search.nodes
  assert lower.choose() == ('improve', 0)


def test_ranked_parents_are_drawn_by_rank_and_children():
  nodes = [_node(0.2), _node(), _node(0.9), _node(0.5)]

  def shares(nodes, higher=True):
    search = _search(parents='ranked', higher_is_better=higher)
    search.nodes = nodes
    drawn = [search.choose() for _ in range(4000)]
    assert {kind for kind, _ in drawn} == {'improve'}
    return [sum(p == i for _, p in drawn) / 4000 for i in range(len(nodes))]

  found = shares(nodes)
  chances = chances_of([0, 0, 0])
  assert found[1] == 0
  assert [found[2], found[3], found[0]] == pytest.approx(chances, abs=0.03)
  lower = shares(nodes, higher=False)
  assert [lower[0], lower[3], lower[2]] == pytest.approx(chances, abs=0.03)
  # Three children of the best: it is drawn half as often against the others.
  children = [_node(None, 2, 'improve') for _ in range(3)]
  again = shares(nodes + children)
  assert again[2] / again[3] == pytest.approx(found[2] / found[3] / 2, rel=0.2)


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
  searches._parents, pushes = {}, []
  searches.push = pushes.append
  searches.begin()
  while len(pushes) > len(searches.searches['t', 0].nodes):
    record = made.solution(exec_s=2.0)
    searches.took(Ended(pushes[-1], TakenStep.of(record), private=0.5))
  assert len(pushes) == pushed


def test_nothing_valid_means_another_draft():
  search = _search()
  search.nodes += [_node(), _node()]
  assert search.choose() == ('draft', None) and search.best() is None


def test_failed_leaves_are_debugged_but_not_for_ever():
  search = _search(debug_probability=1.0)
  search.nodes += [_node(0.5), _node()]
  assert search.choose() == ('debug', 1)
  search.nodes.append(_node(None, 1, 'debug'))  # two failures in a row
  assert search.choose() == ('debug', 2)
  search.nodes.append(_node(None, 2, 'debug'))  # three
  assert search.choose() == ('improve', 0)


def test_words_are_no_program_to_debug():
  search = _search(debug_probability=1.0)
  search.nodes += [_node(0.5), _node(valid_action=False)]
  assert search.choose() == ('improve', 0)


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
