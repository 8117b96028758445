"""A pool that runs jobs which do the same once, while the first is there or was lately.

Where answers are short, or a policy has narrowed, an update has the same program many
times. Programs that draw without a seed are one draw then, so it is off by default.
Each answer says that it was not run (`Execution.recorded`), and so do records, traces and
reports that are made of it.
"""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import functools
import threading
import time
from typing import Any

from jaxagent.clock import Deadline
from jaxagent.sandbox import outcome
from jaxagent.sandbox.recorded import KEPT, answer, key_of
from jaxagent.types import Execution, Job

KEEP = 256  # jobs that have ended
KEEP_BYTES = 64 << 20  # of what they wrote


@dataclasses.dataclass(eq=False)
class _Waiting:
  """A job that waits for an equal one."""

  job: Job
  deadline: Deadline
  future: concurrent.futures.Future[Execution]
  since: float


@dataclasses.dataclass(eq=False)
class _First:
  """A job that waits in the pool or runs, and those that wait for it."""

  deadline: Deadline
  others: list[_Waiting] = dataclasses.field(default_factory=list)


class ReusingPool:
  """`SandboxPool` that answers a job by an equal one (`recorded.key_of`).

  A job that equals one that waits or runs ends with it, and one that equals one of the
  last `keep` that ended has its result at once. What a job did not do by itself (it was
  killed, was lost, had to end early) is no answer: those that waited for it are run.

  pool: runs the first of its kind; closed with this one.
  keep, keep_bytes: how many results are kept, and of how many bytes.
  """

  def __init__(
    self, pool: Any, *, keep: int = KEEP, keep_bytes: int = KEEP_BYTES
  ):
    self._pool, self._keep, self._keep_bytes = pool, keep, keep_bytes
    self.tier, self.slots = pool.tier, pool.slots
    self._lock = threading.Lock()
    self._first: dict[str, _First] = {}  # by key
    self._ended: collections.OrderedDict[str, Execution] = (
      collections.OrderedDict()
    )
    self._bytes = self._reused = 0

  def __enter__(self) -> ReusingPool:
    return self

  def __exit__(self, *_) -> None:
    self.close()

  def submit(
    self, job: Job, *, deadline_s: float | None = None
  ) -> concurrent.futures.Future[Execution]:
    """Answers by an equal job, or as `SandboxPool.submit`."""
    deadline = Deadline() if deadline_s is None else Deadline.after(deadline_s)
    future: concurrent.futures.Future[Execution] = concurrent.futures.Future()
    waiting = _Waiting(job, deadline, future, time.monotonic())
    self._submit(key_of(job), waiting)
    return future

  def _submit(self, key: str, one: _Waiting) -> None:
    with self._lock:
      if (done := self._ended.get(key)) is not None:
        self._ended.move_to_end(key)
        self._reused += 1
      else:
        first = self._first.get(key)
        # It would end too late for one that must end before it.
        if first is not None and first.deadline.at <= one.deadline.at:
          if any(other.job.job_id == one.job.job_id for other in first.others):
            raise ValueError(
              f'job id {one.job.job_id!r} is already in the pool.'
            )
          first.others.append(one)
          return
        own = _First(one.deadline)
        self._first.setdefault(key, own)
    if done is not None:
      _end(one, answer(done, one.job.job_id))
      return
    left_s = one.deadline.remaining()
    try:
      ran = self._pool.submit(
        one.job, deadline_s=None if left_s == float('inf') else left_s
      )
    except BaseException:
      self._let_go(key, own)
      raise
    ran.add_done_callback(functools.partial(self._ran, key, own, one))

  def _ran(
    self,
    key: str,
    own: _First,
    one: _Waiting,
    ran: concurrent.futures.Future[Execution],
  ) -> None:
    """Ends a job that ran, and those that waited for it."""
    found = ran.result()
    if found.outcome not in KEPT:
      _end(one, found)
      self._let_go(key, own)
      return
    with self._lock:
      self._remember(key, found)
      if self._first.get(key) is own:
        del self._first[key]
      self._reused += len(own.others)
    _end(one, found)
    now = time.monotonic()
    for other in own.others:
      _end(other, answer(found, other.job.job_id, now - other.since))

  def _remember(self, key: str, found: Execution) -> None:
    before = self._ended.pop(key, None)
    self._bytes += _size(found) - (_size(before) if before else 0)
    self._ended[key] = found
    while len(self._ended) > self._keep or self._bytes > self._keep_bytes:
      self._bytes -= _size(self._ended.popitem(last=False)[1])

  def _let_go(self, key: str, own: _First) -> None:
    """Runs those that waited for a job whose end is no answer."""
    with self._lock:
      if self._first.get(key) is own:
        del self._first[key]
    if own.others:
      # Not in the pool's own thread, which a full queue would hold for ever.
      threading.Thread(
        target=self._again, args=(key, own.others), daemon=True
      ).start()

  def _again(self, key: str, others: list[_Waiting]) -> None:
    for other in others:
      try:
        self._submit(key, other)
      except RuntimeError:  # the pool is closed
        _end(other, outcome.killed(other.job, self.tier, 'pool closed'))
      except ValueError as error:  # as `submit` would have raised
        other.future.set_exception(error)

  def cancel(self, job_id: str) -> bool:
    """Cancels as `SandboxPool` does; one that waits for an equal job leaves it."""
    other = self._left(job_id)
    if other is None:
      return self._pool.cancel(job_id)
    _end(other, outcome.killed(other.job, self.tier))
    return True

  def _left(self, job_id: str) -> _Waiting | None:
    with self._lock:
      for first in self._first.values():
        for other in first.others:
          if other.job.job_id == job_id:
            first.others.remove(other)
            return other
    return None

  def stats(self) -> dict[str, Any]:
    """Counters of the pool behind, and how many jobs were not run."""
    return self._pool.stats() | {'reused': self._reused}

  def close(self) -> None:
    """Closes the pool; who waits for a job that it ends is ended, too."""
    self._pool.close()


def _size(found: Execution) -> int:
  files = (*found.collected.values(), *found.changed.values())
  return sum(map(len, files)) + len(found.output) + len(found.errors)


def _end(one: _Waiting, found: Execution) -> None:
  if one.future.set_running_or_notify_cancel():
    one.future.set_result(found)
