"""Log-probabilities and entropy without an array over [B, T, V].

Rows (flattened tokens) go through the output table a chunk at a time; the
backward pass computes each chunk's logits again from the saved log-sum-exp.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from jaxagent.devices import placement
from jaxagent.models import rounding

_TABLE = ('vocab', 'embed')


def token_logprobs(
  hidden: jax.Array,
  unembed: jax.Array,
  targets: jax.Array,
  *,
  temperature: float | jax.Array = 1.0,
  chunk_rows: int = 1024,
  with_entropy: bool = False,
  frozen: bool = False,
) -> tuple[jax.Array, jax.Array | None]:
  """log softmax(hidden @ unembed.T / temperature)[target], in float32.

  hidden [..., D] (any leading shape), unembed [V, D], targets int [...]
  -> (logp [...], entropy [...] in nats or None). Differentiable in hidden
  and, unless `frozen`, in unembed; at most [chunk_rows, V] logits exist at once on a device, on a mesh of
  its own rows, with `tensor` of its own part of the vocabulary. The caller shifts:
  `hidden[:, :-1]` predicts `tokens[:, 1:]`.
  """
  if hidden.shape[:-1] != targets.shape:
    raise ValueError(
      f'hidden {hidden.shape} and targets {targets.shape} must agree but for the last '
      'axis of hidden.'
    )
  if chunk_rows < 1:
    raise ValueError(f'chunk_rows={chunk_rows} must be at least 1.')
  logp, entropy = _chunked(
    (
      placement.here(),
      chunk_rows,
      with_entropy,
      rounding.here(),
      '' if frozen else str(unembed.dtype),
    ),
    hidden,
    unembed,
    targets,
    jnp.asarray(temperature, jnp.float32),
  )
  return logp, (entropy if with_entropy else None)


def logits_of(
  hidden: jax.Array,
  unembed: jax.Array,
  temperature: float | jax.Array,
  dtype: str = '',
) -> jax.Array:
  """[N, D], [V, D] -> [N, V] float32; dtype: of the operands (`rounding`)."""
  return _product(hidden, unembed, (1, 1), dtype) / temperature


def _product(
  a: jax.Array, b: jax.Array, axes: tuple[int, int], dtype: str
) -> jax.Array:
  """Sums in float32 over an axis of each."""
  first, second = axes
  return jax.lax.dot_general(
    rounding.rounded(a, dtype),
    rounding.rounded(b, dtype),
    (((first,), (second,)), ((), ())),
    preferred_element_type=jnp.float32,
  )


def _each(body: Callable[..., Any], args: Any, unroll: bool | int):
  """`lax.map`, or a plain call for a single chunk (cheaper to compile)."""
  if unroll:
    out = body(jax.tree.map(lambda a: a[0], args))
    return jax.tree.map(lambda a: a[None], out)
  return jax.lax.map(body, args)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _chunked(
  how: Any,
  hidden: jax.Array,
  unembed: jax.Array,
  targets: jax.Array,
  temperature: jax.Array | float,
):
  return _forward(how, hidden, unembed, targets, temperature)[0]


def _forward(
  how: Any,
  hidden: jax.Array,
  unembed: jax.Array,
  targets: jax.Array,
  temperature: jax.Array | float,
):
  """All rows, or on a mesh each device its own against its part of the table."""
  place, *_ = how
  run = functools.partial(_local_forward, how)
  if place is None:
    table = unembed.astype(hidden.dtype)
  else:
    table = place.gathered(unembed, _TABLE, hidden.dtype)
    ins, outs = _parts(place, hidden, unembed, targets)
    run = place.on_parts(run, (*ins, PartitionSpec()), (outs,) * 3)
  logp, entropy, lse = run(hidden, table, targets, temperature)
  return (logp, entropy), (hidden, table, targets, temperature, lse)


def _parts(place: Any, hidden: jax.Array, table: jax.Array, targets: jax.Array):
  """Specs of (hidden, table, targets), and of a number for each target."""
  lead = (None,) * (targets.ndim - 1)
  rows = place.active(('rows', *lead), targets.shape)
  wide = place.active(('rows', *lead, None), hidden.shape)
  return (wide, place.active(_TABLE, table.shape), rows), rows


def _in_chunks(chunk_rows: int, *arrays):
  """Arrays of equally many rows [R, ...] -> [chunks, size, ...] each, padded."""
  rows = arrays[0].shape[0]
  chunks = max(1, -(-rows // chunk_rows))
  size = -(-rows // chunks)
  pad = chunks * size - rows
  return [
    jnp.pad(a, ((0, pad),) + ((0, 0),) * (a.ndim - 1)).reshape(
      chunks, size, *a.shape[1:]
    )
    for a in arrays
  ]


def _local_forward(
  how: Any,
  hidden: jax.Array,
  table: jax.Array,
  targets: jax.Array,
  temperature: jax.Array | float,
):
  place, chunk_rows, with_entropy, dtype, _ = how
  shape = targets.shape

  def body(args: Any):
    h, ids = args
    logits = logits_of(h, table, temperature, dtype)
    lse = _logsumexp(place, logits)
    logp = _at(place, logits, ids) - lse
    if not with_entropy:
      return logp, jnp.zeros_like(logp), lse
    # Not lse - sum(p logits): the two nearly cancel and lose digits.
    each = logits - lse[:, None]
    return logp, -_sum(place, jnp.exp(each) * each), lse

  args = _in_chunks(
    chunk_rows, hidden.reshape(-1, hidden.shape[-1]), targets.reshape(-1)
  )
  found = _each(body, args, args[0].shape[0] == 1)
  return tuple(a.reshape(-1)[: targets.size].reshape(shape) for a in found)


def _sum(place: Any, x: jax.Array):
  """[N, V or a part of it] -> [N]: the sum over the whole vocabulary."""
  part = jnp.sum(x, -1)
  return place.over_tensor(part) if place else part


def _logsumexp(place: Any, logits: jax.Array):
  if place is None or place.tensor == 1:
    return jax.nn.logsumexp(logits, axis=-1)
  most = jax.lax.pmax(jnp.max(logits, -1), 'tensor')
  return most + jnp.log(_sum(place, jnp.exp(logits - most[:, None])))


def _at(place: Any, logits: jax.Array, ids: jax.Array):
  """The logit of each target, which one part of the vocabulary has."""
  if place is None or place.tensor == 1:
    return jnp.take_along_axis(logits, ids[:, None], -1)[:, 0]
  size = logits.shape[1]
  at = ids - place.first_of(size)
  found = jnp.take_along_axis(logits, jnp.clip(at, 0, size - 1)[:, None], -1)[
    :, 0
  ]
  return place.over_tensor(jnp.where((at >= 0) & (at < size), found, 0.0))


def _backward(how: Any, saved: Any, grads: Any):
  """d logp = onehot - p;  d entropy = -p (log p + entropy);  both over T."""
  place, *_, stored = how
  hidden, table, targets, temperature, lse = saved
  run = functools.partial(_local_backward, how, table.shape)
  if place is not None:
    ins, rows = _parts(place, hidden, table, targets)
    outs = ins[0], place.stored(_TABLE, table.shape) if stored else None
    run = place.on_parts(run, (*ins, PartitionSpec(), rows, rows, rows), outs)
  d_hidden, d_table = run(hidden, table, targets, temperature, lse, *grads)
  if not stored:  # the table is frozen
    return d_hidden, None, None, jnp.zeros_like(temperature)
  if place is None:
    d_table = d_table.astype(table.dtype)  # as the gradient of any other weight
  else:
    # Cut before the layers' backward pass begins: else XLA keeps the whole table and
    # its whole gradient (1.1 and 2.2 GB of 7B) until all layers are done.
    d_hidden, d_table = jax.lax.optimization_barrier((d_hidden, d_table))
  # The temperature is a setting, not a weight: its gradient is not taken.
  return d_hidden, d_table.astype(stored), None, jnp.zeros_like(temperature)


def _local_backward(
  how: Any,
  shape: Any,
  hidden: jax.Array,
  table: jax.Array,
  targets: jax.Array,
  temperature: jax.Array | float,
  *rows,
):
  """(d hidden, d table); the table's is summed over chunks, then over devices.

  None in its place where the table is frozen.
  """
  place, chunk_rows, with_entropy, dtype, stored = how
  index = jnp.arange(table.shape[0]) + (
    place.first_of(len(table)) if place else 0
  )

  def body(args: Any):
    h, ids, lse_n, g_logp, g_ent = args
    logp = logits_of(h, table, temperature, dtype) - lse_n[:, None]
    probs = jnp.exp(logp)
    hot = ids[:, None] == index[None]
    d_logits = jnp.where(hot, g_logp[:, None], 0.0) - g_logp[:, None] * probs
    if with_entropy:
      ent = -_sum(place, probs * logp)[:, None]
      d_logits -= g_ent[:, None] * probs * (logp + ent)
    d_logits = (d_logits / temperature).astype(h.dtype)
    d_table = None
    if stored:
      d_table = _product(d_logits, h, (0, 0), dtype)
    d_hidden = (
      _product(d_logits, table, (1, 0), dtype) if dtype else d_logits @ table
    )
    return (place.over_tensor(d_hidden) if place else d_hidden), d_table

  wide = hidden.reshape(-1, hidden.shape[-1])
  args = _in_chunks(
    chunk_rows, wide, *(a.reshape(-1) for a in (targets, *rows))
  )
  if args[0].shape[0] == 1:
    d_hidden, d_table = body([a[0] for a in args])
  elif not stored:
    d_hidden, d_table = jax.lax.map(body, args)
  else:

    def accumulate(total: Any, chunk: Any):
      d_h, d_t = body(chunk)
      return total + d_t, d_h

    start = jnp.zeros(table.shape, jnp.float32)
    d_table, d_hidden = jax.lax.scan(accumulate, start, args)
  if place and stored:
    d_table = place.total(d_table, _TABLE, shape)
  d_hidden = d_hidden.reshape(-1, hidden.shape[-1])[: len(wide)]
  return d_hidden.reshape(hidden.shape), d_table


_chunked.defvjp(_forward, _backward)
