"""Compiled programs of the native engine, over a cache of slots.

The cache holds keys and values of S slots by C columns; token n of a slot's
text is at column n. A program reads and writes the slots and columns that it is
given and leaves the others alone; the cache is donated, so nothing else of it
is copied. The last token of a prompt is not prefilled: decoding feeds it, and
draws the first token of the response.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from jaxagent.devices import accelerator
from jaxagent.models import cached
from jaxagent.models.config import ModelConfig
from jaxagent.models.logprobs import logits_of
from jaxagent.rollout.engines import prompt_rows, sampling

Cache = Any
Leaves = tuple[jax.Array, ...]


class Structure:
  """A decoder without its weights: a static argument that is hashed once.

  To hash a graphdef and to flatten a state take milliseconds, each time that a
  program is called; weights are passed as leaves for the same reason.
  """

  def __init__(
    self, graphdef: nnx.GraphDef, params: nnx.State, config: ModelConfig
  ):
    self.config = config
    self._key = graphdef, jax.tree.structure(params)
    self._hash = hash((self._key, config))

  def __hash__(self) -> int:
    return self._hash

  def __eq__(self, other: object) -> bool:
    return self is other or (
      isinstance(other, Structure)
      and (self._key, self.config) == (other._key, other.config)
    )

  def merge(self, leaves: Leaves) -> Any:
    """The decoder with these weights."""
    graphdef, tree = self._key
    return nnx.merge(graphdef, jax.tree.unflatten(tree, leaves))


def leaves(params: nnx.State) -> Leaves:
  """The weights in the order that `Structure.merge` takes them."""
  return tuple(jax.tree.leaves(params))


def empty_cache(config: ModelConfig, slots: int, columns: int) -> Cache:
  """Zeros: keys [S, K, h, C] and values [S, K, C, h] of every layer.

  A pair of them a layer, or one pair with a leading L if the layers are scanned.
  """
  heads, h = config.num_key_value_heads, config.head_dim
  shapes = (slots, heads, h, columns), (slots, heads, columns, h)
  layers, dtype = config.num_hidden_layers, jnp.dtype(config.dtype)
  if config.scan_layers:
    return tuple(jnp.zeros((layers, *shape), dtype) for shape in shapes)
  return tuple(
    tuple(jnp.zeros(shape, dtype) for shape in shapes) for _ in range(layers)
  )


def _by_layer(
  config: ModelConfig, f: Callable[..., Any], *caches: Cache
) -> Cache:
  """f((keys, values), ...) of every layer."""
  if config.scan_layers:
    return jax.vmap(f)(*caches)
  return tuple(map(f, *caches))


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def copy(config: ModelConfig, cache: Cache, source: Any, target: Any) -> Cache:
  """Slots `source` [R] to slots `target` [R], all read before any is written.

  A target of S or more is left out.
  """

  def move(pair: Any):
    return tuple(a.at[target].set(a[source], mode='drop') for a in pair)

  return _by_layer(config, move, cache)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=2)
def prefill(
  structure: Structure,
  weights: Leaves,
  cache: Cache,
  tokens: jax.Array,
  positions: jax.Array,
  segments: jax.Array,
  slots: jax.Array,
) -> Cache:
  """Prompts that lie side by side in rows into their slots.

  tokens, positions, segments [U, T] and slots [U, T / BLOCK] as in
  `prompt_rows.Rows`. What pads a prompt's last block is written beyond its text,
  as in `extend`; the cache has as many columns to spare.
  """
  model = structure.merge(weights)
  _, new = model.prefill(tokens, positions, segments)
  index = jnp.stack([slots, positions[:, :: prompt_rows.BLOCK]], -1)
  index = index.reshape(-1, 2)

  def write(pair: Any, new: jax.Array):
    (keys, values), (k, v) = pair, map(_blocks, new)
    k = k.swapaxes(2, 3).astype(keys.dtype)
    return (
      _write_rows(keys, index, k, axis=3),
      _write_rows(values, index, v.astype(values.dtype), axis=2),
    )

  return _by_layer(structure.config, write, cache, new)


def _blocks(new: jax.Array):
  """[U, K, T, h] -> [U * T / BLOCK, K, BLOCK, h]."""
  rows, heads, _, h = new.shape
  new = new.reshape(rows, heads, -1, prompt_rows.BLOCK, h)
  return new.swapaxes(1, 2).reshape(-1, heads, prompt_rows.BLOCK, h)


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=3)
def extend(
  structure: Structure,
  columns: int,
  weights: Leaves,
  cache: Cache,
  tokens: jax.Array,
  start: jax.Array,
  slots: jax.Array,
) -> Cache:
  """tokens [U, T] into `slots` [U] from column `start` [U] on.

  columns: static; those that are read. What pads a row is written beyond its
  text, where the next token is written over it before it is seen.
  """
  model = structure.merge(weights)
  shape = tokens.shape
  positions = start[:, None] + jnp.arange(shape[1])
  visible = jnp.arange(columns) <= positions[..., None]

  def attend(q: jax.Array, k: jax.Array, v: jax.Array, pair: Any):
    q, k, v = (a.reshape(*shape, *a.shape[1:]) for a in (q, k, v))
    keys, values = (a.astype(c.dtype) for a, c in zip((k, v), pair))
    keys = pair[0].at[slots[:, None], :, :, positions].set(keys, mode='drop')
    values = pair[1].at[slots[:, None], :, positions].set(values, mode='drop')
    out = cached.attend_block(
      q,
      keys.at[slots, :, :, :columns].get(mode='clip'),
      values.at[slots, :, :columns].get(mode='clip'),
      visible,
    )
    return out.reshape(-1, *out.shape[2:]), (keys, values)

  flat = tokens.reshape(-1), positions.reshape(-1)
  return model.beside_cache(*flat, cache, attend)[1]


@dataclasses.dataclass(frozen=True)
class Round:
  """Static options of a round of decoding: each one is a program of its own.

  columns: those that are read, at least every live position.
  steps: room for tokens. The cache has as many columns to spare.
  cut: whether any row asks for top_k or top_p.
  greedy: whether any row asks for temperature 0.
  """

  columns: int
  steps: int
  cut: bool
  greedy: bool


class Rows(NamedTuple):
  """Texts that a round decodes, B of them; arrays of numpy, of jax or abstract.

  slots: int32 [B]; one that is none of the cache's pads.
  last: int32 [B], each slot's last token; positions: its column.
  settings: of each row; `limit` tokens are drawn at most.
  """

  slots: Any
  last: Any
  positions: Any
  settings: dict[str, Any]


def decode(*args):
  """See `_decode`."""
  return decode_program(accelerator.is_cuda())(*args)


@functools.cache
def decode_program(cuda: bool):
  """`_decode`, to be compiled for CUDA devices or for others."""
  options = None
  if cuda:
    # The whole loop is one graph: the host is not asked after each step.
    options = {'xla_gpu_enable_command_buffer': ','.join(_GRAPHS)}
  return jax.jit(
    _decode,
    static_argnums=(0, 1),
    donate_argnums=3,
    compiler_options=options,
  )


_GRAPHS = (
  'FUSION',
  'CUBLAS',
  'CUBLASLT',
  'CUDNN',
  'CUSTOM_CALL',
  'COLLECTIVES',
  'DYNAMIC_SLICE_FUSION',
  'WHILE',
  'CONDITIONAL',
)


def _decode(
  structure: Structure,
  shape: Round,
  weights: Leaves,
  cache: Cache,
  rows: Rows,
  bound: jax.Array,
  wake: jax.Array,
):
  """Decodes up to `bound` tokens for B of the slots.

  Their keys and values are copied side by side first, for many steps read them,
  and what is new is written back at the end.

  Args:
    bound: tokens at most, <= steps.
    wake: returns once so many rows have ended.

  Returns:
    cache, tokens [B, steps], log-probs [B, steps], how many of them [B],
    whether the last is a stop token [B].
  """
  model, config = structure.merge(weights), structure.config
  asked = rows.settings['limit'] > 0
  column = jnp.arange(shape.columns + shape.steps)
  held = column < jnp.minimum(rows.positions, shape.columns)[:, None]

  def live(o: Any):
    return asked & ~o['stopped'] & (o['count'] < rows.settings['limit'])

  def going(o: Any):
    now = live(o)
    ended = jnp.sum(asked & ~now)
    return (o['n'] < bound) & now.any() & (ended < wake)

  def step(o: Any):
    # New tokens stand beyond all columns: in one place for every row.
    at = shape.columns + o['n']
    visible = held | ((column >= shape.columns) & (column <= at))
    return _step(model, shape, rows, o, live(o), _one_more(at, visible, config))

  near = _by_layer(
    config, lambda c: _near(c, rows.slots, shape.columns, shape.steps), cache
  )
  out = jax.lax.while_loop(
    going, step, _no_tokens(rows.last, shape.steps, near)
  )

  def back(pair: Any, near: Any):
    return _append(pair, near, rows.slots, rows.positions, shape.columns)

  cache = _by_layer(config, back, cache, out['near'])
  return cache, *(out[k] for k in ('tokens', 'logprobs', 'count', 'stopped'))


def _no_tokens(last: jax.Array, steps: int, near: Any) -> dict[str, Any]:
  """A round before its first step."""
  return {
    'tokens': jnp.zeros((len(last), steps), jnp.int32),
    'logprobs': jnp.zeros((len(last), steps), jnp.float32),
    'count': jnp.zeros(len(last), jnp.int32),
    'stopped': jnp.zeros(len(last), bool),
    'near': near,
    'last': last,
    'n': jnp.int32(0),
  }


def _one_more(at: jax.Array, visible: jax.Array, config: ModelConfig):
  """Attention of one token a row, whose keys and values go to column `at`."""
  h = config.head_dim

  def attend(q: jax.Array, k: jax.Array, v: jax.Array, pair: Any):
    keys, values = (new.astype(a.dtype) for a, new in zip(pair, (k, v)))
    keys, values = (
      jax.lax.dynamic_update_slice_in_dim(
        pair[0], keys.reshape(-1, h, 1), at, 2
      ),
      jax.lax.dynamic_update_slice_in_dim(
        pair[1], values.reshape(-1, 1, h), at, 1
      ),
    )
    return cached.attend_one(q, keys, values, visible), (keys, values)

  return attend


def _step(
  model: Any,
  shape: Round,
  rows: Rows,
  o: dict[str, Any],
  now: jax.Array,
  attend: Any,
) -> dict[str, Any]:
  """A round after one more token of each row; `now` [B]: whose counts."""
  n, at = o['n'], rows.positions + o['n']
  hidden, near = model.beside_cache(o['last'], at, o['near'], attend)
  kinds = (shape.cut, shape.greedy)
  token, logp = _draw(model, rows.settings, kinds, hidden, at + 1)
  token = jnp.where(now, token, o['last'])
  stops = (token[:, None] == rows.settings['stops']).any(-1)
  return {
    'tokens': jax.lax.dynamic_update_slice(o['tokens'], token[:, None], (0, n)),
    'logprobs': jax.lax.dynamic_update_slice(
      o['logprobs'], logp[:, None], (0, n)
    ),
    'count': o['count'] + now,
    'stopped': o['stopped'] | (now & stops),
    'near': near,
    'last': token,
    'n': n + 1,
  }


def _near(pair: Any, slots: jax.Array, columns: int, steps: int):
  """The slots' first columns side by side, with room for `steps` more.

  Rows and heads are one axis, [B * K, ...]: where a step can tell them apart, XLA
  copies all of a cache with one head in each step.
  """
  keys, values = pair
  wide = columns + steps
  keys = keys.at[slots, :, :, :wide].get(mode='clip')
  values = values.at[slots, :, :wide].get(mode='clip')
  return tuple(a.reshape(-1, *a.shape[2:]) for a in (keys, values))


def _append(
  pair: Any, near: Any, slots: jax.Array, start: jax.Array, columns: int
):
  """Writes `near` beyond its `columns` into the slots from `start` [B] on.

  Columns after a row's end are written, too: beyond its text, as in `extend`.
  """
  index = jnp.stack([slots, start], 1)
  new = near[0][..., columns:], near[1][:, columns:]
  return tuple(
    _write_rows(
      cache, index, rows.reshape(len(slots), -1, *rows.shape[1:]), axis
    )
    for cache, rows, axis in zip(pair, new, (3, 2))
  )


def _write_rows(cache: Any, index: jax.Array, new: jax.Array, axis: int):
  """new [B, ...] at (slot, place along `axis`), index [B, 2]; one scatter."""
  return jax.lax.scatter(
    cache,
    index,
    new,
    jax.lax.ScatterDimensionNumbers(
      update_window_dims=(1, 2, 3),
      inserted_window_dims=(0,),
      scatter_dims_to_operand_dims=(0, axis),
    ),
    unique_indices=True,
    mode='drop',
  )


def _draw(
  model: Any, s: Any, kinds: Any, hidden: jax.Array, positions: jax.Array
):
  """hidden [B, D], position of the token to draw [B] -> token, log-prob."""
  cut, greedy = kinds
  table = model.unembed.astype(hidden.dtype)
  logits = logits_of(hidden, table, jnp.float32(1))
  top = (s['top_k'], s['top_p']) if cut else ()
  return sampling.draw(
    logits, s['temperature'], s['seed'], positions, *top, some_greedy=greedy
  )
