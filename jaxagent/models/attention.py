"""Causal attention within segments of packed rows: the kernels we have.

Every kernel takes the packed-row mask: a query sees the keys at or before it
in its row that carry its segment id. Padding (segment 0) sees padding only,
which keeps it finite without touching anything else.
"""

from __future__ import annotations

import functools
import logging

import jax
import jax.numpy as jnp

KERNELS = ('auto', 'mapped', 'xla')
_MASKED = -1e30

_log = logging.getLogger(__name__)


@functools.cache
def choose(kernel: str) -> str:
  """The kernel that runs, logged once. 'auto' goes by the default backend."""
  if kernel not in KERNELS:
    raise ValueError(f'attention={kernel!r} is not one of {KERNELS}.')
  backend = jax.default_backend()
  if kernel == 'auto':
    kernel = 'mapped' if backend == 'cpu' else 'xla'
  _log.info('attention kernel: %s on %s', kernel, backend)
  return kernel


def attend(
  q: jax.Array,
  k: jax.Array,
  v: jax.Array,
  segment_ids: jax.Array,
  kernel: str = 'auto',
) -> jax.Array:
  """q [B, T, H, h], k and v [B, T, K, h], segment_ids [B, T] -> [B, T, H, h]."""
  segment_ids = jnp.asarray(segment_ids)
  run = {'mapped': _mapped, 'xla': _xla}[choose(kernel)]
  return run(q, k, v, segment_ids)


def _mask(segment_ids: jax.Array) -> jax.Array:
  """[T] -> bool [T, T], True where the query (row) sees the key (column)."""
  index = jnp.arange(segment_ids.shape[-1])
  same = segment_ids[:, None] == segment_ids[None, :]
  return same & (index[:, None] >= index[None, :])


def _mapped(q, k, v, segment_ids):
  """One plain matmul a (row, key head): the CPU's fast path.

  The H/K query heads that share a key head are stacked as rows of one
  [H/K * T, h] matrix, so repeated heads are never materialised. Scores are
  recomputed in the backward pass: a [B, H, T, T] array never exists.
  """
  b, t, heads, h = q.shape
  kv = k.shape[2]
  group = heads // kv
  q = q.reshape(b, t, kv, group, h).transpose(0, 2, 3, 1, 4)
  q = q.reshape(b * kv, group * t, h)
  k = k.transpose(0, 2, 1, 3).reshape(b * kv, t, h)
  v = v.transpose(0, 2, 1, 3).reshape(b * kv, t, h)
  rows = jnp.arange(b * kv) // kv
  scale = h**-0.5

  @jax.checkpoint
  def one(args):
    q_h, k_h, v_h, row = args
    scores = jnp.matmul(q_h, k_h.T, preferred_element_type=jnp.float32) * scale
    scores = scores.reshape(group, t, t)
    scores = jnp.where(_mask(segment_ids[row]), scores, _MASKED)
    probs = jax.nn.softmax(scores, axis=-1).astype(v_h.dtype)
    return probs.reshape(group * t, t) @ v_h

  out = jax.lax.map(one, (q, k, v, rows))
  out = out.reshape(b, kv, group, t, h).transpose(0, 3, 1, 2, 4)
  return out.reshape(b, t, heads, h)


def _xla(q, k, v, segment_ids):
  """Batched einsums; memory grows with T squared."""
  b, t, heads, h = q.shape
  kv = k.shape[2]
  q = q.reshape(b, t, kv, heads // kv, h)
  scores = jnp.einsum(
    'btkgh,bskh->bkgts', q, k, preferred_element_type=jnp.float32
  )
  mask = jax.vmap(_mask)(segment_ids)[:, None, None]
  scores = jnp.where(mask, scores * h**-0.5, _MASKED)
  probs = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
  return jnp.einsum('bkgts,bskh->btkgh', probs, v).reshape(b, t, heads, h)


def attend_cached(
  q: jax.Array, k: jax.Array, v: jax.Array, visible: jax.Array
) -> jax.Array:
  """One new token a row against a cache.

  q [B, H, h], k and v [B, K, S, h], visible bool [B, S] -> [B, H, h].
  """
  b, heads, h = q.shape
  kv = k.shape[1]
  q = q.reshape(b, kv, heads // kv, h)
  scores = jnp.einsum(
    'bkgh,bksh->bkgs', q, k, preferred_element_type=jnp.float32
  )
  scores = jnp.where(visible[:, None, None], scores * h**-0.5, _MASKED)
  probs = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
  return jnp.einsum('bkgs,bksh->bkgh', probs, v).reshape(b, heads, h)
