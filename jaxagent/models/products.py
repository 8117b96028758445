"""Products with weights that lie over a mesh: gathered before, summed after.

On one device these are `x @ w.astype(dtype)` and `table[tokens]` and nothing else.
On a mesh a weight is gathered over fsdp in the compute type, its gradient is formed
from a device's own rows in float32 and summed over devices once, in the type that the
placement says: of bfloat16 parts 256 devices lose 2 % of a gradient.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxagent.devices import placement
from jaxagent.devices.placement import Names, Placement
from jaxagent.models import rounding


def products(
  x: jax.Array,
  weights: Sequence[jax.Array],
  biases: Sequence[jax.Array | None],
  names: Sequence[Names],
  frozen: bool = False,
) -> tuple[jax.Array, ...]:
  """x [N, in] with each of weights [in, out] plus its bias [out] -> [N, out] each.

  names: logical axes of each weight. frozen: no gradient of weights and biases is
  made. All are computed in x's dtype.
  """
  place = placement.here()
  if place is None:
    return tuple(_plain(x, w, b) for w, b in zip(weights, biases))
  dtypes = tuple(str(w.dtype) for w in weights)
  how = None if frozen else dtypes
  return _placed(place, tuple(names), how, x, tuple(weights), tuple(biases))


def _plain(x: jax.Array, weight: jax.Array, bias: jax.Array | None):
  y = rounding.product(x, weight.astype(x.dtype))
  return y if bias is None else y + bias.astype(x.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _placed(
  place: Placement,
  names: Any,
  dtypes: Any,
  x: jax.Array,
  weights: Sequence[jax.Array],
  biases: Sequence[jax.Array | None],
):
  return _placed_forward(place, names, dtypes, x, weights, biases)[0]


def _placed_forward(
  place: Any,
  names: Any,
  dtypes: Any,
  x: jax.Array,
  weights: Sequence[jax.Array],
  biases: Sequence[jax.Array | None],
):
  whole = tuple(place.gathered(w, n, x.dtype) for w, n in zip(weights, names))
  out = tuple(
    place.constrain(_plain(x, w, b), 'rows', n[1])
    for w, b, n in zip(whole, biases, names)
  )
  return out, (x, whole, biases)


def _placed_backward(
  place: Any, names: Any, dtypes: Any, saved: Any, grads: Any
):
  x, whole, biases = saved
  shapes = tuple(w.shape for w in whole)
  if dtypes is None:  # frozen
    return _placed_frozen(place, names, shapes, x, whole, grads), None, None
  has_bias = tuple(b is not None for b in biases)

  def local(x: jax.Array, whole: jax.Array, grads: Any):
    d_weights = tuple(
      place.total(
        jnp.einsum('ni,no->io', x, g, preferred_element_type=jnp.float32),
        n,
        shape,
      )
      for g, n, shape in zip(grads, names, shapes)
    )
    d_biases = tuple(
      place.total(jnp.sum(g, 0, dtype=jnp.float32), n[1:], shape[1:])
      if has
      else None
      for g, n, shape, has in zip(grads, names, shapes, has_bias)
    )
    return _d_input(place, names, shapes, whole, grads), d_weights, d_biases

  x_part = place.active(('rows', names[0][0]), x.shape)
  d_x, d_weights, d_biases = place.on_parts(
    local,
    (
      x_part,
      tuple(place.active(n, s) for n, s in zip(names, shapes)),
      tuple(
        place.active(('rows', n[1]), g.shape) for n, g in zip(names, grads)
      ),
    ),
    (
      x_part,
      tuple(place.stored(n, s) for n, s in zip(names, shapes)),
      tuple(
        place.stored(n[1:], s[1:]) if has else None
        for n, s, has in zip(names, shapes, has_bias)
      ),
    ),
  )(x, whole, grads)
  d_weights = tuple(d.astype(t) for d, t in zip(d_weights, dtypes))
  d_biases = tuple(
    None if b is None else d.astype(b.dtype) for d, b in zip(d_biases, biases)
  )
  return d_x, d_weights, d_biases


def _placed_frozen(
  place: Any, names: Any, shapes: Any, x: jax.Array, whole: Any, grads: Any
) -> jax.Array:
  """The gradient to x [N, in] alone."""

  def local(whole: Any, grads: Any):
    return _d_input(place, names, shapes, whole, grads)

  return place.on_parts(
    local,
    (
      tuple(place.active(n, s) for n, s in zip(names, shapes)),
      tuple(
        place.active(('rows', n[1]), g.shape) for n, g in zip(names, grads)
      ),
    ),
    place.active(('rows', names[0][0]), x.shape),
  )(whole, grads)


def _d_input(place: Any, names: Any, shapes: Any, whole: jax.Array, grads: Any):
  """Gradient [n, in] of a device's rows; what is cut over tensor is summed once."""
  cut = whole_columns = None
  for name, shape, weight, grad in zip(names, shapes, whole, grads):
    one = jnp.matmul(grad, weight.T, preferred_element_type=jnp.float32)
    if place.active(name[1:], shape[1:])[0] is None:
      whole_columns = one if whole_columns is None else whole_columns + one
    else:
      cut = one if cut is None else cut + one
  if cut is not None:
    cut = place.over_tensor(cut.astype(grads[0].dtype))
  if whole_columns is None:
    return cut
  whole_columns = whole_columns.astype(grads[0].dtype)
  return whole_columns if cut is None else cut + whole_columns


