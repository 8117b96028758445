"""Adapters for vLLM: a PEFT folder for each version, over a base that stays.

A server reads an adapter when it is loaded and again when it had to make room for
others, and keeps prefixes apart by its name alone. So each version has a name and a
folder of its own, written once, which are removed when no request can name them.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import pathlib
import secrets
import shutil
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from jaxagent import types
from jaxagent.rollout.engine import EngineError
from jaxagent.rollout.engines.vllm_api import Adapter, ServerError, Vllm
from jaxagent.rollout.engines.weight_probe import LogProbProbe
from jaxagent.rollout.engines.weight_sync import WeightSync
from jaxagent.sandbox import scratch

_SIZES = (1.0, 2.0, 4.0, 8.0, 16.0)  # of the adapters that are tried in a proof
_FAR_NATS = 1.0  # a proof moves log-probs by more than this
_NEAR = 0.1  # of that distance: rounding grows with what an adapter adds


class AdaptedModel(Protocol):
  """Splits, writes and draws the parameters of a model with adapters."""

  rank: int

  def split(self, params: Any) -> tuple[Any, Any]:
    """Returns base and adapters; no adapters, None, where all weights are trained."""

  def is_same(self, base: Any, other: Any) -> bool:
    """Returns whether two bases are the same arrays."""
    ...

  def save(self, params: Any, folder: pathlib.Path) -> object:
    """Writes a new PEFT folder."""

  def random(self, params: Any, size: float) -> Any:
    """Returns the base of `params` with random adapters, stronger with `size`."""


class AdapterSync:
  """Transport of adapters, and of their base where a server lacks it.

  Args:
    base: transport of whole weights.
    model: how parameters come apart.
    probe: scores what a server answers.
    directory: that servers see, too; gets a folder that `close` removes.
  """

  def __init__(
    self,
    base: WeightSync,
    model: AdaptedModel,
    probe: LogProbProbe,
    directory: pathlib.Path,
  ):
    self._base, self._model, self._probe = base, model, probe
    directory.mkdir(parents=True, exist_ok=True)
    scratch.sweep(str(directory))  # of trainers that were killed
    self._folder = scratch.Folder(str(directory))
    self._run, self._numbers = secrets.token_hex(4), itertools.count()
    self._written: Any = None  # the base that was written last
    self._label = -1
    self.current: Adapter | None = None

  def write(self, params: Any, version: int) -> None:
    """Writes adapters under a new name, and a base that is another than before.

    Without adapters (all weights are trained) the base is all that there is.
    """
    base, adapters = self._model.split(params)
    if adapters is None:
      self._base.write(base, version)
      self._written, self.current = None, None
      return
    if self._written is None or not self._model.is_same(base, self._written):
      # A number that no other run's servers have by chance.
      self._label = secrets.randbelow(1 << 52)
      self._base.write(base, self._label)
      self._written = base
    self.current = self._save(params, version)

  async def has_base(self, server: Vllm) -> bool:
    """Returns whether a server has the base of the current adapters."""
    if self.current is None:
      return False
    return await server.weight_version() == str(self._label)

  async def push(self, server: Vllm) -> None:
    """Makes a server, which must stand still, take the base."""
    await self._base.push(server)

  async def load(self, server: Vllm, adapter: Adapter) -> None:
    """Makes a server know an adapter."""
    await server.load_adapter(adapter, self._model.rank)

  async def prove(
    self,
    server: Vllm,
    params: Any,
    ask: Callable[[Adapter], Awaitable[types.Completion]],
  ) -> None:
    """Proves that a server's answers depend on the adapter that a request names.

    Fresh adapters compute what their base does, so random ones are tried, stronger
    ones until they move the log-probs of the fixed request by more than a nat.
    ask: makes that request.
    Raises EngineError where the answer is not that of base and adapter.
    """
    base, _ = self._model.split(params)
    for size in _SIZES:
      tried = await asyncio.to_thread(self._model.random, params, size)
      adapter = await asyncio.to_thread(self._save, tried, -1)
      try:
        await self.load(server, adapter)
        done = await ask(adapter)
        with contextlib.suppress(ServerError):
          await server.unload_adapter(adapter)
      finally:
        self.remove(adapter)
      far = await asyncio.to_thread(self._probe.gap, done, base)
      near = await asyncio.to_thread(self._probe.gap, done, tried)
      if near > max(self._probe.bound, _NEAR * far):
        raise EngineError(
          f'{server.url}: log-probs of a fixed request differ by {near:.3g} nats '
          f'from those of the adapter that it names, and by {far:.3g} from those of '
          'the base: the server ignores adapters, or changes them. Take another '
          'server, or choose --config.rollout.vllm.adapters=merged.'
        )
      if far > _FAR_NATS:
        return
    raise EngineError(
      f'{server.url}: no random adapter of rank {self._model.rank} moved the '
      f'log-probs of a fixed request by {_FAR_NATS:g} nat; whether the server uses '
      'adapters cannot be told. Choose --config.rollout.vllm.adapters=merged.'
    )

  def remove(self, adapter: Adapter) -> None:
    """Removes the folder of an adapter that no server knows any more."""
    shutil.rmtree(adapter.path, ignore_errors=True)

  def close(self) -> None:
    self._base.close()
    self._folder.remove()

  def _save(self, params: Any, version: int) -> Adapter:
    name = f'policy-{self._run}-{next(self._numbers)}'
    folder = pathlib.Path(self._folder.path, name)
    part = folder.with_name(f'{name}.part')
    self._model.save(params, part)
    os.replace(part, folder)
    return Adapter(name, str(folder), version)
