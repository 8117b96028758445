"""Compiled programs of the native engine, over a cache of slots.

The cache holds keys and values of S slots by C columns; token n of a slot's
text is at column n. A program reads and writes the slots and columns that it is
told of and leaves the others alone; the cache is donated, so nothing else of it
is copied. The last token of a prompt is not prefilled: decoding feeds it, and
draws the first token of the response.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jaxagent.models.config import ModelConfig
from jaxagent.models.logprobs import logits_of
from jaxagent.rollout import sampling

Cache = Any


def empty_cache(config: ModelConfig, slots: int, columns: int) -> Cache:
  """Zeros: a pair [S, K, C, h] a layer, or one of [L, S, K, C, h] if scanned."""
  shape = (slots, config.num_key_value_heads, columns, config.head_dim)
  layers, dtype = config.num_hidden_layers, jnp.dtype(config.dtype)
  if config.scan_layers:
    return tuple(jnp.zeros((layers, *shape), dtype) for _ in range(2))
  return tuple(
    tuple(jnp.zeros(shape, dtype) for _ in range(2)) for _ in range(layers)
  )


def _by_layer(config: ModelConfig, f, *caches: Cache) -> Cache:
  """f([S, K, C, h], ...) on the arrays of every layer."""
  return jax.tree.map(jax.vmap(f) if config.scan_layers else f, *caches)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def copy(config: ModelConfig, cache: Cache, source, target) -> Cache:
  """Slots `source` [R] to slots `target` [R], all read before any is written.

  A target of S or more is left out.
  """
  return _by_layer(
    config, lambda a: a.at[target].set(a[source], mode='drop'), cache
  )


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=3)
def prefill(
  graphdef, config: ModelConfig, params, cache: Cache, tokens, lengths, slots
) -> Cache:
  """The first `lengths` [U] of tokens [U, T] into `slots` [U], from column 0."""
  model = nnx.merge(graphdef, params)
  index = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
  segments = (index < lengths[:, None]).astype(jnp.int32)
  _, new = model.prefill(tokens, index, segments)

  def write(cache, new):
    at = cache.at[slots, :, : tokens.shape[1]]
    return at.set(new.astype(cache.dtype), mode='drop')

  return _by_layer(config, write, cache, new)


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=3)
def extend(
  graphdef,
  columns: int,
  params,
  cache: Cache,
  tokens,
  start,
  slots,
) -> Cache:
  """tokens [U, T] into `slots` [U] from column `start` [U] on.

  columns: static; those that are read. What pads a row is written beyond its
  text, where the next token is written over it before it is seen.
  """
  model = nnx.merge(graphdef, params)
  positions = start[:, None] + jnp.arange(tokens.shape[1])
  visible = jnp.arange(columns) <= positions[..., None]

  def write(cache, new):
    at = cache.at[slots[:, None], :, positions]
    return at.set(new.astype(cache.dtype), mode='drop')

  def read(cache):
    return cache.at[slots, :, :columns].get(mode='clip')

  return model.extend(tokens, positions, cache, write, read, visible)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3), donate_argnums=5)
def decode(
  graphdef,
  columns: int,
  steps: int,
  cut: bool,
  params,
  cache: Cache,
  last,
  positions,
  s: dict[str, jax.Array],
  bound,
  wake,
):
  """Up to `bound` tokens for the first B slots.

  Args:
    columns: static; those that are read, more than any live position.
    steps: static; room for tokens.
    cut: static; whether any row asks for top_k or top_p.
    last: int32 [B], each slot's last token; positions: its column.
    s: settings of each slot; `limit` tokens are drawn at most.
    bound: tokens at most, <= steps.
    wake: returns once so many rows have ended.

  Returns:
    cache, tokens [B, steps], log-probs [B, steps], how many of them [B],
    whether the last is a stop token [B].
  """
  model = nnx.merge(graphdef, params)
  rows = last.shape[0]
  slots = jnp.arange(rows)
  asked = s['limit'] > 0

  def live(o):
    return asked & ~o['stopped'] & (o['count'] < s['limit'])

  def going(o):
    now = live(o)
    ended = jnp.sum(asked & ~now)
    return (o['n'] < bound) & now.any() & (ended < wake)

  def step(o):
    now, n, at = live(o), o['n'], o['position']

    def write(cache, new):
      return cache.at[slots, :, at].set(new.astype(cache.dtype), mode='drop')

    visible = jnp.arange(columns) <= at[:, None]
    hidden, cache = model.decode_step(o['last'], at, o['cache'], write, visible)
    token, logp = _draw(model, s, cut, hidden, at + 1)
    token = jnp.where(now, token, o['last'])
    stops = (token[:, None] == s['stops']).any(-1)
    return {
      'tokens': jax.lax.dynamic_update_slice(
        o['tokens'], token[:, None], (0, n)
      ),
      'logprobs': jax.lax.dynamic_update_slice(
        o['logprobs'], logp[:, None], (0, n)
      ),
      'count': o['count'] + now,
      'stopped': o['stopped'] | (now & stops),
      'cache': cache,
      'last': token,
      # A row that has ended stays beyond its text, and writes there.
      'position': at + now,
      'n': n + 1,
    }

  out = jax.lax.while_loop(
    going,
    step,
    {
      'tokens': jnp.zeros((rows, steps), jnp.int32),
      'logprobs': jnp.zeros((rows, steps), jnp.float32),
      'count': jnp.zeros(rows, jnp.int32),
      'stopped': jnp.zeros(rows, bool),
      'cache': cache,
      'last': last,
      'position': positions,
      'n': jnp.int32(0),
    },
  )
  return tuple(
    out[k] for k in ('cache', 'tokens', 'logprobs', 'count', 'stopped')
  )


def _draw(model, s, cut, hidden, positions):
  """hidden [B, D], position of the token to draw [B] -> token, log-prob."""
  table = model.unembed.astype(hidden.dtype)
  logits = logits_of(hidden, table, jnp.float32(1))
  top = (s['top_k'], s['top_p']) if cut else ()
  return sampling.draw(logits, s['temperature'], s['seed'], positions, *top)
