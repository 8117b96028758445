"""Methods that all engines share for their callers: `generate`, `submit`, `poll`."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from jaxagent import types
from jaxagent.rollout.engine import EngineError

Put = Callable[[types.Completion | Exception], object]


class Calls:
  """The callers' half of an engine, whose other half is `_enter`."""

  def __init__(self):
    self._done: queue.SimpleQueue = queue.SimpleQueue()
    self._open = 0  # submitted without `put`, and not yet polled
    self._open_lock = threading.Lock()

  def _enter(
    self,
    requests: Sequence[types.Request],
    for_training: bool,
    puts: Sequence[Put],
  ) -> None:
    """Queues all of them, or raises and queues none.

    puts: one for each, to be called once, with its completion or with what
      broke the engine.
    """
    raise NotImplementedError

  def generate(
    self, requests: Sequence[types.Request], *, for_training: bool = True
  ) -> list[types.Completion]:
    """See `engine.Engine.generate`."""
    mine: queue.SimpleQueue = queue.SimpleQueue()
    puts = [
      lambda result, i=i: mine.put((i, result)) for i in range(len(requests))
    ]
    self._enter(requests, for_training, puts)
    out: list[Any] = [None] * len(requests)
    for _ in requests:
      index, result = mine.get()
      out[index] = _whole(result)
    return out

  def submit(
    self,
    requests: Sequence[types.Request],
    *,
    for_training: bool = True,
    put: Put | None = None,
  ) -> None:
    """See `engine.Engine.submit`."""
    if put is not None:
      self._enter(requests, for_training, [put] * len(requests))
      return
    self._count(len(requests))
    try:
      self._enter(requests, for_training, [self._done.put] * len(requests))
    except BaseException:
      self._count(-len(requests))
      raise

  def poll(self, timeout_s: float | None = None) -> list[types.Completion]:
    """See `engine.Engine.poll`."""
    end = None if timeout_s is None else time.monotonic() + timeout_s
    out: list[types.Completion] = []
    while self._open:
      try:
        if out:
          result = self._done.get_nowait()
        else:
          left = None if end is None else max(0.0, end - time.monotonic())
          result = self._done.get(timeout=left)
      except queue.Empty:
        break
      self._count(-1)
      out.append(_whole(result))
    return out

  def _told(self, put: Put) -> bool:
    """Whether `poll` would give what is put there; if so, it is not any more.

    For a request that has no completion, or one that its caller has already.
    """
    if put != self._done.put:
      return False
    self._count(-1)
    return True

  def _count(self, n: int) -> None:
    with self._open_lock:
      self._open += n


def broke_down(error: BaseException) -> EngineError:
  """Returns the error that callers get after a breakdown."""
  return EngineError(f'the engine broke down: {error!r}')


def _whole(result: types.Completion | Exception) -> types.Completion:
  if isinstance(result, BaseException):
    raise broke_down(result) from result
  return result
