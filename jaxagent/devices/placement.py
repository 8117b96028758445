"""Says how arrays lie on a mesh while a program of the learner is traced.

Models name the axes of what they compute ('rows', 'heads', 'vocab', ...) and know of
no mesh. The learner traces its programs under `use(Placement(mesh))`; `here()` is
that placement, or None where one device does everything, which changes nothing.
Names go to mesh axes by `sharding.LOGICAL_RULES`; activations are never split over
`fsdp` but by rows, so that weights are gathered and no activation is summed over it.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxagent.devices import sharding

Names = tuple[str | None, ...]


@dataclasses.dataclass(frozen=True)
class Placement:
  """Constraints by logical names on one mesh. Hashable.

  grad_reduce_dtype: of the weights' gradients while they are summed over devices.
  """

  mesh: Mesh
  grad_reduce_dtype: str = 'float32'

  @property
  def device(self) -> Any:
    """The mesh's first device, which says what all of them can do."""
    return self.mesh.devices.flat[0]

  @property
  def tensor(self) -> int:
    """Parts that heads, feed-forward and vocabulary are cut into."""
    return self.mesh.shape['tensor']

  @property
  def gathers(self) -> bool:
    """Whether a weight is gathered before it is used."""
    return self.mesh.shape['fsdp'] > 1

  def stored(self, names: Names, shape: Sequence[int]) -> PartitionSpec:
    """Returns the partition of a weight between programs."""
    return sharding.divided(names, shape, self.mesh)

  def active(self, names: Names, shape: Sequence[int]) -> PartitionSpec:
    """Returns the partition of an activation or gathered weight: without fsdp.

    Rows lie over data and fsdp.
    """
    spec = sharding.divided(names, shape, self.mesh)
    return PartitionSpec(*(None if axis == 'fsdp' else axis for axis in spec))

  def constrain(self, x: jax.Array, *names: str | None) -> jax.Array:
    """x [...] with an axis for each name, held to `active`."""
    place = NamedSharding(self.mesh, self.active(names, x.shape))
    return jax.lax.with_sharding_constraint(x, place)

  def gathered(self, weight: jax.Array, names: Names, dtype: Any) -> jax.Array:
    """The weight cast to `dtype`, then gathered over fsdp."""
    local = NamedSharding(self.mesh, self.stored(names, weight.shape))
    cast = jax.lax.with_sharding_constraint(weight.astype(dtype), local)
    return self.constrain(cast, *names)

  def on_parts(self, function: Callable, ins: Any, outs: Any) -> Callable:
    """`function` of each device's own parts; `ins` and `outs` are specs."""
    return jax.shard_map(
      function, mesh=self.mesh, in_specs=ins, out_specs=outs, check_vma=False
    )

  def total(
    self, part: jax.Array, names: Names, shape: Sequence[int]
  ) -> jax.Array:
    """A gradient summed over rows and cut as its weight of `shape` is stored.

    part: of one device, within `on_parts`, cut over `tensor` already.
    """
    dtype = part.dtype
    part = part.astype(self.grad_reduce_dtype)
    spec = list(self.stored(names, shape))
    rest = [axis for axis in sharding.ROWS if self.mesh.shape[axis] > 1]
    if 'fsdp' in spec and 'fsdp' in rest:
      rest.remove('fsdp')
      for groups in sharding.scatter_stages(self.mesh):
        part = jax.lax.psum_scatter(
          part,
          'fsdp',
          scatter_dimension=spec.index('fsdp'),
          axis_index_groups=groups,
          tiled=True,
        )
    part = jax.lax.psum(part, tuple(rest)) if rest else part
    return part.astype(dtype)

  def over_tensor(self, part: jax.Array) -> jax.Array:
    """A sum over `tensor`, within `on_parts`."""
    return jax.lax.psum(part, 'tensor') if self.tensor > 1 else part

  def first_of(self, size: int) -> jax.Array | int:
    """Index of a device's first entry of an axis cut over `tensor`, in `on_parts`.

    size: of a device's part.
    """
    return jax.lax.axis_index('tensor') * size if self.tensor > 1 else 0


_now: contextvars.ContextVar[Placement | None] = contextvars.ContextVar(
  'placement', default=None
)


@contextlib.contextmanager
def use(placement: Placement | None) -> Iterator[None]:
  """Traces what is within under `placement`."""
  token = _now.set(placement)
  try:
    yield
  finally:
    _now.reset(token)


def here() -> Placement | None:
  """The placement of now where there are several devices, else None."""
  placement = _now.get()
  return placement if placement and placement.mesh.size > 1 else None


def device() -> Any:
  """The device that the program of now is for; jax's first one outside of `use`."""
  placement = _now.get()
  return placement.device if placement else jax.devices()[0]


def constrain(x: jax.Array, *names: str | None) -> jax.Array:
  """`Placement.constrain` where there is a placement, else x."""
  placement = here()
  return placement.constrain(x, *names) if placement else x


__all__ = ['Placement', 'constrain', 'device', 'here', 'use']
