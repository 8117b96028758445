"""An executor on a virtual clock, with faults injected on request."""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from jaxagent.rollout.requests import (
  ExecutionRequest,
  ExecutionResult,
  Key,
  failure,
)
from jaxagent.testing.arms import ArmRecord
from jaxagent.testing.virtual_inbox import VirtualInbox
from jaxagent.types import Executed, Outcome


@dataclasses.dataclass(frozen=True)
class Action:
  """Result that executing one work is to have."""

  duration_s: float
  reward: float | None = 0.0
  outcome: Outcome = Outcome.OK

  def executed(self) -> Executed:
    record = ArmRecord(
      outcome=self.outcome, exec_s=self.duration_s, paid=self.reward
    )
    return Executed(self.outcome, self.duration_s, record=record)


@dataclasses.dataclass(frozen=True)
class Faults:
  """Faults to inject: shares of executions, drawn for each attempt.

  death: the sandbox dies at a uniform point of the execution; reported at
    once. hang: it never finishes; reported as a failure `detect_s` after its
    start, never if that is infinite. lose: (at, slots, back) a node with so
    many slots goes away at `at` seconds, with what runs there, and comes
    back `back` seconds later.
  """

  death: float = 0.0
  hang: float = 0.0
  detect_s: float = float('inf')
  lose: tuple[tuple[float, int, float], ...] = ()
  seed: int = 0


class FakeExecutor:
  """`slots` workers and a first-in first-out queue in front of them.

  Args:
    inbox: on a virtual clock.
    act: work -> Action. Drawn once for each submission.
    slots: executions at the same time.
    look_ahead: works that may queue beyond the slots; with some, a slot that
      frees up while the learner is busy is taken at once.
    faults: what goes wrong.
  """

  def __init__(
    self,
    inbox: VirtualInbox,
    act: Callable[[ExecutionRequest], Action],
    slots: int,
    look_ahead: int = 0,
    faults: Faults | None = None,
  ):
    self.slots = slots
    self.capacity = slots + look_ahead
    self.faults = faults or Faults()
    self.busy_s = 0.0  # worker-seconds spent, useful or not
    self.closed = False
    self._inbox = inbox
    self._act = act
    self._rng = np.random.default_rng(self.faults.seed)
    self._queue: collections.deque[ExecutionRequest] = collections.deque()
    self._live: dict[Key, tuple[ExecutionRequest, float]] = {}  # with its start
    self._lost = 0
    for at, n, back in self.faults.lose:
      inbox.at(at, functools.partial(self._lose, n))
      inbox.at(at + back, functools.partial(self._lose, -n))

  def submit(self, work: ExecutionRequest) -> None:
    if self.closed:
      raise RuntimeError('submit after close.')
    self._inbox.advance()
    if work.key in self._live or work.key in [w.key for w in self._queue]:
      raise RuntimeError(f'{work.key} is submitted already.')
    self._queue.append(work)
    self._start()

  def begun(self, key: Key) -> float | None:
    return self._live.get(key, (None, None))[1]

  def cancel(self, key: Key) -> None:
    self._inbox.advance()
    if key in self._live:
      _, start = self._live.pop(key)
      self.busy_s += self._inbox.clock.now() - start
    else:
      self._queue = collections.deque(w for w in self._queue if w.key != key)
    self._start()

  def close(self) -> None:
    self.closed = True
    self._queue.clear()
    self._live.clear()

  def _start(self) -> None:
    """Puts queued works on free slots."""
    now = self._inbox.clock.now()
    while self._queue and len(self._live) < self.slots - self._lost:
      work = self._queue.popleft()
      end, result = self._execute(work, now)
      self._live[work.key] = (work, now)
      self._inbox.at(end, functools.partial(self._finish, work, result))

  def _execute(
    self, work: ExecutionRequest, now: float
  ) -> tuple[float, ExecutionResult]:
    action = self._act(work)
    u, where = self._rng.random(2)
    if u < self.faults.death:
      end = now + where * action.duration_s
      return end, failure(work, 'sandbox died', end)
    if u < self.faults.death + self.faults.hang:
      end = now + self.faults.detect_s
      return end, failure(work, 'sandbox hung', end)
    end = now + action.duration_s
    return end, ExecutionResult(work.key, work.attempt, action.executed(), end)

  def _finish(self, work: ExecutionRequest, result: ExecutionResult) -> None:
    live, start = self._live.get(work.key, (None, 0.0))
    if live is not work:
      return  # it was cancelled or lost
    del self._live[work.key]
    self.busy_s += self._inbox.clock.now() - start
    self._inbox.put(result)
    self._start()

  def _lose(self, n: int) -> None:
    self._lost += n
    now = self._inbox.clock.now()
    while n > 0 and len(self._live) > self.slots - self._lost:
      _, (work, start) = self._live.popitem()
      self.busy_s += now - start
      self._inbox.put(failure(work, 'worker node lost', now))
    self._start()
