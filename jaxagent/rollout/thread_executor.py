"""Executor on real time: each work is a blocking call on its own thread.

The threads only wait; the execution is a process of the sandbox pool.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable

from jaxagent import records
from jaxagent.errors import UserError
from jaxagent.files import disk
from jaxagent.rollout.requests import (
  ExecutionRequest,
  ExecutionResult,
  Key,
  failure,
)
from jaxagent.rollout.result_queue import JournalledQueue
from jaxagent.types import Executed

_WARN_EVERY_S = 60.0

_log = logging.getLogger(__name__)


class ThreadExecutor:
  """Runs `run(work) -> Executed` on `threads` threads.

  Args:
    inbox: gets the results.
    run: blocking and thread-safe. An exception, or a record that cannot be kept,
      counts as an infrastructure failure, with its text: it is retried, never
      rewarded. A full disk, a `UserError` and a record whose class gives no reward
      end the run: taking from the inbox raises them.
    threads: works in progress at once.
    slots: executions that `run` lets through at once; as many as threads if
      not given. Worker use is counted by them.
    lookahead: further works that may be queued, so that a slot that frees
      itself while the learner is busy finds work.
    cancel: called with a key's text to stop a work that has begun.
    pauses_s: of a thread after an infrastructure failure, by the work's attempt,
      the last one for all further attempts: a daemon or an endpoint that is away
      for some seconds does not use up the attempts of a whole pool.
  """

  def __init__(
    self,
    inbox: JournalledQueue,
    run: Callable[[ExecutionRequest], Executed],
    *,
    threads: int,
    slots: int | None = None,
    lookahead: int = 0,
    cancel: Callable[[str], object] | None = None,
    pauses_s: tuple[float, ...] = (0.5, 15.0),
  ):
    self.slots = slots or threads
    self.capacity = threads + lookahead
    self._inbox, self._run, self._cancel = inbox, run, cancel
    self._pauses_s, self._closing = pauses_s, threading.Event()
    self._todo: queue.Queue[ExecutionRequest | None] = queue.Queue()
    self._lock = threading.Lock()
    self._current: dict[Key, int] = {}  # the attempt that is wanted
    self._begun: dict[Key, float] = {}  # of current attempts alone
    self._faults, self._warned = 0, -_WARN_EVERY_S  # since the last warning
    self._threads = [
      threading.Thread(target=self._serve, name=f'work-{i}', daemon=True)
      for i in range(threads)
    ]
    for thread in self._threads:
      thread.start()

  def submit(self, work: ExecutionRequest) -> None:
    with self._lock:
      self._current[work.key] = work.attempt
    self._todo.put(work)

  def cancel(self, key: Key) -> None:
    with self._lock:
      if self._current.pop(key, None) is None:
        return
      self._begun.pop(key, None)
    if self._cancel is not None:
      self._cancel(str(key))

  def begun(self, key: Key) -> float | None:
    with self._lock:
      return self._begun.get(key)

  def close(self) -> None:
    """Lets each thread end after its present work; waits up to 5 s."""
    self._closing.set()
    for _ in self._threads:
      self._todo.put(None)
    end = time.monotonic() + 5.0
    for thread in self._threads:
      thread.join(max(0.0, end - time.monotonic()))

  def _serve(self) -> None:
    while (work := self._todo.get()) is not None:
      if not self._begin(work):
        continue  # it was cancelled in the queue
      result = self._attempt(work)
      if result is not None and result.executed.outcome.is_infrastructure:
        last = len(self._pauses_s) - 1
        self._warn(result.executed.message)
        self._closing.wait(self._pauses_s[min(work.attempt - 1, last)])
      if self._end(work) and result is not None:
        self._inbox.put(result)

  def _warn(self, error: str) -> None:
    """Warns once a minute: with pauses a run without a sandbox looks idle."""
    with self._lock:
      self._faults += 1
      now = time.monotonic()
      if now - self._warned < _WARN_EVERY_S:
        return
      faults, self._faults, self._warned = self._faults, 0, now
    _log.warning(
      '%d %s failed through no fault of the policy and will be tried again, the '
      'last with: %s',
      faults,
      'execution' if faults == 1 else 'executions',
      error,
    )

  def _begin(self, work: ExecutionRequest) -> bool:
    with self._lock:
      if self._current.get(work.key) != work.attempt:
        return False
      self._begun[work.key] = time.monotonic()
      return True

  def _end(self, work: ExecutionRequest) -> bool:
    """Whether it is still wanted."""
    with self._lock:
      if self._current.get(work.key) != work.attempt:
        return False
      del self._current[work.key]
      self._begun.pop(work.key, None)
      return True

  def _attempt(self, work: ExecutionRequest) -> ExecutionResult | None:
    """Runs one attempt; None for an error that ends the run: the inbox raises it."""
    try:
      executed = self._run(work)
      if executed.record is not None:
        # The journal must be able to keep it.
        records.to_json(executed.record)
        records.reward_of(executed.record)
    except Exception as error:  # noqa: BLE001 - an infrastructure error
      if isinstance(error, UserError) or disk.is_full(error):
        self._inbox.fail(error)
        return None
      return failure(work, f'{type(error).__name__}: {error}', time.monotonic())
    return ExecutionResult(work.key, work.attempt, executed, time.monotonic())
