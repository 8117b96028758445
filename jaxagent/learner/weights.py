"""Weights as flat dictionaries by path, so that a role is easy to split."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jaxagent import sharding

Flat = dict[str, jax.Array]


@dataclasses.dataclass(frozen=True)
class Layout:
  """How a model's state flattens: path -> leaf, and back."""

  graphdef: Any
  treedef: Any
  paths: tuple[str, ...]
  trained: frozenset[str]

  def state(self, trained: Flat, frozen: Flat) -> nnx.State:
    """The nested state again."""
    both = {**frozen, **trained}
    return jax.tree.unflatten(self.treedef, [both[p] for p in self.paths])

  def merge(self, trained: Flat, frozen: Flat) -> nnx.Module:
    """The module, to be called."""
    return nnx.merge(self.graphdef, self.state(trained, frozen))


def flatten(graphdef: Any, params: Any) -> tuple[Layout, Flat, Flat]:
  """(layout, trained, frozen): all trained, or adapters and heads alone."""
  leaves, treedef = jax.tree_util.tree_flatten_with_path(params)
  flat = {sharding.path_of(path): leaf for path, leaf in leaves}
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


def copy(flat: Flat) -> Flat:
  """New buffers, same placement."""
  return jax.tree.map(jnp.copy, flat)
