"""Weights as flat dictionaries by path, so that a role is easy to split."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.extend.core as jax_core
import jax.numpy as jnp
from flax import nnx

from jaxagent import models
from jaxagent.devices import sharding

Flat = dict[str, jax.Array]


@dataclasses.dataclass(frozen=True)
class Layout:
  """Layout of a model's flattened state: path -> leaf, and back."""

  graphdef: Any
  treedef: Any
  paths: tuple[str, ...]
  trained: frozenset[str]

  def state(self, trained: Flat, frozen: Flat) -> nnx.State:
    """The nested state again."""
    both = {**frozen, **trained}
    return jax.tree.unflatten(self.treedef, [both[p] for p in self.paths])

  def merge(self, trained: Flat, frozen: Flat) -> Any:
    """Returns the module (a Decoder or ValueModel), to be called."""
    return nnx.merge(self.graphdef, self.state(trained, frozen))


def flatten(graphdef: Any, params: Any) -> tuple[Layout, Flat, Flat]:
  """(layout, trained, frozen): all trained, or adapters and heads alone."""
  flat, treedef = by_path(params), jax.tree.structure(params)
  adapters = {p for p in flat if 'lora_' in p}
  trained = frozenset(
    adapters | {p for p in flat if p.endswith('head') and 'lm_' not in p}
    if adapters
    else flat
  )
  layout = Layout(graphdef, treedef, tuple(flat), trained)
  return (
    layout,
    {p: v for p, v in flat.items() if p in trained},
    {p: v for p, v in flat.items() if p not in trained},
  )


def by_path(params: Any) -> Flat:
  """The leaves of a nested state by their paths."""
  leaves = jax.tree_util.tree_flatten_with_path(params)[0]
  return {sharding.path_of(path): leaf for path, leaf in leaves}


def copy(flat: Flat, dtype: str | None = None) -> Flat:
  """New buffers, same placement; in another dtype where one is given."""
  if dtype is None:
    return jax.tree.map(jnp.copy, flat)
  return jax.tree.map(lambda x: jnp.array(x, dtype, copy=True), flat)


def rounded(flat: Flat, dtype: str) -> Flat:
  """The weights in a dtype; the same arrays where they have it."""
  return {
    p: v if v.dtype == dtype else v.astype(dtype) for p, v in flat.items()
  }


def drawn(config: models.ModelConfig, seed: int, place: dict[str, Any]) -> Flat:
  """Random weights of a decoder, each made on the devices that keep its parts.

  place: path -> sharding. One device draws as `models.init_decoder` does. Several
  CPU devices draw all in one program; accelerators in one for each weight, since one
  that draws them all takes minutes to compile there.
  """

  def make() -> Flat:
    return by_path(models.init_decoder(config, seed)[1])

  first = next(iter(place.values()))
  if len(first.device_set) == 1:
    return sharding.put(make(), place)
  if next(iter(first.device_set)).platform == 'cpu':
    return jax.jit(make, out_shardings=place)()
  return one_by_one(make, place)


def one_by_one(make: Callable[[], Flat], place: dict[str, Any]) -> Flat:
  """Makes what `make` gives, by a program for each array: the rest is cut out."""
  closed, shapes = jax.make_jaxpr(make, return_shape=True)()
  whole = jax_core.jaxpr_as_fun(closed)
  paths = by_path(shapes)  # in the order of the program's results
  return {
    path: jax.jit(lambda i=i: whole()[i], out_shardings=place[path])()
    for i, path in enumerate(paths)
  }


def shapes(tree: Any) -> Any:
  """The tree with shape, dtype and sharding in place of each device array."""

  def one(leaf: Any) -> Any:
    if not isinstance(leaf, jax.Array):
      return leaf
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)

  return jax.tree.map(one, tree)
