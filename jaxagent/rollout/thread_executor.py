"""Executor on real time: each work is a blocking call on its own thread.

The threads only wait; the execution is a process of the sandbox pool.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

from jaxagent import disk
from jaxagent.rollout.records import Work, WorkResult
from jaxagent.types import Outcome


class ThreadExecutor:
  """Runs `run(work) -> WorkResult` on `threads` threads.

  Args:
    run: blocking and thread-safe. An exception counts as an infrastructure
      failure, with its text: it is retried, never rewarded. A full disk is
      no work's failure: `wait` raises it.
    threads: works in progress at once (`slots`).
    lookahead: further works that may be queued, so that a slot that frees
      itself while the learner is busy finds work.
    cancel: called with a prompt id to stop a work that has begun.
  """

  def __init__(
    self,
    run: Callable[[Work], WorkResult],
    *,
    threads: int,
    lookahead: int = 0,
    cancel: Callable[[str], object] | None = None,
  ):
    self.slots = threads
    self.capacity = threads + lookahead
    self._run = run
    self._cancel = cancel
    self._todo: queue.Queue[Work | None] = queue.Queue()
    self._done: queue.Queue[WorkResult] = queue.Queue()
    self._lock = threading.Lock()
    self._dropped: set[tuple[str, int]] = set()
    self._current: dict[str, int] = {}
    self._begun: dict[str, float] = {}  # of current attempts alone
    self._disk_full: Exception | None = None
    self._threads = [
      threading.Thread(target=self._serve, name=f'work-{i}', daemon=True)
      for i in range(threads)
    ]
    for thread in self._threads:
      thread.start()

  def submit(self, work: Work) -> None:
    with self._lock:
      self._current[work.prompt.prompt_id] = work.attempt
    self._todo.put(work)

  def wait(self, timeout_s: float) -> list[WorkResult]:
    results = []
    try:
      if timeout_s > 0:
        results.append(self._done.get(timeout=timeout_s))
      while True:
        results.append(self._done.get_nowait())
    except queue.Empty:
      if self._disk_full is not None:
        raise self._disk_full from None
      return results

  def cancel(self, prompt_id: str) -> None:
    with self._lock:
      attempt = self._current.pop(prompt_id, None)
      if attempt is None:
        return
      self._dropped.add((prompt_id, attempt))
      self._begun.pop(prompt_id, None)
    if self._cancel is not None:
      self._cancel(prompt_id)

  def begun(self, prompt_id: str) -> float | None:
    with self._lock:
      return self._begun.get(prompt_id)

  def close(self) -> None:
    """Lets each thread end after its present work; waits up to 5 s."""
    for _ in self._threads:
      self._todo.put(None)
    end = time.monotonic() + 5.0
    for thread in self._threads:
      thread.join(max(0.0, end - time.monotonic()))

  def _serve(self) -> None:
    while (work := self._todo.get()) is not None:
      key = (work.prompt.prompt_id, work.attempt)
      if self._begin(key):
        result = self._attempt(work)
        if not self._is_dropped(key):
          self._done.put(result)
      with self._lock:
        self._dropped.discard(key)
        if self._current.get(key[0]) == key[1]:
          self._begun.pop(key[0], None)

  def _begin(self, key: tuple[str, int]) -> bool:
    """False where it was cancelled in the queue."""
    with self._lock:
      if key in self._dropped:
        return False
      self._begun[key[0]] = time.monotonic()
      return True

  def _is_dropped(self, key: tuple[str, int]) -> bool:
    with self._lock:
      return key in self._dropped

  def _attempt(self, work: Work) -> WorkResult:
    try:
      return self._run(work)
    except Exception as error:  # noqa: BLE001 - any fault here is ours
      if disk.is_full(error):
        self._disk_full = error
      return WorkResult(
        work.prompt.prompt_id,
        None,
        Outcome.INFRASTRUCTURE,
        error=f'{type(error).__name__}: {error}',
        finished_at=time.monotonic(),
        attempt=work.attempt,
      )
