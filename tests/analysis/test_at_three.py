"""Avg@3 and Best@3 are means over all triples of a task's runs."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from jaxagent.analysis import at_three
from jaxagent.analysis.at_three import avg_at_three, best_at_three

NINE = [0.0, 12.5, 31.0, 31.0, 47.25, 60.0, 88.0, 99.5, 104.0]


def triples(scores, of_valid):
  """Mean over all triples of a figure of their valid runs, 0 without one."""
  found = []
  for triple in itertools.combinations(scores, 3):
    valid = [score for score in triple if score is not None]
    found.append(of_valid(valid) if valid else 0.0)
  return math.fsum(found) / len(found)


def mean(valid):
  return math.fsum(valid) / len(valid)


@pytest.mark.parametrize('n', range(3, 10))
@pytest.mark.parametrize('invalid', range(0, 5))
@pytest.mark.parametrize('turn', range(3))
def test_both_are_what_all_triples_give(n, invalid, turn):
  scores = [*NINE[turn:], *NINE[:turn]][:n]
  scores = [None] * min(invalid, n) + scores[min(invalid, n) :]
  assert avg_at_three(scores) == pytest.approx(triples(scores, mean), abs=1e-9)
  assert best_at_three(scores) == pytest.approx(triples(scores, max), abs=1e-9)


@pytest.mark.parametrize(
  'scores, avg, best',
  [
    ([10.0, 20.0, 60.0], 30.0, 60.0),
    ([10.0, None, 60.0], 35.0, 60.0),
    ([None, 20.0, None], 20.0, 20.0),
    ([None, None, None], 0.0, 0.0),
  ],
)
def test_of_three_runs_they_are_the_papers(scores, avg, best):
  """The mean of the valid runs and the largest; 0 if and only if all fail."""
  assert avg_at_three(scores) == pytest.approx(avg)
  assert best_at_three(scores) == pytest.approx(best)


def test_four_runs_with_one_valid_by_hand():
  """One triple of four has no valid run."""
  assert avg_at_three([40.0, None, None, None]) == pytest.approx(30.0)
  assert best_at_three([40.0, None, None, None]) == pytest.approx(30.0)


def test_the_order_of_runs_makes_no_difference():
  scores = [5.0, None, 3.0, 90.0, None]
  for order in itertools.permutations(scores):
    assert avg_at_three(order) == pytest.approx(avg_at_three(scores))
    assert best_at_three(order) == pytest.approx(best_at_three(scores))


def test_many_runs_do_not_overflow():
  assert best_at_three([50.0] * 5000) == pytest.approx(50.0)
  assert avg_at_three([50.0] * 2500 + [None] * 2500) == pytest.approx(
    50.0 * (1 - 0.125), abs=0.02
  )


def test_rows_are_what_each_row_gives_alone():
  rows = np.array([[1.0, 2.0, math.nan, 8.0], [math.nan] * 4, [3.0] * 4])
  lists = [[None if x != x else x for x in row] for row in rows.tolist()]
  assert at_three.avg_rows(rows).tolist() == pytest.approx(
    [avg_at_three(row) for row in lists]
  )
  assert at_three.best_rows(rows).tolist() == pytest.approx(
    [best_at_three(row) for row in lists]
  )


def test_fewer_than_three_runs_are_refused():
  for figure in (avg_at_three, best_at_three):
    with pytest.raises(ValueError, match='need 3 runs of a task; there are 2'):
      figure([1.0, 2.0])


def test_tasks_weigh_the_same():
  assert at_three.over_tasks([0.0, 30.0, 90.0]) == 40.0
  with pytest.raises(ValueError, match='no tasks'):
    at_three.over_tasks([])
