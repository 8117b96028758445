"""Packing of samples of very different lengths into a few static shapes.

NumPy only. A `Packing` says where each sample lies; arrays per sample [N, R]
(R response tokens, padded) and packed arrays [M, B, T] (M micro-batches of B
rows of T tokens) are turned into each other by index, so that whatever is
computed per sample is the same packed or not.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Sequence

import numpy as np

from jaxagent import types

SLACK = 0.15  # of its cost, what a shape that is compiled already may cost more
# Of flat rows: what may be padding where a length is compiled already, the room that a
# new length leaves for the next batch, lengths of an octave (multiples of _UNIT), and
# tokens that suffice: longer rows are no faster, and fit fewer totals (docs/lab_log.md).
MOST_PADDING, _ROOM, _LENGTHS, _UNIT, _ENOUGH = 0.1, 0.06, 16, 64, 2048
DEFAULT_ROW_TOKENS = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768)


@dataclasses.dataclass(frozen=True)
class Packing:
  """Places of N samples in M micro-batches of shape [rows, row_tokens].

  micro, row, start, length, segment: int32 [N]; segment counts from 1 within
  its row. Sample i covers flat tokens offset[i] .. offset[i] + length[i] - 1
  of the flattened [M, rows, row_tokens] array.
  """

  n_micro: int
  rows: int
  row_tokens: int
  micro: np.ndarray
  row: np.ndarray
  start: np.ndarray
  length: np.ndarray
  segment: np.ndarray

  @property
  def shape(self) -> tuple[int, int, int]:
    """(M, B, T)."""
    return self.n_micro, self.rows, self.row_tokens

  @property
  def offset(self) -> np.ndarray:
    """int64 [N]: first flat token of each sample."""
    rows = self.micro.astype(np.int64) * self.rows + self.row
    return rows * self.row_tokens + self.start

  @property
  def efficiency(self) -> float:
    """Real tokens over padded tokens."""
    return float(self.length.sum()) / float(np.prod(self.shape))

  @property
  def texts(self) -> tuple[np.ndarray, np.ndarray]:
    """Lengths of the texts that are computed, and tokens that each sees before it."""
    return self.length, np.zeros_like(self.length)

  def index(
    self, skip: np.ndarray, width: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Flat token index [N, width] and validity of each sample's tail.

    skip: int [N], tokens at the sample's start left out (the prompt).
    """
    step = np.arange(width)[None]
    valid = step < (self.length - skip)[:, None]
    index = (self.offset + skip)[:, None] + step
    return np.where(valid, index, 0), valid

  def unpack(
    self, packed: np.ndarray, skip: np.ndarray, width: int
  ) -> np.ndarray:
    """[M, B, T] -> [N, width], zero where the sample has ended."""
    index, valid = self.index(skip, width)
    return np.where(valid, np.asarray(packed).reshape(-1)[index], 0)

  def scatter(self, values: np.ndarray, skip: np.ndarray) -> np.ndarray:
    """[N, width] -> [M, B, T], zero where no sample's tail lies."""
    index, valid = self.index(skip, values.shape[1])
    flat = np.zeros(int(np.prod(self.shape)), values.dtype)
    flat[index[valid]] = values[valid]
    return flat.reshape(self.shape)


