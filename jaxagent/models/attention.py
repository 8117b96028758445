"""Causal attention within segments of packed rows: the kernels we have.

Every kernel takes the packed-row mask: a query sees the keys at or before it
in its row that carry its segment id. Padding (segment 0) sees padding only,
which keeps it finite without touching anything else. Where samples share a prompt, a
segment has branches: all see the prompt, which is branch 0, and none sees another.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from jaxagent.devices import placement
from jaxagent.models import block_attention
from jaxagent.models.config import KERNELS

NAME = 'attended'  # of what remat='attention' keeps
OF_CPUS = ('blocks', 'mapped')  # kernels that are made for them
_MASKED = -1e30
_QUERY_BLOCKS = 4
_LANES = 128  # of a TPU's vector unit
_SPLASH_BLOCKS = (512, 384, 256, 128)
_SPLASH_SIZES = tuple(
  f'block_{of}'
  for of in 'q kv kv_compute q_dkv kv_dkv kv_dkv_compute q_dq kv_dq'.split()
)

_log = logging.getLogger(__name__)


def choose(
  kernel: str,
  dtype: str = 'bfloat16',
  head_dim: int = 128,
  tokens: int | None = None,
  device: Any = None,
) -> str:
  """Returns the kernel that runs on a device, logged once.

  dtype, head_dim, tokens: of what attends, its row length last, None where it is not
  known yet. device: by default the one that the program of now is made for. 'auto'
  takes 'blocks' on a CPU, 'cudnn' on a GPU and 'splash' on a TPU where that can be,
  and else 'xla'. Raises ValueError for a kernel that is not known or cannot be there.
  """
  device = placement.device() if device is None else device
  # A device of a topology has no version of its platform; no other is ROCm's.
  version = str(getattr(device.client, 'platform_version', ''))
  capability = getattr(device, 'compute_capability', None)
  nvidia = device.platform == 'gpu' and capability and 'rocm' not in version
  return _choose(
    kernel,
    dtype,
    head_dim,
    tokens,
    (device.platform, device.device_kind, capability if nvidia else ''),
  )


@functools.cache
def _choose(
  kernel: str,
  dtype: str,
  head_dim: int,
  tokens: int | None,
  device: tuple[str, str, str],
) -> str:
  """`choose` for (platform, kind, compute capability of NVIDIA's, else '')."""
  if kernel not in KERNELS:
    raise ValueError(f'attention={kernel!r} is not one of {KERNELS}.')
  (platform, kind, capability), why_not = device, ''
  if kernel == 'auto' and platform == 'cpu':
    kernel = 'blocks'
  elif kernel in ('auto', 'cudnn', 'splash'):
    flash = 'splash' if kernel == 'auto' and platform == 'tpu' else kernel
    flash = 'cudnn' if flash == 'auto' else flash
    why_not = (
      no_splash(platform, tokens)
      if flash == 'splash'
      else _no_cudnn_on(platform, capability, dtype, head_dim, tokens)
    )
    if kernel == flash and why_not:
      raise ValueError(f"attention='{flash}': {why_not}; choose 'auto'.")
    why_not = f'{flash} {why_not}' if why_not else ''
    kernel = 'xla' if why_not else flash
  if tokens is None:
    return kernel
  _log.info(
    'attention kernel: %s on %s (%s, heads of %d, %d tokens a row)',
    kernel,
    platform,
    dtype,
    head_dim,
    tokens,
  )
  if kernel == 'xla' and platform != 'cpu':
    _log.warning(
      'attention by einsums holds scores float32 [rows, heads, %d, %d] on %s, which '
      'grow with the square of a row: %s.',
      tokens,
      tokens,
      kind,
      why_not or "model.attention='xla' asks for it; choose 'auto'",
    )
  return kernel


def _no_cudnn_on(platform: str, capability: str, *what) -> str:
  """Returns why a device cannot run cuDNN's flash attention, or ''."""
  if not capability:
    return f'needs an NVIDIA GPU, and the backend is {platform}'
  major, minor = map(int, capability.split('.'))
  return no_cudnn((major, minor), *what)


def no_splash(platform: str, tokens: int | None = None) -> str:
  """Returns why splash attention cannot run rows of `tokens`, or ''."""
  if platform != 'tpu':
    return f'needs a TPU, and the backend is {platform}'
  if tokens is not None and tokens % _LANES:
    return f'needs rows in multiples of {_LANES} tokens, not {tokens}'
  return ''


def no_cudnn(
  capability: tuple[int, int],
  dtype: str,
  head_dim: int,
  tokens: int | None = None,
) -> str:
  """Returns why cuDNN's flash attention cannot be used, or ''.

  Its limits as JAX 0.10 and 0.11 check them, in one place and before a trace.
  """
  if capability < (8, 0):
    return f'needs Ampere (8.0) or newer, not compute capability {capability}'
  if dtype not in ('bfloat16', 'float16'):
    return f'needs dtype bfloat16 or float16, not {dtype}'
  most = 256 if capability >= (9, 0) else 128
  if head_dim % 8 or head_dim > most:
    return f'needs head_dim a multiple of 8 up to {most}, not {head_dim}'
  if tokens is not None and tokens % 2:
    return f'needs rows of an even number of tokens, not {tokens}'
  return ''


def no_branches(kernel: str) -> str:
  """Returns why a kernel that was chosen cannot run samples that share a prompt, or ''."""
  if kernel != 'splash':
    return ''
  return (
    "attention='splash' masks whole segments, and a prompt that samples share is seen "
    "from several; set rl.share_prompts=False, or take model.attention='xla'."
  )


def attend(
  q: jax.Array,
  k: jax.Array,
  v: jax.Array,
  segment_ids: jax.Array,
  kernel: str = 'auto',
  branches: jax.Array | None = None,
) -> jax.Array:
  """q [B, T, H, h], k and v [B, T, K, h], segment_ids [B, T] -> [B, T, H, h].

  branches: int [B, T], 0 on a prompt and 1, 2, .. on what continues it; None: a
  segment is one sample. Raises ValueError where the kernel has no mask for them.

  On a mesh each device attends for its own rows and heads: no kernel is cut by the
  partitioner, which cuDNN's would refuse.
  """
  segment_ids = jnp.asarray(segment_ids)
  chosen = choose(kernel, str(q.dtype), q.shape[-1], q.shape[1])
  kernels: dict[str, Callable[..., jax.Array]] = {
    'blocks': _blocks,
    'mapped': _mapped,
    'xla': _xla,
    'cudnn': _cudnn,
    'splash': _splash,
  }
  run = kernels[chosen]
  masks: tuple[jax.Array, ...] = (segment_ids,)
  if branches is not None:
    if complaint := no_branches(chosen):
      raise ValueError(complaint)
    masks += (jnp.asarray(branches),)
  place = placement.here()
  if place is None:
    return run(q, k, v, *masks)
  if k.shape[2] % place.tensor:
    # Fewer key heads than parts: several parts have the same one.
    k, v = (jnp.repeat(a, place.tensor // k.shape[2], axis=2) for a in (k, v))
  names = ('rows', None, 'heads', None)
  parts = [place.active(names, a.shape) for a in (q, k, v)]
  rows = [place.active(('rows', None), a.shape) for a in masks]
  return place.on_parts(run, (*parts, *rows), parts[0])(q, k, v, *masks)


def _mask(
  segment_ids: jax.Array,
  branches: jax.Array | None,
  start: int = 0,
  stop: int | None = None,
) -> jax.Array:
  """[T] each -> bool [stop - start, stop]: whether the query (row) sees the key.

  Queries are those of start .. stop - 1 (default: all), keys those up to
  stop - 1: no later one is seen.
  """
  index = jnp.arange(segment_ids.shape[-1])
  queries, keys = slice(start, stop), slice(stop)
  same = segment_ids[queries, None] == segment_ids[None, keys]
  if branches is not None:
    shared = branches[None, keys] == 0
    same &= shared | (branches[queries, None] == branches[None, keys])
  return same & (index[queries, None] >= index[None, keys])


def _blocks(
  q: jax.Array,
  k: jax.Array,
  v: jax.Array,
  segment_ids: jax.Array,
  branches: jax.Array | None = None,
):
  """The CPU's fast path: key blocks of other segments and later ones are skipped."""
  return block_attention.attend(q, k, v, segment_ids, branches, NAME)


def _mapped(
  q: jax.Array,
  k: jax.Array,
  v: jax.Array,
  segment_ids: jax.Array,
  branches: jax.Array | None = None,
):
  """One plain matmul a (row, key head, query block): the CPU's path of before.

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
  def one(args: tuple[jax.Array, ...]):
    q_h, k_h, v_h, row = args
    segments = segment_ids[row]
    parts = branches if branches is None else branches[row]
    blocks = [
      _block(q_h, k_h, v_h, segments, parts, start, start + size)
      for start in range(0, t, size)
    ]
    return jnp.concatenate(blocks, axis=1)

  out = jax.lax.map(one, (q, k, v, rows))
  out = out.reshape(b, kv, group, t, h).transpose(0, 3, 1, 2, 4)
  return checkpoint_name(out.reshape(b, t, heads, h), NAME)


def _block_size(t: int) -> int:
  """Queries of one block; short rows and odd lengths are one block."""
  return t // _QUERY_BLOCKS if t >= 256 and t % _QUERY_BLOCKS == 0 else t


def _block(
  q: jax.Array,
  k: jax.Array,
  v: jax.Array,
  segments: jax.Array,
  branches: jax.Array | None,
  start: int,
  stop: int,
) -> jax.Array:
  """q [G, T, h], k and v [T, h] -> [G, stop - start, h], one query block."""
  group, _, h = q.shape
  block = q[:, start:stop].reshape(-1, h)
  scores = jnp.matmul(block, k[:stop].T, preferred_element_type=jnp.float32)
  scores = (scores * h**-0.5).reshape(group, stop - start, stop)
  scores = jnp.where(_mask(segments, branches, start, stop), scores, _MASKED)
  probs = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
  out = probs.reshape(-1, stop) @ v[:stop]
  return out.reshape(group, stop - start, h)


def _xla(
  q: jax.Array,
  k: jax.Array,
  v: jax.Array,
  segment_ids: jax.Array,
  branches: jax.Array | None = None,
):
  """Batched einsums; memory grows with T squared."""
  b, t, heads, h = q.shape
  kv = k.shape[2]
  q = q.reshape(b, t, kv, heads // kv, h)
  scores = jnp.einsum(
    'btkgh,bskh->bkgts', q, k, preferred_element_type=jnp.float32
  )
  mask = jax.vmap(_mask)(segment_ids, branches)[:, None, None]
  scores = jnp.where(mask, scores * h**-0.5, _MASKED)
  probs = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
  out = jnp.einsum('bkgts,bskh->btkgh', probs, v).reshape(b, t, heads, h)
  return checkpoint_name(out, NAME)


def _cudnn(
  q: jax.Array,
  k: jax.Array,
  v: jax.Array,
  segment_ids: jax.Array,
  branches: jax.Array | None = None,
):
  """Flash attention: no [T, T] array a head, and no work above the diagonal.

  Segments are a mask of one head, [B, 1, T, T], that all heads share.
  """
  same = segment_ids[:, :, None] == segment_ids[:, None, :]
  if branches is not None:
    keys = branches[:, None, :]
    same &= (keys == 0) | (branches[:, :, None] == keys)
  return jax.nn.dot_product_attention(
    q, k, v, mask=same[:, None], is_causal=True, implementation='cudnn'
  )


def _splash(
  q: jax.Array,
  k: jax.Array,
  v: jax.Array,
  segment_ids: jax.Array,
  branches: None = None,
  interpret: bool = False,
):
  """Flash attention on TPUs: blocks above the diagonal are skipped, no branches.

  Heads are padded with zeros to whole lanes, which changes no product. interpret:
  run by the interpreter, on any device.
  """
  # Here, for Pallas takes long to import and serves TPUs alone.
  from jax.experimental.pallas.ops.tpu import splash_attention as splash

  t, heads, h = q.shape[1:]
  wide = ((0, 0),) * 3 + ((0, -h % _LANES),)
  q, k, v = (
    jnp.pad(a, wide).transpose(0, 2, 1, 3) for a in (q * h**-0.5, k, v)
  )
  block = next(b for b in _SPLASH_BLOCKS if t % b == 0)
  blocks: dict[str, Any] = dict.fromkeys(_SPLASH_SIZES, block)
  causal = splash.CausalMask((t, t))
  kernel = splash.make_splash_mha_single_device(
    splash.MultiHeadMask([causal] * heads),
    block_sizes=splash.BlockSizes(**blocks),
    residual_checkpoint_name=NAME,
    interpret=interpret,
  )
  run = lambda q, k, v, ids: kernel(q, k, v, splash.SegmentIds(ids, ids))  # noqa: E731
  out = jax.vmap(run)(q, k, v, segment_ids.astype(jnp.int32))
  return out.transpose(0, 2, 1, 3)[..., :h]
