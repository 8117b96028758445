"""An inbox on a virtual clock: waiting is what makes time pass."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

from jaxagent.clock import VirtualClock
from jaxagent.rollout import events
from jaxagent.rollout.journal import Journal
from jaxagent.rollout.requests import ExecutionResult, GenerationResult


class VirtualInbox:
  """Samplers and executors say here what happens when.

  journal: as `JournalledQueue`'s.
  """

  def __init__(self, clock: VirtualClock, journal: Journal | None = None):
    self.clock = clock
    self._journal = journal
    self._results: list[GenerationResult | ExecutionResult] = []
    self._heap: list[tuple[float, int, Callable[[], None]]] = []
    self._ticket = itertools.count()

  def at(self, time_s: float, happens: Callable[[], None]) -> None:
    """Calls `happens` when the clock has come to `time_s`."""
    heapq.heappush(self._heap, (time_s, next(self._ticket), happens))

  def advance(self) -> None:
    """Lets all happen that was to happen until now."""
    while self._heap and self._heap[0][0] <= self.clock.now():
      _, _, happens = heapq.heappop(self._heap)
      happens()

  def put(self, result: GenerationResult | ExecutionResult) -> None:
    if self._journal is not None:
      self._journal.append(events.of_result(result))
    self._results.append(result)

  def take(self, timeout_s: float) -> list[GenerationResult | ExecutionResult]:
    end = self.clock.now() + timeout_s
    self.advance()
    while not self._results and self._heap and self._heap[0][0] <= end:
      self.clock.move_to(self._heap[0][0])
      self.advance()
    if not self._results and timeout_s > 0 and end < float('inf'):
      self.clock.move_to(end)
    return self._taken()

  def take_and_begin(
    self,
  ) -> tuple[list[GenerationResult | ExecutionResult], int | None]:
    self.advance()
    segment = None if self._journal is None else self._journal.begin()
    return self._taken(), segment

  def _taken(self) -> list[GenerationResult | ExecutionResult]:
    results, self._results = self._results, []
    return results
