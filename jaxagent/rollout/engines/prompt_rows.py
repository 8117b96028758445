"""Prompts side by side in the rows of a prefill, none padded to the longest.

Pure bookkeeping in numpy; `native_programs.prefill` computes the rows and brings
each block of them into its slot.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxagent.data.batching import first_fit_decreasing

# A prompt begins at a multiple of it and is written to its slot by as many
# tokens: for all columns at once there is no one place, and one by one is slow.
BLOCK = 8


@dataclasses.dataclass(frozen=True)
class Rows:
  """tokens, positions, segments: int32 [U, T], segment 0 where nothing is.

  slots: int32 [U, T / BLOCK], whose tokens a block holds.
  """

  tokens: np.ndarray
  positions: np.ndarray
  segments: np.ndarray
  slots: np.ndarray

  def cut(self, start: int, rows: int, nobody: int) -> Rows:
    """Returns `rows` from `start` on; those beyond the last have no prompt."""

    def part(array, fill):
      some = array[start : start + rows]
      missing = ((0, rows - len(some)), (0, 0))
      return np.pad(some, missing, constant_values=fill)

    return Rows(
      part(self.tokens, 0),
      part(self.positions, 0),
      part(self.segments, 0),
      part(self.slots, nobody),
    )


def pack(
  prompts: Sequence[np.ndarray],
  slots: Sequence[int],
  width: int,
  nobody: int,
  pad_id: int = 0,
) -> Rows:
  """Rows of `width` tokens (a multiple of BLOCK) that hold these prompts.

  A block without a prompt belongs to the slot that is given after `width`.
  """
  lengths = np.array([len(ids) for ids in prompts])
  row, start, n = first_fit_decreasing(-(-lengths // BLOCK) * BLOCK, width)
  shape = n, width
  tokens = np.full(shape, pad_id, np.int32)
  positions, segments = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
  owner = np.full((n, width // BLOCK), nobody, np.int32)
  for i, ids in enumerate(prompts):
    first, end = start[i], start[i] + len(ids)
    tokens[row[i], first:end] = ids
    positions[row[i], first:end] = np.arange(len(ids))
    segments[row[i], first:end] = i + 1
    owner[row[i], first // BLOCK : -(-end // BLOCK)] = slots[i]
  return Rows(tokens, positions, segments, owner)


def programs(rows: int, sizes: Sequence[int]) -> list[int]:
  """Sizes of the programs that compute `rows`: few, and little of them empty.

  The last may have room to spare, a quarter of it at most where there is a
  smaller size. sizes: ascending.
  """
  found = []
  while rows > 0:
    fitting = next((s for s in sizes if s >= rows), sizes[-1])
    below = [s for s in sizes if s <= rows]
    full = 4 * rows >= 3 * fitting or not below
    found.append(fitting if full else below[-1])
    rows -= found[-1]
  return found
