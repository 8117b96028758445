"""Which rows are decoded together: few programs, each over like lengths.

A program reads as many columns of its cache for every row as its longest row
needs, so rows of like length belong together; but each program reads all weights,
so they are to be few.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

Group = tuple[list[int], int, int]  # slots, rows of the program, its columns


@dataclasses.dataclass(frozen=True)
class Floats:
  """What a step reads: of the weights, and of the cache for a row's column.

  rows_a_read: rows whose products with the weights take as long as reading the
    weights once: about 16 on a processor, a few hundred on an accelerator.
  """

  weights: int
  column: int
  rows_a_read: int = 16

  def step(self, rows: int, columns: int) -> float:
    """Of one program, its arithmetic counted as reading."""
    weights = self.weights * (1 + rows / self.rows_a_read)
    return weights + rows * columns * self.column


def groups(
  slots: Sequence[int],
  held: Sequence[int],
  rows: Sequence[int],
  columns: Sequence[int],
  floats: Floats,
) -> list[Group]:
  """The cheapest cut of `slots`, whose `held` ascend, into programs.

  rows, columns: the sizes that there are, ascending; the last of `columns` holds
  all. A group may have fewer slots than its program has rows.
  """
  n = len(slots)
  wide = [next(c for c in columns if c >= length) for length in held]
  cost, cut = [0.0] + [float('inf')] * n, [(0, 0)] * (n + 1)
  for end in range(1, n + 1):
    for size in rows:
      start = max(0, end - size)
      price = cost[start] + floats.step(size, wide[end - 1])
      if price < cost[end]:
        cost[end], cut[end] = price, (start, size)
      if not start:
        break  # a larger program has room for as many
  found = []
  end = n
  while end:
    start, size = cut[end]
    found.append((list(slots[start:end]), size, wide[end - 1]))
    end = start
  return found[::-1]
