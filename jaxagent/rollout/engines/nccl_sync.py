"""Weights to vLLM servers on other GPUs, from device to device."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import ModuleType
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from jaxagent.devices import accelerator
from jaxagent.rollout.engine import EngineError
from jaxagent.rollout.engines import nccl_group
from jaxagent.rollout.engines.vllm_api import ServerError, ServerLost, Vllm

_log = logging.getLogger(__name__)


class Tensor(Protocol):
  """One weight under its Hugging Face name."""

  name: str
  shape: tuple[int, ...]

  def array(self) -> jax.Array:
    """Loads the array onto its devices."""


class NcclSync:
  """A group for each server, made at its first weights and when it is started anew.

  Names and shapes are compared before the model is touched, each tensor's checksum
  before it is loaded. After an error of a server in the middle no further tensor is
  sent: the group is ended, and a new one is made for the next try.

  Args:
    export: params -> their tensors.
    dtype: of the tensors that are sent, that of the server's model.
    device: its memory is sent, gathered tensor by tensor.
    groups: `nccl_group`, or what stands in for it.
  """

  def __init__(
    self,
    export: Callable[[Any], Iterable[Tensor]],
    dtype: str,
    device: jax.Device,
    groups: ModuleType | Any = nccl_group,
  ):
    self._export, self._dtype = export, dtype
    self._device, self._module = device, groups
    self._groups: dict[str, Any] = {}  # by the server's address
    self._tensors: Sequence[Tensor] = ()
    self._manifest: list[dict] = []
    self._version = -1

  def write(self, params: Any, version: int) -> None:
    self._tensors = list(self._export(params))
    with accelerator.turn():  # gathering has collectives
      sums = [int(checksum(self._as_sent(t))) for t in self._tensors]
    self._manifest = [
      {
        'name': t.name,
        'shape': list(t.shape),
        'dtype': self._dtype,
        'offset': 0,
        'checksum': total % 2**32,
      }
      for t, total in zip(self._tensors, sums)
    ]
    self._version = version

  async def push(self, server: Vllm) -> None:
    group = self._groups.pop(server.url, None)
    if group is not None:
      try:
        await self._send(server, group)
      except ServerLost:
        raise
      except ServerError as error:  # it may have been started anew
        _log.warning('%s; it is given a new group.', error)
        group = None
    if group is None:
      group = await self._join(server)
      await self._send(server, group)
    self._groups[server.url] = group

  async def _join(self, server: Vllm) -> Any:
    size = 1 + await server.world_size()
    name = self._module.unique_id()
    _, group = await _both(
      server.init_transfer(
        unique_id=name, size=size, nccl_version=self._module.version()
      ),
      _on_thread(self._module.Group, name, size, self._device),
    )
    return group

  async def _send(self, server: Vllm, group: Any) -> None:
    """Ends the group where either side fails."""
    told = {'group': group.name, 'tensors': self._manifest}
    try:
      await _both(
        server.load_weights(told, self._version),
        _on_thread(group.send, self._sent()),
      )
    except BaseException as error:
      group.abort()
      if isinstance(error, EngineError) and not isinstance(error, ServerError):
        # Its workers may wait in NCCL for ever: it is to be started anew.
        raise ServerLost(f'{server.url}: {error}') from error
      raise

  def _sent(self) -> Iterator[jax.Array]:
    for tensor in self._tensors:
      with accelerator.turn():
        sent = jax.block_until_ready(self._as_sent(tensor))
      yield sent

  def _as_sent(self, tensor: Tensor) -> jax.Array:
    return jax.device_put(tensor.array(), self._device).astype(self._dtype)

  def close(self) -> None:
    for group in self._groups.values():
      group.abort()
    self._groups.clear()
    self._tensors = ()


@jax.jit
def checksum(weight: jax.Array) -> jax.Array:
  """int32 []: the sum of its elements' bits as signed integers, modulo 2^32.

  As `jaxagent_vllm.group.checksum`, on the device.
  """
  word = {2: jnp.int16, 4: jnp.int32}[weight.dtype.itemsize]
  bits = jax.lax.bitcast_convert_type(weight, word)
  return jnp.sum(bits, dtype=jnp.int32)


async def _both(request, sending: asyncio.Future) -> tuple[Any, Any]:
  """The results of both; raises as soon as one of them does.

  The other may be waiting for a peer that never comes: it is not awaited.
  """
  request = asyncio.ensure_future(request)
  done, _ = await asyncio.wait(
    {request, sending}, return_when=asyncio.FIRST_EXCEPTION
  )
  try:
    # What a server says names the fault; what NCCL says often follows from it.
    for one in sorted(done, key=lambda task: task is sending):
      one.result()
  except BaseException:
    request.cancel()
    sending.cancel()
    raise
  return request.result(), sending.result()


def _on_thread(work: Callable, *args) -> asyncio.Future:
  """Runs it on a thread that no exit waits for: NCCL may never return."""
  loop = asyncio.get_running_loop()
  future = loop.create_future()

  def settle(set_, value) -> None:
    if not future.done():
      set_(value)

  def run() -> None:
    try:
      end = functools.partial(settle, future.set_result, work(*args))
    except BaseException as error:  # noqa: BLE001 - raised where it is awaited
      end = functools.partial(settle, future.set_exception, error)
    with contextlib.suppress(RuntimeError):  # the loop has ended
      loop.call_soon_threadsafe(end)

  threading.Thread(target=run, name='nccl', daemon=True).start()
  return future
