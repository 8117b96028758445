"""An executor on a virtual clock, with faults injected on request."""

from __future__ import annotations

import collections
import dataclasses
import heapq
from collections.abc import Callable

import numpy as np

from jaxagent.clock import VirtualClock
from jaxagent.rollout.records import Work, WorkResult
from jaxagent.types import Outcome, Sample


@dataclasses.dataclass(frozen=True)
class Action:
  """What executing one work amounts to."""

  duration_s: float
  reward: float | None = 0.0
  outcome: Outcome = Outcome.OK


@dataclasses.dataclass(frozen=True)
class Faults:
  """Which share of executions goes wrong, drawn for each attempt.

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
    clock: a virtual clock; `wait` moves it.
    act: work -> Action. Drawn once for each submission.
    slots: executions at the same time.
    look_ahead: works that may queue beyond the slots; with some, a slot that
      frees up while the learner is busy is taken at once.
    faults: what goes wrong.
  """

  def __init__(
    self,
    clock: VirtualClock,
    act: Callable[[Work], Action],
    slots: int,
    look_ahead: int = 0,
    faults: Faults | None = None,
  ):
    self.slots = slots
    self.capacity = slots + look_ahead
    self.faults = faults or Faults()
    self.busy_s = 0.0  # worker-seconds spent, useful or not
    self._clock = clock
    self._act = act
    self._rng = np.random.default_rng(self.faults.seed)
    self._queue: collections.deque[Work] = collections.deque()
    self._live: dict[str, tuple[int, float]] = {}  # id -> ticket, start
    self._heap: list[tuple[float, int, str, WorkResult | None]] = []
    self._done: list[WorkResult] = []
    self._ticket = 0
    self._lost = 0
    self._works: dict[str, Work] = {}
    self.closed = False
    for at, n, back in self.faults.lose:
      self._push(at, '', None, lose=n)
      self._push(at + back, '', None, lose=-n)

  def submit(self, work: Work) -> None:
    if self.closed:
      raise RuntimeError('submit after close.')
    prompt_id = work.prompt.prompt_id
    if prompt_id in self._works:
      raise RuntimeError(f'{prompt_id} is submitted already.')
    self._advance(self._clock.now())
    self._works[prompt_id] = work
    self._queue.append(work)
    self._start(self._clock.now())

  def wait(self, timeout_s: float) -> list[WorkResult]:
    now = self._clock.now()
    end = now + timeout_s
    self._advance(now)
    while not self._done and self._heap and self._heap[0][0] <= end:
      now = max(now, self._heap[0][0])
      self._clock.move_to(now)
      self._advance(now)
    if not self._done and timeout_s > 0 and end < float('inf'):
      self._clock.move_to(end)
    done, self._done = self._done, []
    return done

  def begun(self, prompt_id: str) -> float | None:
    return self._live.get(prompt_id, (0, None))[1]

  def cancel(self, prompt_id: str) -> None:
    now = self._clock.now()
    self._advance(now)
    if self._works.pop(prompt_id, None) is None:
      self._done = [r for r in self._done if r.prompt_id != prompt_id]
      return
    live = self._live.pop(prompt_id, None)
    if live is None:
      self._queue = collections.deque(
        w for w in self._queue if w.prompt.prompt_id != prompt_id
      )
    else:
      self.busy_s += now - live[1]
    self._start(now)

  def close(self) -> None:
    self.closed = True
    self._queue.clear()
    self._live.clear()
    self._works.clear()
    self._heap.clear()

  def _push(self, at, prompt_id, result, lose=0):
    self._ticket += 1
    item = (at, self._ticket, prompt_id, result if not lose else lose)
    heapq.heappush(self._heap, item)
    return self._ticket

  def _start(self, now: float) -> None:
    """Puts queued works on free slots at time `now`."""
    while self._queue and len(self._live) < self.slots - self._lost:
      work = self._queue.popleft()
      end, result = self._execute(work, now)
      prompt_id = work.prompt.prompt_id
      ticket = self._push(end, prompt_id, result)
      self._live[prompt_id] = (ticket, now)

  def _execute(self, work: Work, now: float) -> tuple[float, WorkResult]:
    action = self._act(work)
    u, where = self._rng.random(2)
    if u < self.faults.death:
      end = now + where * action.duration_s
      return end, failure(work, 'sandbox died', end)
    if u < self.faults.death + self.faults.hang:
      end = now + self.faults.detect_s
      return end, failure(work, 'sandbox hung', end)
    end = now + action.duration_s
    sample = sample_of(work, action)
    result = WorkResult(
      work.prompt.prompt_id, sample, action.outcome, '', end, work.attempt
    )
    return end, result

  def _advance(self, now: float) -> None:
    """Everything that happens up to `now`, in order."""
    while self._heap and self._heap[0][0] <= now:
      at, ticket, prompt_id, result = heapq.heappop(self._heap)
      if isinstance(result, int):
        self._lose(at, result)
      elif self._live.get(prompt_id, (-1,))[0] == ticket:
        _, start = self._live.pop(prompt_id)
        del self._works[prompt_id]
        self.busy_s += at - start
        self._done.append(result)
      self._start(at)

  def _lose(self, at: float, n: int) -> None:
    self._lost += n
    while n > 0 and len(self._live) > self.slots - self._lost:
      prompt_id, (_, start) = self._live.popitem()
      work = self._works.pop(prompt_id)
      self.busy_s += at - start
      self._done.append(failure(work, 'worker node lost', at))


def failure(work: Work, error: str, at: float) -> WorkResult:
  """An infrastructure failure: no sample, no reward."""
  return WorkResult(
    work.prompt.prompt_id,
    None,
    Outcome.INFRASTRUCTURE,
    error,
    at,
    work.attempt,
  )


def sample_of(work: Work, action: Action) -> Sample:
  """The sample that a work with this action yields."""
  completion = work.completion
  infra = action.outcome.is_infrastructure
  return Sample(
    prompt_id=work.prompt.prompt_id,
    group_id=work.prompt.group_id,
    prompt_ids=completion.prompt_ids,
    token_ids=completion.token_ids,
    loss_mask=np.ones(len(completion.token_ids), bool),
    behaviour_logprobs=completion.logprobs,
    version=completion.version,
    outcome=action.outcome,
    reward=None if infra else action.reward,
    exec_s=action.duration_s,
  )
