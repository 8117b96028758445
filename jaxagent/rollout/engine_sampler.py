"""The policy's sampler: requests to an engine, completions as they finish."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from jaxagent.rollout.engine import Engine
from jaxagent.rollout.requests import (
  GenerationRequest,
  GenerationResult,
  Key,
  Sampler,
)
from jaxagent.rollout.result_queue import JournalledQueue
from jaxagent.types import Completion, Request


class EngineSampler:
  """Hands asks to an engine, which answers on a thread of its own.

  Args:
    inbox: gets the completions. An aborted one is an infrastructure error,
      and its ask is tried again; an engine that breaks down ends the run:
      taking from the inbox raises the error.
    engine: may be updated at any time; a completion says its versions.
    request: what is asked of the engine for an ask.
  """

  def __init__(
    self,
    inbox: JournalledQueue,
    engine: Engine,
    request: Callable[[GenerationRequest], Request],
  ):
    self._inbox, self._engine, self._request = inbox, engine, request
    self._keys: dict[str, Key] = {}
    self._lock = threading.Lock()

  def submit(self, asks: Sequence[GenerationRequest]) -> None:
    requests = [self._request(ask) for ask in asks]
    with self._lock:
      for ask, request in zip(asks, requests):
        self._keys[request.request_id] = ask.key
    self._engine.submit(requests, put=self._put)

  def cancel(self, key: Key) -> None:
    with self._lock:
      ids = [i for i, k in self._keys.items() if k == key]
      for request_id in ids:
        del self._keys[request_id]
    self._engine.discard(ids)

  def close(self) -> None:
    """Discards all requests under way. The engine stays open."""
    with self._lock:
      ids, self._keys = list(self._keys), {}
    self._engine.discard(ids)

  def _put(self, result: Completion | Exception) -> None:
    if isinstance(result, Exception):
      self._inbox.fail(result)
      return
    with self._lock:
      key = self._keys.pop(result.request_id, None)
    if key is None:
      return  # cancelled
    if result.finish_reason == 'abort':
      self._inbox.put(GenerationResult(key, None, 'the engine gave it up'))
    else:
      self._inbox.put(GenerationResult(key, result))


class RoleSampler:
  """Each role's asks to a sampler of its own."""

  def __init__(self, samplers: Mapping[str, Sampler]):
    self._samplers = samplers

  def submit(self, asks: Sequence[GenerationRequest]) -> None:
    by_role: dict[str, list[GenerationRequest]] = {}
    for ask in asks:
      by_role.setdefault(ask.call.role, []).append(ask)
    for role, some in by_role.items():
      self._samplers[role].submit(some)

  def cancel(self, key: Key) -> None:
    for sampler in self._samplers.values():
      sampler.cancel(key)

  def close(self) -> None:
    for sampler in self._samplers.values():
      sampler.close()
