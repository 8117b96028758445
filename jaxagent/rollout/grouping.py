"""Groups rows that are decoded together: few programs, each over like lengths.

A program reads as many columns of its cache for every row as its longest row
needs, so rows of like length belong together; but each program reads all weights,
so they are to be few, and each size is compiled first.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Callable, Sequence

Shape = tuple[int, int]  # rows of a program, columns that it reads
Group = tuple[list[int], int, int]  # slots, rows, columns
_NEXT_TO_NOTHING = 1.05


@dataclasses.dataclass(frozen=True)
class Floats:
  """Floats that a step reads: of the weights, and of the cache for a column.

  rows_a_read: rows whose products with the weights take as long as reading the
    weights once: about 16 on a processor, a few hundred on an accelerator.
  compiling: what could be read in the time that a program is compiled in.
  """

  weights: int
  column: int
  rows_a_read: int = 16
  compiling: float = 1e10

  def step(self, rows: int, columns: int) -> float:
    """Returns the cost of one program, its arithmetic counted as reading."""
    weights = self.weights * (1 + rows / self.rows_a_read)
    return weights + rows * columns * self.column


class Grouping:
  """Cuts rows into programs, with new ones where they pay.

  rows, columns: the sizes that there are, ascending; the last of `columns` holds
    all. steps: of a round.

  A program that would be cheaper but has to be compiled is taken once it would
  have saved as much as that costs (as one rents skis until buying had paid). Columns
  that cost next to nothing are read beyond need: a large model, whose weights are
  what is read, has few programs.
  """

  def __init__(
    self,
    rows: Sequence[int],
    columns: Sequence[int],
    floats: Floats,
    steps: int = 16,
  ):
    self._rows, self._columns, self._floats = rows, columns, floats
    self._steps = steps
    self._known: set[Shape] = set()
    self._missed: collections.Counter[Shape] = collections.Counter()

  def groups(self, slots: Sequence[int], held: Sequence[int]) -> list[Group]:
    """Groups `slots`, whose `held` ascend; a group may lack some of its rows."""
    cost, best = self._cheapest(slots, held, self._any)
    new = {(rows, columns) for _, rows, columns in best} - self._known
    if new:
      dearer, known = self._cheapest(slots, held, self._compiled)
      if known:
        share = (dearer - cost) * self._steps / len(new)
        self._missed.update(dict.fromkeys(new, share))
        if all(self._missed[shape] < self._floats.compiling for shape in new):
          return known
      self._known |= new
    return best

  def _any(self, rows: int, need: int) -> tuple[float, int]:
    fit = [c for c in self._columns if c >= need]
    costs = [self._floats.step(rows, c) for c in fit]
    return max(
      (cost, columns)
      for cost, columns in zip(costs, fit)
      if cost <= _NEXT_TO_NOTHING * costs[0]
    )

  def _compiled(self, rows: int, need: int) -> tuple[float, int]:
    fit = [c for r, c in self._known if r == rows and c >= need]
    if not fit:
      return math.inf, 0
    return self._floats.step(rows, min(fit)), min(fit)

  def _cheapest(
    self,
    slots: Sequence[int],
    held: Sequence[int],
    price: Callable[[int, int], tuple[float, int]],
  ) -> tuple[float, list[Group]]:
    """(its cost, groups), none where no programs hold them.

    price(rows, columns needed) -> cost and columns of a program, inf: none.
    """
    n = len(slots)
    cost, cut = [0.0] + [math.inf] * n, [(0, 0, 0)] * (n + 1)
    for end in range(1, n + 1):
      for rows in self._rows:
        start = max(0, end - rows)
        more, columns = price(rows, held[end - 1])
        if cost[start] + more < cost[end]:
          cost[end] = cost[start] + more
          cut[end] = (start, rows, columns)
    if cost[n] == math.inf:
      return math.inf, []
    found, end = [], n
    while end:
      start, rows, columns = cut[end]
      found.append((list(slots[start:end]), rows, columns))
      end = start
    return cost[n], found[::-1]
