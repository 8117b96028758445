"""An executor over real processes that sleep, die or hang on request.

For measuring the scheduler on real time. It contains nothing: what runs is
this file's own worker, never generated code. It is an inbox, too: taking
from it checks on the workers.
"""

from __future__ import annotations

import collections
import json
import selectors
import subprocess
import sys
from collections.abc import Callable

from jaxagent.clock import Clock
from jaxagent.rollout import events
from jaxagent.rollout.journal import Journal
from jaxagent.rollout.requests import (
  ExecutionRequest,
  ExecutionResult,
  GenerationResult,
  Key,
  failure,
)
from jaxagent.testing.fake_executor import Action

_WORKER = """
import json, os, sys, time
for line in sys.stdin:
  order = json.loads(line)
  end = time.monotonic() + order['s']
  if order['fault'] == 'death':
    time.sleep(order['s'] / 2)
    os._exit(9)
  if order['fault'] == 'hang':
    time.sleep(3600)
  while True:
    left = end - time.monotonic()
    if left <= 0:
      break
    time.sleep(min(left, 0.05))
    if time.monotonic() < end:
      print('beat', flush=True)
  print('done', flush=True)
"""


class _Worker:
  def __init__(self):
    self.process = subprocess.Popen(
      [sys.executable, '-S', '-E', '-u', '-c', _WORKER],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      bufsize=0,
    )
    assert self.process.stdin is not None and self.process.stdout is not None
    self.orders, self.answers = self.process.stdin, self.process.stdout
    self.work: ExecutionRequest | None = None
    self.action: Action | None = None
    self.started = 0.0
    self.heard = 0.0

  def stop(self) -> None:
    self.process.kill()
    self.process.wait()
    self.orders.close()
    self.answers.close()


class ProcessExecutor:
  """`slots` worker processes with heartbeats; lost workers are replaced.

  Args:
    clock: a real clock.
    act: work -> (Action, fault); fault is '', 'death' or 'hang'.
    slots: processes.
    look_ahead: works that may queue beyond the slots.
    silent_s: a worker that has not been heard of for so long is killed.
    journal: as `JournalledQueue`'s.
  """

  def __init__(
    self,
    clock: Clock,
    act: Callable[[ExecutionRequest], tuple[Action, str]],
    slots: int,
    look_ahead: int = 0,
    silent_s: float = 1.0,
    journal: Journal | None = None,
  ):
    self.slots = slots
    self.capacity = slots + look_ahead
    self.busy_s = 0.0
    self.replaced = 0
    self._clock = clock
    self._act = act
    self._silent_s = silent_s
    self._journal = journal
    self._queue: collections.deque[ExecutionRequest] = collections.deque()
    self._selector = selectors.DefaultSelector()
    self._workers: list[_Worker] = []
    self._missing: list[float] = []  # when lost workers come back
    self._done: list[GenerationResult | ExecutionResult] = []
    for _ in range(slots):
      self._hire()

  @property
  def pids(self) -> list[int]:
    return [w.process.pid for w in self._workers]

  def submit(self, work: ExecutionRequest) -> None:
    self._queue.append(work)
    self._assign()

  def put(self, result: GenerationResult | ExecutionResult) -> None:
    if self._journal is not None:
      self._journal.append(events.of_result(result))
    self._done.append(result)

  def take(self, timeout_s: float) -> list[GenerationResult | ExecutionResult]:
    end = self._clock.now() + timeout_s
    while True:
      self._read(0.0)
      self._check()
      self._assign()
      left = end - self._clock.now()
      if self._done or left <= 0:
        break
      self._read(min(left, 0.1))
    done, self._done = self._done, []
    return done

  def take_and_begin(
    self,
  ) -> tuple[list[GenerationResult | ExecutionResult], int | None]:
    done = self.take(0.0)  # all on one thread: nothing arrives in between
    return done, None if self._journal is None else self._journal.begin()

  def begun(self, key: Key) -> float | None:
    for worker in self._workers:
      if worker.work and worker.work.key == key:
        return worker.started
    return None

  def cancel(self, key: Key) -> None:
    self._queue = collections.deque(w for w in self._queue if w.key != key)
    for worker in list(self._workers):
      if worker.work and worker.work.key == key:
        self._dismiss(worker)
        self._hire()
    self._assign()

  def lose(self, n: int, back_s: float) -> None:
    """A node with n workers goes away, and comes back `back_s` later."""
    for worker in self._workers[:n]:
      self._fail(worker, 'worker node lost')
      self._missing.append(self._clock.now() + back_s)

  def close(self) -> None:
    for worker in list(self._workers):
      self._dismiss(worker)
    self._selector.close()

  def _hire(self) -> None:
    worker = _Worker()
    self._workers.append(worker)
    self._selector.register(worker.answers, selectors.EVENT_READ, worker)

  def _dismiss(self, worker: _Worker) -> None:
    if worker.work is not None:
      self.busy_s += self._clock.now() - worker.started
    self._workers.remove(worker)
    self._selector.unregister(worker.answers)
    worker.stop()

  def _fail(self, worker: _Worker, error: str) -> None:
    if worker.work is not None:
      self.put(failure(worker.work, error, self._clock.now()))
    self._dismiss(worker)

  def _read(self, timeout_s: float) -> None:
    for key, _ in self._selector.select(timeout_s):
      worker: _Worker = key.data
      data = worker.answers.read(65536)
      now = self._clock.now()
      worker.heard = now
      if not data:
        self._fail(worker, 'sandbox died')
        self._hire()
        self.replaced += 1
      elif b'done' in data:
        self._finish(worker, now)
        self._assign()

  def _finish(self, worker: _Worker, now: float) -> None:
    self.busy_s += now - worker.started
    work, worker.work = worker.work, None
    assert work is not None and worker.action is not None  # it was busy
    self.put(
      ExecutionResult(work.key, work.attempt, worker.action.executed(), now)
    )

  def _check(self) -> None:
    now = self._clock.now()
    for worker in list(self._workers):
      if worker.work and now - worker.heard > self._silent_s:
        self._fail(worker, f'no heartbeat for {self._silent_s:g} s')
        self._hire()
        self.replaced += 1
    back = [t for t in self._missing if t <= now]
    self._missing = [t for t in self._missing if t > now]
    for _ in back:
      self._hire()

  def _assign(self) -> None:
    for worker in self._workers:
      if not self._queue:
        return
      if worker.work is None:
        worker.work = self._queue.popleft()
        worker.action, fault = self._act(worker.work)
        worker.started = worker.heard = self._clock.now()
        order = {'s': worker.action.duration_s, 'fault': fault}
        try:
          worker.orders.write((json.dumps(order) + '\n').encode())
        except BrokenPipeError:
          pass  # its end shows as an empty read
