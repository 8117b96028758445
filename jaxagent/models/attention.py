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

KERNELS = ('auto', 'mapped', 'xla', 'cudnn')
_MASKED = -1e30
_QUERY_BLOCKS = 4

_log = logging.getLogger(__name__)


@functools.cache
def choose(
  kernel: str, dtype: str = 'bfloat16', head_dim: int = 128, tokens: int = 2
) -> str:
  """The kernel that runs, logged once. 'auto' goes by the default backend.

  dtype, head_dim, tokens: of what attends, its row length last. 'auto' takes
  'mapped' on a CPU, 'cudnn' on a GPU where that can be, and else 'xla'.
  Raises ValueError for a kernel that is not known or cannot be here.
  """
  if kernel not in KERNELS:
    raise ValueError(f'attention={kernel!r} is not one of {KERNELS}.')
  backend = jax.default_backend()
  if kernel == 'auto' and backend == 'cpu':
    kernel = 'mapped'
  elif kernel in ('auto', 'cudnn'):
    why_not = _cudnn_here(dtype, head_dim, tokens)
    if kernel == 'cudnn' and why_not:
      raise ValueError(f"attention='cudnn': {why_not}; choose 'auto'.")
    kernel = 'xla' if why_not else 'cudnn'
  _log.info(
    'attention kernel: %s on %s (%s, heads of %d, %d tokens a row)',
    kernel,
    backend,
    dtype,
    head_dim,
    tokens,
  )
  return kernel


def _cudnn_here(dtype: str, head_dim: int, tokens: int) -> str:
  """Why the first device cannot run cuDNN's flash attention, or ''."""
  device = jax.devices()[0]
  if 'cuda' not in device.client.platform_version:
    return f'needs an NVIDIA GPU, and the backend is {device.platform}'
  major, minor = map(int, device.compute_capability.split('.'))
  return no_cudnn((major, minor), dtype, head_dim, tokens)


def no_cudnn(
  capability: tuple[int, int], dtype: str, head_dim: int, tokens: int = 2
) -> str:
  """Why cuDNN's flash attention cannot be had, or ''.

  Its limits as JAX 0.10 and 0.11 check them, in one place and before a trace.
  """
  if capability < (8, 0):
    return f'needs Ampere (8.0) or newer, not compute capability {capability}'
  if dtype not in ('bfloat16', 'float16'):
    return f'needs dtype bfloat16 or float16, not {dtype}'
  most = 256 if capability >= (9, 0) else 128
  if head_dim % 8 or head_dim > most:
    return f'needs head_dim a multiple of 8 up to {most}, not {head_dim}'
  if tokens % 2:
    return f'needs rows of an even number of tokens, not {tokens}'
  return ''


def attend(
  q: jax.Array,
  k: jax.Array,
  v: jax.Array,
  segment_ids: jax.Array,
  kernel: str = 'auto',
) -> jax.Array:
  """q [B, T, H, h], k and v [B, T, K, h], segment_ids [B, T] -> [B, T, H, h]."""
  segment_ids = jnp.asarray(segment_ids)
  chosen = choose(kernel, str(q.dtype), q.shape[-1], q.shape[1])
  run = {'mapped': _mapped, 'xla': _xla, 'cudnn': _cudnn}[chosen]
  return run(q, k, v, segment_ids)


def _mask(
  segment_ids: jax.Array, start: int = 0, stop: int | None = None
) -> jax.Array:
  """[T] -> bool [stop - start, stop]: whether the query (row) sees the key.

  Queries are those of start .. stop - 1 (default: all), keys those up to
  stop - 1: no later one is seen.
  """
  index = jnp.arange(segment_ids.shape[-1])
  queries, keys = slice(start, stop), slice(stop)
  same = segment_ids[queries, None] == segment_ids[None, keys]
  return same & (index[queries, None] >= index[None, keys])


def _mapped(q, k, v, segment_ids):
  """One plain matmul a (row, key head, query block): the CPU's fast path.

  The H/K query heads that share a key head are stacked as rows of one
  [H/K * T, h] matrix, so repeated heads are never materialised. A block of
  queries meets the keys up to its own end only. Scores are recomputed in the
  backward pass: a [B, H, T, T] array never exists.
  """
  b, t, heads, h = q.shape
  kv = k.shape[2]
  group = heads // kv
  q = q.reshape(b, t, kv, group, h).transpose(0, 2, 3, 1, 4)
  q = q.reshape(b * kv, group, t, h)
  k = k.transpose(0, 2, 1, 3).reshape(b * kv, t, h)
  v = v.transpose(0, 2, 1, 3).reshape(b * kv, t, h)
  rows = jnp.arange(b * kv) // kv
  size = _block_size(t)

  @jax.checkpoint
  def one(args):
    q_h, k_h, v_h, row = args
    segments = segment_ids[row]
    blocks = [
      _block(q_h, k_h, v_h, segments, start, start + size)
      for start in range(0, t, size)
    ]
    return jnp.concatenate(blocks, axis=1)

  out = jax.lax.map(one, (q, k, v, rows))
  out = out.reshape(b, kv, group, t, h).transpose(0, 3, 1, 2, 4)
  return out.reshape(b, t, heads, h)


def _block_size(t: int) -> int:
  """Queries of one block; short rows and odd lengths are one block."""
  return t // _QUERY_BLOCKS if t >= 256 and t % _QUERY_BLOCKS == 0 else t


def _block(q, k, v, segments, start: int, stop: int) -> jax.Array:
  """q [G, T, h], k and v [T, h] -> [G, stop - start, h], one query block."""
  group, _, h = q.shape
  block = q[:, start:stop].reshape(-1, h)
  scores = jnp.matmul(block, k[:stop].T, preferred_element_type=jnp.float32)
  scores = (scores * h**-0.5).reshape(group, stop - start, stop)
  scores = jnp.where(_mask(segments, start, stop), scores, _MASKED)
  probs = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
  out = probs.reshape(-1, stop) @ v[:stop]
  return out.reshape(group, stop - start, h)


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


def _cudnn(q, k, v, segment_ids):
  """Flash attention: no [T, T] array a head, and no work above the diagonal.

  Segments are a mask of one head, [B, 1, T, T], that all heads share.
  """
  same = segment_ids[:, :, None] == segment_ids[:, None, :]
  return jax.nn.dot_product_attention(
    q, k, v, mask=same[:, None], is_causal=True, implementation='cudnn'
  )
