"""The pool: slots, queue, priorities, deadlines, cancellation, retries."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import heapq
import itertools
import pathlib
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from jaxagent.clock import Deadline
from jaxagent.sandbox import (
  checks,
  cpu_levels,
  docker_backend,
  errors,
  local,
  outcome,
  probe,
  ray_backend,
)
from jaxagent.sandbox.config import BACKENDS
from jaxagent.types import Execution, Job, Outcome

MAX_ATTEMPTS = 3


class Backend(Protocol):
  """Backend that runs jobs. `run` blocks until all processes of a job are dead.

  cancelled: asked once the job can be found by `cancel`, before it starts.
  """

  name: str
  tier: str

  def start(self) -> str: ...

  def run(
    self,
    job: Job,
    slot: int,
    timeout_s: float,
    gpu_ids: Sequence[str] = (),
    cancelled: Callable[[], bool] = lambda: False,
  ) -> Execution: ...

  def cancel(self, job_id: str) -> bool: ...

  def stats(self) -> dict[str, Any]: ...

  def close(self) -> None: ...


def make_backend(backend: str, slots: int, **options) -> Backend:
  """Returns an unstarted backend; ValueError names the choices."""
  if backend == 'local':
    return local.LocalBackend(slots, **options)
  if backend == 'docker':
    return docker_backend.DockerBackend(slots, **options)
  if backend == 'ray':
    return ray_backend.RayBackend(slots, **options)
  raise ValueError(f'backend={backend!r}: choose one of {", ".join(BACKENDS)}.')


@dataclasses.dataclass(order=True)
class _Entry:
  priority: float
  order: int
  job: Job = dataclasses.field(compare=False)
  future: concurrent.futures.Future = dataclasses.field(compare=False)
  deadline: Deadline = dataclasses.field(compare=False)
  queued_at: float = dataclasses.field(compare=False)
  cancelled: bool = dataclasses.field(default=False, compare=False)
  cancels: int = dataclasses.field(default=0, compare=False)  # under way
  gpu_ids: list[str] = dataclasses.field(default_factory=list, compare=False)


class SandboxPool:
  """Runs jobs in `slots` contained slots, lowest priority value first.

  Args:
    slots: jobs at once.
    backend: 'local', 'docker' or 'ray'; further options are its own.
    min_tier: 'T3'..'T0'; TierError, with the remedy, where it is not met.
    zygote: keep a pre-imported launcher for jobs that ask for it.
    work_dir: scratch space; a temporary folder when None.
    max_queue: submit() waits while this many jobs are queued.
    gpus: ids handed out to jobs that ask for GPUs.
    cpu_level: 'all', 'no-avx512' or 'no-avx2': the vector units that the
      libraries of jobs use, so that one script does the same on every node.
    interpreters: paths of further Pythons, 3.11 or newer, that jobs may ask for
      (`Job.interpreter`); of backend 'local' alone, which has a launcher for each.
  """

  def __init__(
    self,
    slots: int,
    *,
    backend: str = 'local',
    min_tier: str = 'T2',
    zygote: bool = True,
    work_dir: pathlib.Path | None = None,
    max_queue: int | None = None,
    gpus: Sequence[str] = (),
    cpu_level: str = cpu_levels.DEFAULT,
    interpreters: Sequence[str] = (),
    **backend_options,
  ):
    if slots < 1:
      raise ValueError(f'slots={slots} must be at least 1.')
    if max_queue is not None and max_queue < 1:
      raise ValueError(f'max_queue={max_queue} must be at least 1 or None.')
    errors.tier_number(min_tier)
    self.slots, self.max_queue = slots, max_queue
    if interpreters and backend != 'local':
      raise ValueError(
        f"interpreters={list(interpreters)} are for backend='local', not "
        f'{backend!r}, whose jobs have the interpreter of their image or node.'
      )
    # By the interpreter of their jobs. A slot runs one job at a time, whatever runs it.
    self._backends: dict[str, Backend] = {
      python: make_backend(
        backend,
        slots,
        zygote=zygote,
        work_dir=work_dir,
        cpu_level=cpu_level,
        **({'python': python} if python else {}),
        **backend_options,
      )
      for python in dict.fromkeys(('', *interpreters))
    }
    self._backend = self._backends['']
    self._changed = threading.Condition()
    self._heap: list[_Entry] = []
    self._running: dict[str, _Entry] = {}
    self._free_gpus = [str(g) for g in gpus]
    self._n_gpus = len(self._free_gpus)
    self._order = itertools.count()
    self._counts: dict[str, float] = {}
    self._closed = False
    self._expirer: threading.Thread | None = None
    try:
      self.tier = min(
        (self._started(one, min_tier) for one in self._backends.values()),
        key=errors.tier_number,
      )
    except BaseException:
      for one in self._backends.values():
        one.close()
      raise
    self._threads = [
      threading.Thread(
        target=self._work, args=(i,), daemon=True, name=f'sandbox-slot-{i}'
      )
      for i in range(slots)
    ]
    for thread in self._threads:
      thread.start()

  @staticmethod
  def _started(backend: Backend, min_tier: str) -> str:
    backend.start()
    return probe.confirm(backend, min_tier)

  def __enter__(self) -> SandboxPool:
    return self

  def __exit__(self, *_) -> None:
    self.close()

  def submit(
    self,
    job: Job,
    *,
    deadline_s: float | None = None,
  ) -> concurrent.futures.Future[Execution]:
    """Queues a job. Thread-safe; waits while the queue is full.

    deadline_s: seconds from now by which the outer unit (step, trajectory)
    must be over. A job that is queued or runs then comes back as `deadline`,
    not as `timeout`: it did not get the time that its own limit promises.
    Raises ValueError on bad input, RuntimeError after close().
    """
    checks.job(job)
    if job.gpus > self._n_gpus:
      raise ValueError(
        f'job {job.job_id} asks for gpus={job.gpus}; the pool has '
        f'{self._n_gpus}. Pass gpus=[...] to SandboxPool.'
      )
    if job.interpreter not in self._backends:
      raise ValueError(
        f'job {job.job_id} asks for interpreter={job.interpreter!r}; the pool has '
        f'{[python for python in self._backends if python]} beside its own. Pass '
        'interpreters=[...] to SandboxPool.'
      )
    deadline = Deadline() if deadline_s is None else Deadline.after(deadline_s)
    with self._changed:
      while (
        self.max_queue is not None
        and not self._closed
        and len(self._heap) >= self.max_queue
      ):
        self._changed.wait()
      if self._closed:
        raise RuntimeError('the sandbox pool is closed.')
      if job.job_id in self._running or any(
        e.job.job_id == job.job_id for e in self._heap
      ):
        raise ValueError(f'job id {job.job_id!r} is already in the pool.')
      future: concurrent.futures.Future = concurrent.futures.Future()
      heapq.heappush(
        self._heap,
        _Entry(
          job.priority,
          next(self._order),
          job,
          future,
          deadline,
          time.monotonic(),
        ),
      )
      if deadline.at < float('inf') and self._expirer is None:
        self._expirer = threading.Thread(
          target=self._expire, daemon=True, name='sandbox-deadlines'
        )
        self._expirer.start()
      self._changed.notify_all()
    return future

  def cancel(self, job_id: str) -> bool:
    """Kills a queued or running job: its future gets outcome `killed`."""
    with self._changed:
      queued = next((e for e in self._heap if e.job.job_id == job_id), None)
      running = self._running.get(job_id)
      if queued:
        self._unqueue(queued)
      elif running:
        running.cancelled = True
        running.cancels += 1
    if queued:
      self._finish(queued, outcome.killed(queued.job, self.tier))
    elif running:
      self._cancel_running(running)
    return bool(queued or running)

  def _cancel_running(self, entry: _Entry) -> None:
    """Cancels without holding the lock: a daemon's answer may take a minute."""
    try:
      self._of(entry).cancel(entry.job.job_id)
    finally:
      with self._changed:
        entry.cancels -= 1
        self._changed.notify_all()

  def stats(self) -> dict[str, Any]:
    """Counters since the start: outcomes, times, queue and slots."""
    with self._changed:
      return {
        'tier': self.tier,
        'backend': self._backend.name,
        'slots': self.slots,
        'queued': len(self._heap),
        'running': len(self._running),
        **self._counts,
        'launcher': self._backend.stats(),
      }

  def close(self) -> None:
    """Kills what runs, refuses what is queued, removes every trace."""
    with self._changed:
      if self._closed:
        return
      self._closed = True
      waiting, self._heap = self._heap, []
      running = list(self._running.values())
      for entry in running:
        entry.cancelled = True
      self._changed.notify_all()
    for entry in waiting:
      self._finish(entry, outcome.killed(entry.job, self.tier, 'pool closed'))
    for entry in running:
      with contextlib.suppress(Exception):  # what closes the backend ends it
        self._of(entry).cancel(entry.job.job_id)
    for thread in self._threads:
      if thread is not threading.current_thread():
        thread.join(15)
    for one in self._backends.values():
      one.close()

  def _of(self, entry: _Entry) -> Backend:
    return self._backends[entry.job.interpreter]

  def _unqueue(self, entry: _Entry) -> None:
    self._heap.remove(entry)
    heapq.heapify(self._heap)
    self._changed.notify_all()

  def _expire(self) -> None:
    """Answers for queued jobs when their deadline passes, until closed."""
    while True:
      with self._changed:
        if self._closed:
          return
        first = min(self._heap, key=lambda e: e.deadline.at, default=None)
        if first is None:
          self._changed.wait(threading.TIMEOUT_MAX)
          continue
        left = first.deadline.remaining()
        if left > 0:
          self._changed.wait(min(left, threading.TIMEOUT_MAX))
          continue
        self._unqueue(first)
      self._finish(first, outcome.late(first.job, self.tier, 'in the queue'))

  def _take(self) -> _Entry | None:
    """The first queued job whose GPUs are free; None when closing."""
    with self._changed:
      while not self._closed:
        for entry in (
          sorted(self._heap)[:64] if self._n_gpus else (self._heap[:1])
        ):
          if entry.job.gpus <= len(self._free_gpus):
            self._unqueue(entry)
            self._running[entry.job.job_id] = entry
            entry.gpu_ids = [
              self._free_gpus.pop() for _ in range(entry.job.gpus)
            ]
            return entry
        self._changed.wait()
    return None

  def _work(self, slot: int) -> None:
    while (entry := self._take()) is not None:
      try:
        result = self._run(entry, slot)
      except BaseException as error:  # noqa: BLE001: a slot never dies
        result = outcome.infrastructure(entry.job, self.tier, repr(error))
      with self._changed:
        # A cancel under way would hit the next job of the same id.
        self._changed.wait_for(lambda: not entry.cancels)
        self._free_gpus.extend(entry.gpu_ids)
        del self._running[entry.job.job_id]
        self._changed.notify_all()
      self._finish(entry, result)

  def _run(self, entry: _Entry, slot: int) -> Execution:
    queue_s = time.monotonic() - entry.queued_at
    for attempt in range(1, MAX_ATTEMPTS + 1):
      own_s = entry.job.limits.timeout_s
      timeout_s = min(own_s, entry.deadline.remaining())
      if timeout_s <= 0:
        result = outcome.late(entry.job, self.tier, 'before it started')
        break
      result = self._of(entry).run(
        entry.job, slot, timeout_s, entry.gpu_ids, lambda: entry.cancelled
      )
      if result.outcome is Outcome.TIMEOUT and timeout_s < own_s:
        result = dataclasses.replace(
          result,
          outcome=Outcome.DEADLINE,
          message=f'{outcome.LATE} after {timeout_s:.3g} s of its {own_s:g} s',
        )
      if result.outcome is not Outcome.INFRASTRUCTURE or entry.cancelled:
        break
      time.sleep(0.05 * attempt)
    if entry.cancelled and result.outcome is Outcome.INFRASTRUCTURE:
      result = outcome.killed(entry.job, self.tier)
    return dataclasses.replace(
      result, queue_s=queue_s, attempts=attempt, slot=slot
    )

  def _finish(self, entry: _Entry, result: Execution) -> None:
    with self._changed:
      counts = self._counts
      for key, value in (
        ('jobs', 1),
        (f'outcome/{result.outcome.value}', 1),
        ('exec_s', result.exec_s),
        ('cpu_s', result.cpu_s),
        ('queue_s', result.queue_s),
        ('retries', result.attempts - 1),
      ):
        counts[key] = counts.get(key, 0) + value
    if entry.future.set_running_or_notify_cancel():
      entry.future.set_result(result)


def run_once(
  job: Job, *, backend: str = 'local', min_tier: str = 'T2', **options
) -> Execution:
  """One job in a pool of its own."""
  options.setdefault('zygote', job.zygote)
  with SandboxPool(1, backend=backend, min_tier=min_tier, **options) as pool:
    if pool.tier == 'T0':
      warnings.warn('sandbox: T0 contains nothing.', stacklevel=2)
    return pool.submit(job).result()


def new_id(prefix: str = 'job') -> str:
  return f'{prefix}-{uuid.uuid4().hex[:12]}'
