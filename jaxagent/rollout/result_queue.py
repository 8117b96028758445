"""Results of other threads, journalled at the moment they arrive."""

from __future__ import annotations

import threading
import time

from jaxagent.rollout import events
from jaxagent.rollout.journal import Journal
from jaxagent.rollout.requests import ExecutionResult, GenerationResult


class JournalledQueue:
  """An inbox whose results are on the disk before anyone has seen them.

  So whatever is killed in between, what has finished once is not run again.

  journal: None where nothing is to be resumed.
  """

  def __init__(self, journal: Journal | None = None):
    self._journal = journal
    self._arrived = threading.Condition(threading.RLock())
    self._results: list[GenerationResult | ExecutionResult] = []
    self._error: Exception | None = None

  def put(self, result: GenerationResult | ExecutionResult) -> None:
    with self._arrived:
      if self._journal is not None:
        try:
          self._journal.append(events.of_result(result))
        except Exception as error:  # noqa: BLE001 - raised in the loop's thread
          self.fail(error)
      self._results.append(result)
      self._arrived.notify_all()

  def fail(self, error: Exception) -> None:
    """Sets an error that ends the run: the next `take` raises it."""
    with self._arrived:
      self._error = self._error or error
      self._arrived.notify_all()

  def take(self, timeout_s: float) -> list[GenerationResult | ExecutionResult]:
    end = time.monotonic() + timeout_s
    with self._arrived:
      while not self._results and self._error is None:
        left = end - time.monotonic()
        if left <= 0 or not self._arrived.wait(left):
          break
      return self._taken()

  def take_and_begin(
    self,
  ) -> tuple[list[GenerationResult | ExecutionResult], int | None]:
    """All that is there, and the new segment that later results are in."""
    with self._arrived:
      segment = None if self._journal is None else self._journal.begin()
      return self._taken(), segment

  def _taken(self) -> list[GenerationResult | ExecutionResult]:
    if self._error is not None:
      raise self._error
    results, self._results = self._results, []
    return results
