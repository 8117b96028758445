"""Attention on CPUs by blocks of a row: what no query of a block sees is not computed.

Rows lie one behind the other in blocks of 64 tokens. A block of queries meets the key
blocks from the first that shares a segment with it up to its own, one after the other,
with a running maximum and sum (Milakov and Gimelshein 2018; Dao et al. 2022,
FlashAttention, algorithm 1); the backward pass computes the scores again from the
saved log-sum-exp (the same, algorithm 4) and skips the same blocks. All arrays of a
step fit into a core's cache. Where samples share a prompt, a block also skips what lies
between the prompt and its own branches: the branches of others.
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from jaxagent.models import rounding

# Tokens of a block: 32 and 128 take 1.2 and 1.5 times as long (docs/lab_log.md).
SIZE = 64
_MASKED = -1e30
_LAST = 2**31 - 1  # after each segment


def attend(
  q: jax.Array,
  k: jax.Array,
  v: jax.Array,
  segment_ids: jax.Array,
  branches: jax.Array | None,
  name: str,
) -> jax.Array:
  """q [B, T, H, h], k and v [B, T, K, h], segment_ids [B, T] -> [B, T, H, h].

  branches: [B, T] or None, as in `attention.attend`.
  name: of what a rematerialisation policy may keep, the result and its log-sum-exp.
  """
  t = q.shape[1]
  size = min(SIZE, t)
  pad = ((0, 0), (0, -t % size))
  q, k, v = (jnp.pad(a, (*pad, (0, 0), (0, 0))) for a in (q, k, v))
  segments = jnp.pad(segment_ids.astype(jnp.int32), pad)
  if branches is not None:
    branches = jnp.pad(branches.astype(jnp.int32), pad)
  how = size, rounding.here(), name
  out = _attend(how, q, k, v, segments, branches)
  return out[:, :t]


@dataclasses.dataclass(frozen=True)
class Met:
  """Which key blocks each query block meets: a range with a gap, or without.

  first, count: int32 [blocks]; blocks are counted through all rows, and the last one
  met is the query block itself.
  gap: (its first block, how many blocks it has), int32 [blocks] each, or None.
  """

  first: jax.Array
  count: jax.Array
  gap: tuple[jax.Array, jax.Array] | None

  def block(self, i: jax.Array, step: jax.Array) -> jax.Array:
    """Returns the key block that query block i meets as its `step`th, from 0."""
    j = self.first[i] + step
    if self.gap is None:
      return j
    begin, length = self.gap
    return j + jnp.where(j >= begin[i], length[i], 0)


def blocks_met(
  segments: jax.Array, branches: jax.Array | None, size: int
) -> Met:
  """segments, branches [B, n * size] -> the blocks to compute.

  Padding (0) counts as the last segment, as which it lies in a packed row; another
  order costs blocks, and no digit.
  """
  b, t = segments.shape
  n = t // size
  ids = jnp.where(segments == 0, _LAST, segments)
  low, high = _range(ids, size)
  # argmax gives the first one, which is at most the block itself.
  first = jnp.argmax(_overlap(low, high, low, high), -1)
  start = n * jnp.arange(b)[:, None]
  own = jnp.arange(n)
  if branches is None:
    count = own - first + 1
    return Met(_counted(first + start), _counted(count), None)
  # One number for each pair of segment and branch, in the order of the row.
  changed = (ids[:, 1:] != ids[:, :-1]) | (branches[:, 1:] != branches[:, :-1])
  pairs = jnp.pad(jnp.cumsum(changed, axis=1), ((0, 0), (1, 0)))
  bounds = _range(pairs, size)
  begins = jnp.argmax(_overlap(*bounds, *bounds), -1)
  # The last block up to its own in which there is a prompt of its segments.
  prompt = branches == 0
  prompts = (
    _range(jnp.where(prompt, ids, _LAST), size)[0],
    _range(jnp.where(prompt, ids, -1), size)[1],
  )
  shared = _overlap(low, high, *prompts) & (own[None] <= own[:, None])
  after = jnp.where(shared, own + 1, 0).max(-1)  # 0: there is none
  after = jnp.maximum(after, first)
  length = jnp.maximum(begins - after, 0)
  count = own - first + 1 - length
  return Met(
    _counted(first + start),
    _counted(count),
    (_counted(after + start), _counted(length)),
  )


def _counted(a: jax.Array) -> jax.Array:
  return a.reshape(-1).astype(jnp.int32)


def _range(ids: jax.Array, size: int) -> tuple[jax.Array, jax.Array]:
  """[B, n * size] -> the least and the largest of each block, [B, n]."""
  ids = ids.reshape(len(ids), -1, size)
  return ids.min(-1), ids.max(-1)


def _overlap(
  low: jax.Array, high: jax.Array, of_low: jax.Array, of_high: jax.Array
) -> jax.Array:
  """[B, n] each -> bool [B, n, n]: query block's range meets key block's."""
  return (of_high[:, None, :] >= low[:, :, None]) & (
    of_low[:, None, :] <= high[:, :, None]
  )


def _cut(a: jax.Array, size: int, kv: int) -> jax.Array:
  """[B, T, heads, h] -> [blocks, kv, heads / kv * size, h]."""
  b, t, heads, h = a.shape
  a = a.reshape(b * (t // size), size, kv, heads // kv, h)
  return a.transpose(0, 2, 3, 1, 4).reshape(len(a), kv, -1, h)


def _joined(a: jax.Array, size: int, shape: tuple[int, ...]) -> jax.Array:
  """Undoes `_cut` of an array of `shape`."""
  blocks, kv, rows, h = a.shape
  a = a.reshape(blocks, kv, rows // size, size, h)
  return a.transpose(0, 3, 1, 2, 4).reshape(shape)


def _sees(
  segments: jax.Array,
  branches: jax.Array | None,
  i: jax.Array,
  j: jax.Array,
  rows: int,
):
  """segments [blocks, size] -> bool [rows, size]: queries of block i, keys of j."""
  size = segments.shape[1]
  index = jnp.arange(size)
  later = (i * size + index)[:, None] >= (j * size + index)[None]
  sees = (segments[i][:, None] == segments[j][None]) & later
  if branches is not None:
    keys = branches[j][None]
    sees &= (keys == 0) | (branches[i][:, None] == keys)
  return jnp.tile(sees, (rows // size, 1))


def _in_blocks(
  segments: jax.Array, branches: jax.Array | None, size: int
) -> tuple[jax.Array, jax.Array | None]:
  """[B, n * size] -> [blocks, size] each."""
  parts = branches if branches is None else branches.reshape(-1, size)
  return segments.reshape(-1, size), parts


def _product(dtype: str, a: jax.Array, b: jax.Array, spec: str) -> jax.Array:
  a, b = rounding.rounded(a, dtype), rounding.rounded(b, dtype)
  return jnp.einsum(spec, a, b, preferred_element_type=jnp.float32)


def _forward(
  how: tuple[int, str, str],
  q: jax.Array,
  k: jax.Array,
  v: jax.Array,
  segments: jax.Array,
  branches: jax.Array | None,
):
  """(attended [B, T, H, h], what the backward pass needs).

  how: tokens of a block, type of the products' operands (`rounding`), name of the result.
  """
  size, dtype, name = how
  kv, multiply = k.shape[2], functools.partial(_product, dtype)
  queries = _cut(q * q.shape[-1] ** -0.5, size, kv)
  keys, values = _cut(k, size, kv), _cut(v, size, kv)
  met = blocks_met(segments, branches, size)
  blocks, parts = _in_blocks(segments, branches, size)
  rows = queries.shape[2]

  def block(i, found):
    query = queries[i]

    def meet(step: jax.Array, carry: tuple[jax.Array, ...]):
      # Its own block first: each query sees itself.
      j = met.block(i, met.count[i] - 1 - step)
      most, total, out = carry
      scores = multiply(query, keys[j], 'kqh,ksh->kqs')
      scores = jnp.where(_sees(blocks, parts, i, j, rows), scores, _MASKED)
      higher = jnp.maximum(most, scores.max(-1))
      shrunk = jnp.exp(most - higher)
      probs = jnp.exp(scores - higher[..., None])
      more = multiply(probs.astype(values.dtype), values[j], 'kqs,ksh->kqh')
      total = total * shrunk + probs.sum(-1)
      return higher, total, out * shrunk[..., None] + more

    start = (
      jnp.full((kv, rows), _MASKED),
      jnp.zeros((kv, rows)),
      jnp.zeros(query.shape, jnp.float32),
    )
    most, total, out = jax.lax.fori_loop(0, met.count[i], meet, start)
    out = (out / total[..., None]).astype(q.dtype)
    return found[0].at[i].set(out), found[1].at[i].set(most + jnp.log(total))

  start = jnp.zeros_like(queries), jnp.zeros(queries.shape[:3])
  out, lse = jax.lax.fori_loop(0, len(blocks), block, start)
  out = checkpoint_name(_joined(out, size, q.shape), name)
  lse = checkpoint_name(lse, name)
  return out, (q, k, v, segments, branches, out, lse)


def _backward(
  how: tuple[int, str, str], saved: tuple[jax.Array, ...], grad: jax.Array
):
  """Gradients of q, k and v."""
  size, dtype, _ = how
  multiply = functools.partial(_product, dtype)
  q, k, v, segments, branches, out, lse = saved
  kv, scale = k.shape[2], q.shape[-1] ** -0.5
  queries, keys, values = (_cut(a, size, kv) for a in (q * scale, k, v))
  grads = _cut(grad, size, kv)
  # Of each query, the sum over keys of p dp: it needs no pass of its own.
  weighted = jnp.sum(grads.astype(jnp.float32) * _cut(out, size, kv), -1)
  met = blocks_met(segments, branches, size)
  blocks, parts = _in_blocks(segments, branches, size)
  rows = queries.shape[2]

  def block(i, found):
    query, d_out = queries[i], grads[i]

    def meet(step: jax.Array, carry: tuple[jax.Array, ...]):
      j = met.block(i, step)
      d_query, d_keys, d_values = carry
      scores = multiply(query, keys[j], 'kqh,ksh->kqs')
      probs = jnp.exp(scores - lse[i][..., None])
      probs = jnp.where(_sees(blocks, parts, i, j, rows), probs, 0.0)
      d_probs = multiply(d_out, values[j], 'kqh,ksh->kqs')
      d_scores = probs * (d_probs - weighted[i][..., None])
      d_scores, probs = (a.astype(q.dtype) for a in (d_scores, probs))
      d_key = multiply(d_scores, query, 'kqs,kqh->ksh')
      d_value = multiply(probs, d_out, 'kqs,kqh->ksh')
      return (
        d_query + multiply(d_scores, keys[j], 'kqs,ksh->kqh'),
        d_keys.at[j].add(d_key),
        d_values.at[j].add(d_value),
      )

    start = jnp.zeros(query.shape, jnp.float32), *found[1:]
    d_query, *d_rest = jax.lax.fori_loop(0, met.count[i], meet, start)
    return found[0].at[i].set(d_query * scale), *d_rest

  start = tuple(jnp.zeros(a.shape, jnp.float32) for a in (queries, keys, keys))
  found = jax.lax.fori_loop(0, len(blocks), block, start)
  d_q, d_k, d_v = (
    _joined(d, size, a.shape).astype(a.dtype) for d, a in zip(found, (q, k, v))
  )
  return d_q, d_k, d_v, None, None


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(
  how: tuple[int, str, str],
  q: jax.Array,
  k: jax.Array,
  v: jax.Array,
  segments: jax.Array,
  branches: jax.Array | None,
) -> jax.Array:
  return _forward(how, q, k, v, segments, branches)[0]


_attend.defvjp(_forward, _backward)
