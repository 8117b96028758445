"""Prompts side by side: every token once, in its own place."""

from __future__ import annotations

import numpy as np
import pytest

from jaxagent.rollout.engines import prompt_rows
from jaxagent.rollout.engines.prompt_rows import BLOCK

NOBODY = 99


def _prompts(lengths, seed=0):
  rng = np.random.default_rng(seed)
  return [rng.integers(1, 50, n).astype(np.int32) for n in lengths]


def _read(rows, slot) -> np.ndarray:
  """The text that the slot gets, by its blocks' first positions."""
  text = {}
  for row, block in np.argwhere(rows.slots == slot):
    here = slice(block * BLOCK, (block + 1) * BLOCK)
    at = rows.positions[row, here.start]
    for i, (token, segment) in enumerate(
      zip(rows.tokens[row, here], rows.segments[row, here])
    ):
      if segment:
        assert at + i not in text
        assert rows.positions[row, here.start + i] == at + i
        text[at + i] = token
  return np.array([text[i] for i in range(len(text))], np.int32)


@pytest.mark.parametrize('seed', range(20))
def test_every_prompt_is_whole(seed):
  rng = np.random.default_rng(seed)
  prompts = _prompts(rng.integers(1, 65, rng.integers(1, 40)), seed)
  slots = rng.permutation(len(prompts))
  rows = prompt_rows.pack(prompts, slots, 64, NOBODY)
  for slot, ids in zip(slots, prompts):
    np.testing.assert_array_equal(_read(rows, slot), ids)
  assert np.count_nonzero(rows.segments) == sum(map(len, prompts))
  # A block that belongs to nobody holds nothing, and the other way round.
  blocks = rows.segments.reshape(len(rows.segments), -1, BLOCK)
  np.testing.assert_array_equal(blocks.any(-1), rows.slots != NOBODY)


def test_rows_are_shared():
  rows = prompt_rows.pack(_prompts([33, 31, 8, 56]), range(4), 64, NOBODY)
  assert len(rows.tokens) == 3  # 40, 32, 8 and 56 tokens, by blocks
  for row in rows.segments:
    assert 1 <= len(set(row) - {0}) <= 2


def test_cut_fills_missing_rows_with_the_slot_of_no_prompt():
  rows = prompt_rows.pack(_prompts([64, 64, 64]), range(3), 64, NOBODY)
  part = rows.cut(2, 4, NOBODY)
  assert part.tokens.shape == (4, 64) and part.slots.shape == (4, 8)
  assert set(part.slots[0]) < {0, 1, 2} and (part.slots[1:] == NOBODY).all()
  assert not part.segments[1:].any()


@pytest.mark.parametrize(
  'rows, want',
  [
    (1, [1]),
    (3, [4]),
    (5, [4, 1]),
    (12, [16]),
    (11, [4, 4, 4]),
    (48, [48]),
    (100, [48, 48, 4]),
  ],
)
def test_programs(rows, want):
  assert prompt_rows.programs(rows, (1, 4, 16, 48)) == want


def test_a_size_alone_is_taken():
  assert prompt_rows.programs(3, (8,)) == [8]
  assert prompt_rows.programs(3, (1,)) == [1, 1, 1]
