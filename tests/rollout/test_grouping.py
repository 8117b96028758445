"""Groups of rows: all of them once, each in a program that holds it, cheapest."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from jaxagent.rollout.grouping import Floats, groups

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
  n = int(rng.integers(1, 12))
  held = sorted(rng.integers(0, 257, n).tolist())
  slots = rng.permutation(40)[:n].tolist()
  floats = Floats(int(10 ** rng.uniform(2, 6)), int(10 ** rng.uniform(1, 3)))
  found = groups(slots, held, ROWS, COLUMNS, floats)
  assert [slot for some, _, _ in found for slot in some] == slots
  for some, rows, columns in found:
    assert len(some) <= rows in ROWS and columns in COLUMNS
    assert max(held[slots.index(slot)] for slot in some) <= columns
  np.testing.assert_allclose(_cost(found, floats), _cheapest(held, floats))


def test_what_weights_and_columns_cost_decides():
  held = [10] * 16 + [250] * 4
  slots = list(range(20))
  wide = groups(slots, held, (1, 4, 16, 64), COLUMNS, Floats(1, 1000))
  assert [(r, c) for _, r, c in wide] == [(16, 64), (4, 256)]
  heavy = groups(slots, held, (1, 4, 16, 64), COLUMNS, Floats(10**9, 1, 256))
  assert [(r, c) for _, r, c in heavy] == [(64, 256)]


def test_nobody_is_no_group():
  assert groups([], [], ROWS, COLUMNS, Floats(1, 1)) == []