_placed.defvjp(_placed_forward, _placed_backward)


def lookup(
  table: jax.Array,
  tokens: jax.Array,
  dtype: jnp.dtype | str,
  frozen: bool = False,
) -> jax.Array:
  """Rows of table [V, D] at int tokens [N] -> [N, D] in `dtype`.

  frozen: no gradient of the table is made.
  """
  place = placement.here()
  if place is None:
    return table[tokens].astype(dtype)
  stored = '' if frozen else str(table.dtype)
  return _looked_up(place, str(jnp.dtype(dtype)), stored, table, tokens)


_TABLE = ('vocab', 'embed')


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _looked_up(
  place: Placement, dtype: str, stored: str, table: jax.Array, tokens: jax.Array
):
  return _lookup_forward(place, dtype, stored, table, tokens)[0]


def _found(place: Any, tokens: jax.Array, size: int):
  """(Index into a device's part of `size` rows, whether the token is there)."""
  at = tokens - place.first_of(size)
  there = (at >= 0) & (at < size)
  return jnp.clip(at, 0, size - 1), there[:, None]


def _lookup_forward(
  place: Any, dtype: Any, stored: Any, table: jax.Array, tokens: jax.Array
):
  def local(part: jax.Array, tokens: jax.Array):
    at, there = _found(place, tokens, part.shape[0])
    return place.over_tensor(
      jnp.where(there, part[at], jnp.zeros((), part.dtype))
    )

  x = place.on_parts(
    local,
    (place.active(_TABLE, table.shape), place.active(('rows',), tokens.shape)),
    place.active(('rows', None), (*tokens.shape, table.shape[1])),
  )(place.gathered(table, _TABLE, dtype), tokens)
  # An empty array that carries the size of the vocabulary.
  return x, (tokens, jnp.zeros((table.shape[0], 0)))


def _lookup_backward(
  place: Any, dtype: Any, stored: Any, saved: Any, grad: jax.Array
):
  tokens, vocab = saved
  if not stored:  # frozen
    return None, None
  shape = (vocab.shape[0], grad.shape[1])

  def local(tokens: jax.Array, grad: jax.Array):
    size = shape[0] // place.tensor
    at, there = _found(place, tokens, size)
    grad = jnp.where(there, grad.astype(jnp.float32), 0.0)
    part = jnp.zeros((size, shape[1]), jnp.float32).at[at].add(grad)
    return place.total(part, _TABLE, shape)

  found = place.on_parts(
    local,
    (
      place.active(('rows',), tokens.shape),
      place.active(('rows', None), grad.shape),
    ),
    place.stored(_TABLE, shape),
  )(tokens, grad)
  return found.astype(stored), None


_looked_up.defvjp(_lookup_forward, _lookup_backward)
