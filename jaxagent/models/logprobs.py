"""Log-probabilities and entropy without an array over [B, T, V].

Rows (flattened tokens) go through the output table a chunk at a time; the
backward pass computes each chunk's logits again from the saved log-sum-exp.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp


def token_logprobs(
  hidden: jax.Array,
  unembed: jax.Array,
  targets: jax.Array,
  *,
  temperature: float | jax.Array = 1.0,
  chunk_rows: int = 1024,
  with_entropy: bool = False,
) -> tuple[jax.Array, jax.Array | None]:
  """log softmax(hidden @ unembed.T / temperature)[target], in float32.

  hidden [..., D] (any leading shape), unembed [V, D], targets int [...]
  -> (logp [...], entropy [...] in nats or None). Differentiable in hidden
  and unembed; at most [chunk_rows, V] logits exist at once. The caller
  shifts: `hidden[:, :-1]` predicts `tokens[:, 1:]`.
  """
  shape = targets.shape
  d = hidden.shape[-1]
  if hidden.shape[:-1] != shape:
    raise ValueError(
      f'hidden {hidden.shape} and targets {shape} must agree but for the last '
      'axis of hidden.'
    )
  if chunk_rows < 1:
    raise ValueError(f'chunk_rows={chunk_rows} must be at least 1.')
  rows = targets.size
  chunks = max(1, -(-rows // chunk_rows))
  size = -(-rows // chunks)
  pad = chunks * size - rows
  flat = jnp.pad(hidden.reshape(rows, d), ((0, pad), (0, 0)))
  flat = flat.reshape(chunks, size, d)
  ids = jnp.pad(targets.reshape(rows), (0, pad)).reshape(chunks, size)
  logp, entropy = _chunked(
    flat,
    unembed.astype(hidden.dtype),
    ids,
    jnp.asarray(temperature, jnp.float32),
    with_entropy,
  )
  logp = logp.reshape(-1)[:rows].reshape(shape)
  if not with_entropy:
    return logp, None
  return logp, entropy.reshape(-1)[:rows].reshape(shape)


def logits_of(
  hidden: jax.Array, unembed: jax.Array, temperature: float | jax.Array
) -> jax.Array:
  """[N, D], [V, D] -> [N, V] float32."""
  logits = jax.lax.dot_general(
    hidden,
    unembed,
    (((1,), (1,)), ((), ())),
    preferred_element_type=jnp.float32,
  )
  return logits / temperature


def _each(body, args, unroll):
  """`lax.map`, or a plain call for a single chunk (cheaper to compile)."""
  if unroll:
    out = body(jax.tree.map(lambda a: a[0], args))
    return jax.tree.map(lambda a: a[None], out)
  return jax.lax.map(body, args)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _chunked(hidden, unembed, targets, temperature, with_entropy):
  return _forward(hidden, unembed, targets, temperature, with_entropy)[0]


def _forward(hidden, unembed, targets, temperature, with_entropy):
  def body(args):
    h, ids = args
    logits = logits_of(h, unembed, temperature)
    lse = jax.nn.logsumexp(logits, axis=-1)
    logp = jnp.take_along_axis(logits, ids[:, None], -1)[:, 0] - lse
    if not with_entropy:
      return logp, jnp.zeros_like(logp), lse
    # Not lse - sum(p logits): the two nearly cancel and lose digits.
    each = logits - lse[:, None]
    return logp, -jnp.sum(jnp.exp(each) * each, -1), lse

  logp, entropy, lse = _each(body, (hidden, targets), hidden.shape[0] == 1)
  saved = (hidden, unembed, targets, temperature, lse)
  return (logp, entropy), saved


def _backward(with_entropy, saved, grads):
  """d logp = onehot - p;  d entropy = -p (log p + entropy);  both over T."""
  hidden, unembed, targets, temperature, lse = saved
  vocab = unembed.shape[0]

  def body(args):
    h, ids, lse_n, g_logp, g_ent = args
    logp = logits_of(h, unembed, temperature) - lse_n[:, None]
    probs = jnp.exp(logp)
    hot = ids[:, None] == jnp.arange(vocab)[None]
    d_logits = jnp.where(hot, g_logp[:, None], 0.0) - g_logp[:, None] * probs
    if with_entropy:
      ent = -jnp.sum(probs * logp, -1, keepdims=True)
      d_logits -= g_ent[:, None] * probs * (logp + ent)
    d_logits = (d_logits / temperature).astype(h.dtype)
    d_table = jax.lax.dot_general(
      d_logits,
      h,
      (((0,), (0,)), ((), ())),
      preferred_element_type=jnp.float32,
    )
    return d_logits @ unembed, d_table

  args = (hidden, targets, lse, *grads)
  if hidden.shape[0] == 1:
    d_hidden, d_table = body(jax.tree.map(lambda a: a[0], args))
    d_hidden = d_hidden[None]
  else:

    def accumulate(total, chunk):
      d_h, d_t = body(chunk)
      return total + d_t, d_h

    start = jnp.zeros(unembed.shape, jnp.float32)
    d_table, d_hidden = jax.lax.scan(accumulate, start, args)
  # The temperature is a setting, not a weight: its gradient is not taken.
  return d_hidden, d_table.astype(unembed.dtype), None, jnp.zeros_like(lse[0, 0])


_chunked.defvjp(_forward, _backward)
