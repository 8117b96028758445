"""Figures of each operator, by hand."""

from __future__ import annotations

import json

import pytest

from jaxagent.metrics import check_names
from jaxagent.recipes.solutions import operators
from tests import made


def _record(operator, score=None, parent=None, **fields):
  own = dict(
    task='t', operator=operator, score_after=score, parent_score=parent
  )
  outcome = 'ok' if score is not None else 'script_error'
  return made.solution(outcome, **{**own, **fields})


def test_figures_of_an_update_by_operator():
  records = [
    _record('draft', 0.5),
    _record('draft'),
    _record('improve', 0.8, 0.5),
    _record('improve', 0.4, 0.6),
    _record('improve', None, 0.6),
    _record('debug', 0.7),
    _record('debug'),
    _record('crossover', 0.9, 0.8),
  ]
  found = operators.figures(records, {'t': 0.75})
  check_names(found)
  assert found == pytest.approx({
    'solution/share/draft': 2 / 8, 'solution/share/improve': 3 / 8,
    'solution/share/debug': 2 / 8, 'solution/share/crossover': 1 / 8,
    'solution/valid/draft': 1 / 2, 'solution/valid/improve': 2 / 3,
    'solution/valid/debug': 1 / 2, 'solution/valid/crossover': 1.0,
    'solution/gain/improve': (0.3 - 0.2) / 2, 'solution/gain/crossover': 0.1,
    'solution/new_best/draft': 0.0, 'solution/new_best/improve': 1 / 3,
    'solution/new_best/debug': 0.0, 'solution/new_best/crossover': 1.0,
  })  # fmt: skip


def test_without_an_earlier_best_nothing_is_a_new_one():
  found = operators.figures([_record('draft', 0.5)], {'t': None})
  assert 'solution/new_best/draft' not in found
  assert found['solution/share/debug'] == 0.0  # and no mean over nothing
  assert 'solution/valid/debug' not in found
  assert operators.figures([], {}) == {}


@pytest.mark.parametrize(
  ('scale', 'gain'), [('bounded', None), ('task', 2.0 / 6.0), ('raw', 2.0)]
)
def test_a_gain_is_of_the_reward_where_less_is_better(scale, gain):
  """From 10 (the starter) to 4 (the best known); 9 became 7."""
  record = _record(
    'improve', 7.0, 9.0, higher_is_better=False, scale=scale, start=10.0, best=4.0
  )  # fmt: skip
  found = record.gain()
  if gain is None:  # some formula of its own, but a gain
    assert found > 0
  else:
    assert found == pytest.approx(gain)
  worse = _record(
    'improve', 9.0, 7.0, higher_is_better=False, scale=scale, start=10.0, best=4.0
  )  # fmt: skip
  assert worse.gain() == pytest.approx(-found)
  assert operators.figures([record], {'t': -8.0})['solution/new_best/improve']
  assert not operators.figures([record], {'t': -7.0})[
    'solution/new_best/improve'
  ]


def test_the_table_of_a_run_has_each_task_and_operator():
  turns = [
    made.turn(_record('draft', 0.5), update=0),
    made.turn(_record('', 0.4), update=0),  # an older file, from scratch
    made.turn(_record('', 0.6, improves='id'), update=1),
    made.turn(_record('debug', 0.55), update=1),
    made.turn(_record('debug'), update=2),
    made.turn(_record('draft', 0.1, task='u'), update=2),
    made.turn(made.step(), update=2),
  ]
  found = operators.table(turns)
  assert json.loads(json.dumps(found)) == found
  assert found['t']['draft'] == {
    'n': 2, 'share': 0.4, 'valid': 1.0, 'gain': None, 'new_best': None,
  }  # fmt: skip
  assert found['t']['improve']['new_best'] == 1.0
  # 0.55 was above the 0.5 of the updates before, 0.6 is of its own.
  assert found['t']['debug'] == {
    'n': 2, 'share': 0.4, 'valid': 0.5, 'gain': None, 'new_best': 0.5,
  }  # fmt: skip
  assert 'crossover' not in found['t'] and list(found['u']) == ['draft']
