"""Packing lays every token out once and comes back unchanged."""

from __future__ import annotations

import numpy as np
import pytest

from jaxagent.data import batching
from tests.learner.conftest import make_samples


def _plan(lengths, **options):
  return batching.plan_packing(
    lengths, row_tokens_buckets=(16, 32), max_tokens=64, **options
  )


def test_worked_example():
  row, start, rows = batching.first_fit_decreasing(np.array([5, 9, 3, 8]), 16)
  # 9 opens row 0, 8 row 1, 5 fits beside 9, 3 beside 8.
  assert row.tolist() == [0, 0, 1, 1]
  assert start.tolist() == [9, 0, 8, 0]
  assert rows == 2


def test_every_token_lies_once_and_segments_do_not_overlap():
  rng = np.random.default_rng(0)
  lengths = rng.integers(1, 31, 200)
  packing = _plan(lengths)
  used = np.zeros(np.prod(packing.shape), int)
  for offset, length in zip(packing.offset, packing.length):
    used[offset : offset + length] += 1
  assert used.max() == 1 and used.sum() == lengths.sum()
  assert packing.efficiency > 0.85


def test_scatter_and_unpack_are_inverse():
  samples = make_samples(37)
  sequences = [batching.sequence_of(s) for s in samples]
  packing = _plan([len(s) for s in sequences])
  skip = np.array([len(s.prompt_ids) for s in samples])
  width = max(len(s.token_ids) for s in samples)
  tokens, positions, segments = batching.pack_tokens(packing, sequences, 0)
  back = packing.unpack(tokens, skip, width)
  for i, sample in enumerate(samples):
    n = len(sample.token_ids)
    assert back[i, :n].tolist() == sample.token_ids.tolist()
    assert not back[i, n:].any()
  values = back.astype(np.float32)
  again = packing.unpack(packing.scatter(values, skip), skip, width)
  np.testing.assert_array_equal(again, values)
  assert ((segments > 0).sum()) == sum(len(s) for s in sequences)
  starts = np.zeros_like(positions, bool)
  starts.reshape(-1)[packing.offset] = True
  assert (positions[starts] == 0).all()


def test_order_is_deterministic():
  lengths = np.random.default_rng(1).integers(1, 30, 50)
  first, second = _plan(lengths), _plan(lengths)
  np.testing.assert_array_equal(first.offset, second.offset)


def test_reward_sits_on_the_last_policy_token():
  sample = make_samples(1)[0]
  mask = np.ones(len(sample.token_ids), bool)
  mask[-2:] = False  # the response ends with an observation
  import dataclasses

  sample = dataclasses.replace(sample, loss_mask=mask)
  rewards = batching.sample_tables([sample], len(mask))['rewards'][0]
  assert np.flatnonzero(rewards).tolist() == [len(mask) - 3]
  weights = batching.spread_turns([sample], np.array([2.0]), len(mask))[0]
  np.testing.assert_array_equal(weights, np.where(mask, 2.0, 0.0))


def test_a_compiled_shape_is_preferred_where_it_costs_little(monkeypatch):
  monkeypatch.setattr(batching, 'SLACK', 1.0)
  lengths = [10] * 9
  free = _plan(lengths)
  kept = _plan(lengths, prefer={(free.rows, free.row_tokens)})
  assert (kept.rows, kept.row_tokens) == (free.rows, free.row_tokens)
  other = (4, 32) if (free.rows, free.row_tokens) == (4, 16) else (4, 16)
  monkeypatch.setattr(batching, 'SLACK', 10.0)
  forced = _plan(lengths, prefer={other})
  shape = (forced.rows, forced.row_tokens)
  assert shape in {other, (2, 32)}


def test_rows_divide_by_the_data_shards():
  packing = _plan([10] * 3, rows_multiple=2)
  assert packing.rows % 2 == 0


def test_errors_name_the_sample():
  with pytest.raises(ValueError, match='sample 1 has 40 tokens'):
    _plan([3, 40])
  with pytest.raises(ValueError, match='nothing to pack'):
    _plan([])
  with pytest.raises(ValueError, match='has no token'):
    _plan([3, 0])
  with pytest.raises(ValueError, match='2 tokens but 1 mask'):
    batching.pack_conversations(
      [(np.array([1, 2]), np.array([True]))], row_tokens_buckets=(8,)
    )


def test_conversation_masks():
  tokens = np.arange(1, 6)
  mask = np.array([True, False, True, True, False])
  batch = batching.pack_conversations(
    [(tokens, mask)], row_tokens_buckets=(8,), max_tokens=8
  )[0]
  # Nothing predicts the first token, so it is never learned.
  assert batch.mask[0].tolist() == [0, 0, 1, 1, 0, 0, 0, 0]