def rows_choices(max_rows: int, multiple: int = 1, parts: int = 4) -> tuple:
  """Row counts allowed: quarters of `max_rows`, multiples of `multiple`."""
  if max_rows < multiple:
    raise ValueError(
      f'{max_rows} rows do not hold {multiple} data shards; raise '
      'max_tokens or lower the data and fsdp axes.'
    )
  picks = {
    max(multiple, (max_rows * k // parts) // multiple * multiple)
    for k in range(1, parts + 1)
  }
  return tuple(sorted(picks))


def first_fit_decreasing(
  lengths: np.ndarray, row_tokens: int
) -> tuple[np.ndarray, np.ndarray, int]:
  """(row [N], start [N], n_rows). Ties go by index: deterministic."""
  order = np.lexsort((np.arange(len(lengths)), -lengths))
  used = np.zeros(len(lengths), np.int64)
  row = np.zeros(len(lengths), np.int64)
  start = np.zeros(len(lengths), np.int64)
  n_rows = 0
  for i in order:
    room = used[: n_rows + 1] + lengths[i] <= row_tokens
    r = int(np.argmax(room))
    n_rows = max(n_rows, r + 1)
    row[i], start[i] = r, used[r]
    used[r] += lengths[i]
  return row, start, n_rows


def plan_packing(
  lengths: Sequence[int] | np.ndarray,
  *,
  row_tokens_buckets: Sequence[int],
  max_tokens: int | None = None,
  rows_buckets: Sequence[int] | None = None,
  rows_multiple: int = 1,
  prefer: Collection[tuple[int, int]] = (),
  attention_tokens: float = 1024.0,
) -> Packing:
  """Chooses the cheapest static shape and lays the samples out.

  lengths: [N] tokens of each sample, all >= 1.
  max_tokens: bound on rows * row_tokens where rows_buckets is None.
  prefer: shapes (rows, row_tokens) already compiled; one of them is taken
    where it costs at most 15 % more than the best (`SLACK`).
  attention_tokens: row length at which attention costs as much as the
    matrix products (cost of a token = 1 + row_tokens / attention_tokens).

  Raises ValueError where a sample is longer than the largest bucket.
  """
  sizes = np.asarray(lengths, np.int64)
  buckets = tuple(sorted(row_tokens_buckets))
  _check_lengths(sizes, buckets)
  best: list[tuple[float, int, int, int]] = []
  for tokens in buckets:
    if tokens < sizes.max():
      continue
    laid = first_fit_decreasing(sizes, tokens)
    if rows_buckets is None:
      top = max((max_tokens or tokens) // tokens, 1)
      top = max(top // rows_multiple, 1) * rows_multiple
      choices = rows_choices(top, rows_multiple)
    else:
      choices = tuple(r for r in rows_buckets if r % rows_multiple == 0)
      if not choices:
        raise ValueError(
          f'rows_buckets={tuple(rows_buckets)} hold no multiple of the '
          f'{rows_multiple} data shards.'
        )
    for rows in choices:
      n_micro = -(-laid[2] // rows)
      cost = n_micro * (rows * tokens + 64) * (1 + tokens / attention_tokens)
      best.append((cost, -rows, tokens, n_micro))
  cost, rows, tokens, n_micro = min(best)
  known = [b for b in best if (-b[1], b[2]) in set(prefer)]
  if known and min(known)[0] <= cost * (1 + SLACK):
    cost, rows, tokens, n_micro = min(known)
  return _lay_out(sizes, -rows, tokens)


def plan_flat(
  lengths: Sequence[int] | np.ndarray,
  *,
  longest: int,
  max_tokens: int,
  prefer: Collection[tuple[int, int]] = (),
) -> Packing:
  """Lays the samples out one behind the other in one row a micro-batch.

  For a kernel of attention that skips other segments: the length of a row then costs
  padding alone, and is chosen from the batch, of 16 lengths an octave.

  lengths: [N] tokens of each sample, 1 to `longest`.
  max_tokens: bound on a row that holds several samples.
  prefer: shapes (1, row_tokens) already compiled; the best of them is taken where it
    leaves at most a tenth of padding (`MOST_PADDING`).

  Raises ValueError where a sample is longer than `longest`.
  """
  sizes = np.asarray(lengths, np.int64)
  _check_lengths(sizes, (longest,))
  total, largest = int(sizes.sum()), int(sizes.max())
  top = min(max_tokens, max(_ENOUGH, 2 * longest))
  top = top if largest <= top else flat_length(largest)
  rows_of = lambda tokens: first_fit_decreasing(sizes, tokens)[2]
  known = [
    (rows_of(tokens) * tokens, tokens)
    for rows, tokens in prefer
    if rows == 1 and largest <= tokens <= top
  ]
  if known and total >= (1 - MOST_PADDING) * min(known)[0]:
    return _lay_out(sizes, 1, min(known)[1])
  least = rows_of(top)
  found = []
  for rows in range(least, least + 3):
    wanted = max(math.ceil(total * (1 + _ROOM) / rows), largest)
    tokens = min(flat_length(wanted), top)
    while rows_of(tokens) > rows:
      tokens = min(flat_length(tokens + 1), top)
    found.append((rows * (tokens + _UNIT), tokens))
  return _lay_out(sizes, 1, min(found)[1])


def flat_length(tokens: int) -> int:
  """Returns the shortest length of a flat row that holds `tokens`.

  >>> [flat_length(n) for n in (1, 700, 1030, 2049)]
  [64, 704, 1088, 2176]
  """
  octave = 1 << (int(tokens).bit_length() - 1)
  unit = max(octave // _LENGTHS, _UNIT)
  return -(-tokens // unit) * unit


def _check_lengths(lengths: np.ndarray, buckets: tuple[int, ...]) -> None:
  if lengths.size == 0:
    raise ValueError('nothing to pack: the list of samples is empty.')
  if lengths.min() < 1:
    raise ValueError(f'sample {int(lengths.argmin())} has no token.')
  if lengths.max() > buckets[-1]:
    raise ValueError(
      f'sample {int(lengths.argmax())} has {int(lengths.max())} tokens, more '
      f'than the largest row ({buckets[-1]}); raise row_tokens_buckets or '
      'lower max_prompt_tokens or max_new_tokens.'
    )


def _lay_out(lengths: np.ndarray, rows: int, row_tokens: int) -> Packing:
  row, start, n_rows = first_fit_decreasing(lengths, row_tokens)
  n_micro = -(-n_rows // rows)
  # Rows are dealt round robin, so that no micro-batch is mostly empty.
  micro, local = row % n_micro, row // n_micro
  segment = np.zeros(len(lengths), np.int64)
  for r in range(n_rows):
    members = np.flatnonzero(row == r)
    segment[members[np.argsort(start[members])]] = np.arange(len(members)) + 1
  as_int = lambda x: x.astype(np.int32)
  return Packing(
    n_micro,
    rows,
    row_tokens,
    *map(as_int, (micro, local, start, lengths, segment)),
  )


def pack_tokens(
  packing: Packing, sequences: Sequence[np.ndarray], pad_id: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """(tokens, positions, segment_ids), each int32 [M, B, T]."""
  width = int(packing.length.max())
  table = np.full((len(sequences), width), pad_id, np.int32)
  for i, sequence in enumerate(sequences):
    table[i, : len(sequence)] = sequence
  none = np.zeros(len(sequences), np.int64)
  index, valid = packing.index(none, width)
  n = int(np.prod(packing.shape))
  tokens = np.full(n, pad_id, np.int32)
  positions = np.zeros(n, np.int32)
  segments = np.zeros(n, np.int32)
  tokens[index[valid]] = table[valid]
  positions[index[valid]] = np.nonzero(valid)[1]
  segments[index[valid]] = np.repeat(packing.segment, packing.length)
  shape = packing.shape
  return (
    tokens.reshape(shape),
    positions.reshape(shape),
    segments.reshape(shape),
  )


def sample_tables(
  samples: Sequence[types.Sample], width: int
) -> dict[str, np.ndarray]:
  """Per-sample arrays [N, width] over response tokens, zero-padded, float32.

  mask; behaviour_logprobs; rewards, each turn's at its last policy token (on
  an observation token it would be lost); later, the sample's `later_reward`
  at its last policy token; turn, 1, 2, .. on the tokens of each turn.
  """
  shape = (len(samples), width)
  names = ('mask', 'behaviour_logprobs', 'rewards', 'later', 'turn')
  tables = {name: np.zeros(shape, np.float32) for name in names}
  for i, sample in enumerate(samples):
    length = len(sample.token_ids)
    tables['mask'][i, :length] = sample.loss_mask
    tables['behaviour_logprobs'][i, :length] = np.where(
      sample.loss_mask, sample.behaviour_logprobs, 0.0
    )
    for number, turn in enumerate(sample.steps(), 1):
      tables['turn'][i, turn.start : turn.end] = number
      policy = np.flatnonzero(sample.loss_mask[turn.start : turn.end])
      if policy.size:
        tables['rewards'][i, turn.start + policy[-1]] = turn.reward
    policy = np.flatnonzero(sample.loss_mask)
    if policy.size:
      tables['later'][i, policy[-1]] = sample.later_reward
  return tables


def spread_turns(
  samples: Sequence[types.Sample], per_turn: np.ndarray, width: int
) -> np.ndarray:
  """float32 [N, width]: values [S], one for each turn of the samples in
  order, on the policy tokens of each turn; 0 elsewhere."""
  table = np.zeros((len(samples), width), np.float32)
  values = iter(np.asarray(per_turn, np.float32))
  for row, sample in zip(table, samples):
    for turn in sample.steps():
      mask = sample.loss_mask[turn.start : turn.end]
      row[turn.start : turn.end] = np.where(mask, next(values), 0.0)
  return table


def sequence_of(sample: types.Sample) -> np.ndarray:
  """int32 [P + N]: prompt and response. Raises where there is no prompt."""
  if len(sample.prompt_ids) == 0:
    raise ValueError(
      f'sample {sample.prompt_id} has an empty prompt: its first token has '
      'nothing to be predicted from; begin prompts with a start token.'
    )
  return np.concatenate([sample.prompt_ids, sample.token_ids]).astype(np.int32)


def pack_conversations(
  conversations: Sequence[tuple[np.ndarray, np.ndarray]],
  *,
  pad_id: int = 0,
  plan: Callable[..., Packing] = plan_packing,
  **options,
) -> list[types.Batch]:
  """(token ids [L], loss mask bool [L]) each -> batches for SFT.

  The first token of a conversation is never learned: nothing predicts it.
  plan: from lengths and `options` to where each conversation lies.
  """
  lengths = [len(tokens) for tokens, _ in conversations]
  for i, (tokens, mask) in enumerate(conversations):
    if len(tokens) != len(mask):
      raise ValueError(
        f'conversation {i}: {len(tokens)} tokens but {len(mask)} mask values.'
      )
  packing = plan(lengths, **options)
  table = np.zeros((len(lengths), max(lengths)), np.float32)
  for i, (_, mask) in enumerate(conversations):
    table[i, 1 : len(mask)] = mask[1:]
  mask = packing.scatter(table, np.zeros(len(lengths), np.int64))
  zeros = np.zeros_like(mask)
  packed = {
    'mask': mask,
    'behaviour_logprobs': zeros,
    'rewards': zeros,
    'weights': mask,
  }
  ids = pack_tokens(packing, [t for t, _ in conversations], pad_id)
  return _batches(packing, ids, packed)


def _batches(packing: Packing, ids, packed) -> list[types.Batch]:
  tokens, positions, segments = ids
  return [
    types.Batch(
      tokens=tokens[m],
      positions=positions[m],
      segment_ids=segments[m],
      n_samples=int((packing.micro == m).sum()),
      **{k: v[m] for k, v in packed.items()},
    )
    for m in range(packing.n_micro)
  ]
