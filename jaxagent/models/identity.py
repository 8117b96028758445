"""Identity of a base that adapters belong to: a digest of its weights.

It is the same whatever devices hold the weights, whether layers are scanned, and in
what type a value is stored that the type can hold. The sums are of whole numbers
modulo 2^32, so their order is of no matter. It tells one model from another; it does
not withstand somebody who wants two to look alike.
"""

from __future__ import annotations

import functools
import hashlib
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxagent.devices import accelerator, sharding
from jaxagent.files import copies
from jaxagent.models import hf
from jaxagent.models import safetensors_io as st
from jaxagent.models.config import ModelConfig

_SEEDS = 0x243F6A88, 0x85A308D3  # of two sums, 64 bits together


def digest(config: ModelConfig, flat: Mapping[str, Any]) -> str:
  """Returns 32 hex digits. flat: path, as `sharding.path_of` has it -> weight.

  Adapters and other weights than those of the base are left out.
  """

  def sums() -> Iterator[tuple[str, Any]]:
    for weight in hf.weight_table(config):
      value = flat['/'.join(map(str, weight.path))]
      with accelerator.turn():
        found = jax.block_until_ready(_sums(value, weight.stacked))
      rows = sharding.fetch(found).reshape(len(weight.names), len(_SEEDS))
      yield from zip(weight.names, rows)

  return _joined(sums())


def folder_digest(folder: str | pathlib.Path, config: ModelConfig) -> str:
  """Returns the digest of the weights in a Hugging Face folder, in `param_dtype`.

  Tensor by tensor. Raises ValueError or OSError where the folder is not whole.
  """
  files, table = st.read_index(pathlib.Path(folder)), hf.weight_table(config)
  hf.check_names(files, table, config, str(folder))

  def sums() -> Iterator[tuple[str, Any]]:
    for weight in table:
      for name in weight.names:
        value = files[name].read()
        value = value.T if weight.transpose else value
        value = copies.contiguous(value, np.dtype(weight.dtype))
        yield name, np.asarray(_sums(value, False))

  return _joined(sums())


def _joined(sums: Iterator[tuple[str, Any]]) -> str:
  lines = sorted(f'{name} {list(map(int, row))}' for name, row in sums)
  return hashlib.sha256('\n'.join(lines).encode()).hexdigest()[:32]


@functools.partial(jax.jit, static_argnums=1)
def _sums(x: jax.Array, stacked: bool) -> jax.Array:
  """uint32 [2] of an array; [L, 2] of layers one behind the other."""
  if stacked:  # one after another: a place and bits of a value are 8 bytes
    return jax.lax.map(_sums_of_one, x)
  return _sums_of_one(x)


def _sums_of_one(x: jax.Array) -> jax.Array:
  bits = jax.lax.bitcast_convert_type(x.astype(jnp.float32), jnp.uint32)
  index, stride = jnp.zeros(x.shape, jnp.uint32), 1
  for axis in reversed(range(x.ndim)):
    place = jax.lax.broadcasted_iota(jnp.uint32, x.shape, axis)
    index, stride = index + place * np.uint32(stride), stride * x.shape[axis]
    stride %= 2**32
  return jnp.stack([_sum(bits, index, np.uint32(seed)) for seed in _SEEDS])


def _sum(bits: jax.Array, index: jax.Array, seed: np.uint32) -> jax.Array:
  """Sum of each value mixed with its place (finalizer of MurmurHash3, Appleby)."""
  x = bits ^ (index * np.uint32(0x9E3779B1) + seed)
  x = (x ^ (x >> 16)) * np.uint32(0x85EBCA6B)
  x = (x ^ (x >> 13)) * np.uint32(0xC2B2AE35)
  return jnp.sum(x ^ (x >> 16), dtype=jnp.uint32)
