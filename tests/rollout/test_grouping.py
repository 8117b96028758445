"""Groups of rows: each row once, in a program that holds it, cheaply."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from jaxagent.rollout.grouping import Floats, Grouping
from tests.subset import fast

ROWS, COLUMNS = (1, 4, 16), (64, 128, 256)


def _cost(found, floats):
  return sum(floats.step(rows, columns) for _, rows, columns in found)


def _cheapest(held, floats):
  """Of all ways to cut them in turn, by trying each."""
  best = float('inf')
  for cuts in itertools.product((False, True), repeat=len(held) - 1):
    cost, start = 0.0, 0
    for end, cut in enumerate((*cuts, True), 1):
      if cut:
        rows = next((r for r in ROWS if r >= end - start), None)
        if rows is None:
          break
        columns = next(c for c in COLUMNS if c >= held[end - 1])
        cost, start = cost + floats.step(rows, columns), end
    else:
      best = min(best, cost)
  return best


@pytest.mark.parametrize('seed', range(30))
def test_they_hold_all_and_cost_least(seed):
  rng = np.random.default_rng(seed)
  weights, column = (int(10 ** rng.uniform(*ends)) for ends in ((2, 6), (1, 3)))
  floats = Floats(weights, column, compiling=0.0)
  grouping = Grouping(ROWS, COLUMNS, floats)
  for _ in range(5):
    n = int(rng.integers(1, 12))
    held = sorted(rng.integers(0, 257, n).tolist())
    slots = rng.permutation(40)[:n].tolist()
    found = grouping.groups(slots, held)
    _check(found, slots, held)
    least = _cheapest(held, floats)
    assert (
      0.999 < _cost(found, floats) / least < 1.051
    )  # 5 %: columns beyond need


def _check(found, slots, held):
  assert [slot for some, _, _ in found for slot in some] == slots
  for some, rows, columns in found:
    assert len(some) <= rows in ROWS and columns in COLUMNS
    assert max(held[slots.index(slot)] for slot in some) <= columns


@pytest.mark.parametrize('seed', fast(range(10), first=2))
def test_a_program_is_made_once_it_would_have_paid(seed):
  """All that is lost to known programs is what new ones cost, for each."""
  rng = np.random.default_rng(seed)
  floats = Floats(1000, 100, compiling=1e8)
  grouping, lost, shapes = Grouping(ROWS, COLUMNS, floats, steps=16), 0.0, set()
  for _ in range(600):
    n = int(rng.integers(1, 12))
    held = sorted(rng.integers(0, 257, n).tolist())
    found = grouping.groups(list(range(n)), held)
    _check(found, list(range(n)), held)
    lost += 16 * (_cost(found, floats) - _cheapest(held, floats))
    shapes |= {(rows, columns) for _, rows, columns in found}
  assert 0 < lost < len(ROWS) * len(COLUMNS) * 1e8
  assert 1 < len(shapes) <= len(ROWS) * len(COLUMNS)


def test_few_programs_suffice_where_reading_weights_dominates():
  """Nothing compiled yet, and each length of its own."""
  grouping = Grouping(ROWS, COLUMNS, Floats(10**9, 1000, compiling=1e13))
  shapes = set()
  for length in range(20, 250, 16):
    shapes |= {tuple(g[1:]) for g in grouping.groups([0, 1, 2], [length] * 3)}
  assert shapes == {(4, COLUMNS[-1])}


def _shapes(floats):
  grouping = Grouping((1, 4, 16, 64), COLUMNS, floats)
  found = grouping.groups(list(range(20)), [10] * 16 + [250] * 4)
  return [(rows, columns) for _, rows, columns in found]


def test_what_weights_and_columns_cost_decides():
  assert _shapes(Floats(1, 1000)) == [(16, 64), (4, 256)]
  assert _shapes(Floats(10**9, 1, rows_a_read=256)) == [(64, 256)]


def test_no_requests_make_no_group():
  assert Grouping(ROWS, COLUMNS, Floats(1, 1)).groups([], []) == []
