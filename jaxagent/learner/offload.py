"""Roles that lie in pinned host memory and come to the devices to be used."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import jax
from jax.sharding import Mesh

HOST, DEVICE = 'pinned_host', 'device'


def complaint(names: Collection[str], mesh: Mesh) -> str:
  """Returns why these roles cannot be offloaded on a mesh; '' if they can.

  On CPU devices it would do nothing: their memory is the host's.
  """
  device = mesh.devices.flat[0]
  if not names:
    return ''
  if device.platform == 'cpu':
    return (
      f'offload={tuple(names)!r} does nothing on CPU devices, whose memory is the '
      "host's; leave it empty."
    )
  kinds = {memory.kind for memory in device.addressable_memories()}
  if HOST in kinds:
    return ''
  return (
    f'offload={tuple(names)!r} needs {HOST} memory, but {device.device_kind} has '
    f'only {sorted(kinds)}; leave it empty.'
  )


def check(names: Collection[str], mesh: Mesh) -> None:
  """Raises ValueError where these roles cannot be offloaded on the mesh."""
  if said := complaint(names, mesh):
    raise ValueError(said)


class Offload:
  """Moves the roles of `names` away after use and back before it.

  Others pass unchanged. Raises ValueError where the mesh cannot (`complaint`).
  """

  def __init__(self, names: Collection[str], mesh: Mesh):
    check(names, mesh)
    self._names = frozenset(names)

  def away(self, name: str, tree: Any) -> Any:
    """The arrays of a role as they are kept."""
    return _moved(tree, HOST) if name in self._names else tree

  def back(self, name: str, tree: Any) -> Any:
    """The arrays of a role as programs take them."""
    return _moved(tree, DEVICE) if name in self._names else tree


def _moved(tree: Any, kind: str) -> Any:
  place = jax.tree.map(lambda leaf: leaf.sharding.with_memory_kind(kind), tree)
  return jax.device_put(tree, place)
