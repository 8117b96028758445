"""Scores submissions outside the sandbox, in a process of its own.

A submission is untrusted bytes: it is never unpickled, never handed to code
of the sandbox, and read by a strict CSV reader (exact ids, no duplicates,
finite values, columns by name). See `grade_worker.py` for the rules.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping

from jaxagent.envs import mlagentbench_tasks
from jaxagent.envs.tasks import PreparedTask
from jaxagent.sandbox import cpu_levels
from jaxagent.types import Outcome

SPLITS = ('valid', 'private')
# What is asked of a submission, in this order: that it is the program's own (no
# copy of the sample, no fault of the grader), UTF-8, CSV, with the right columns,
# with each id once, with values of the right kind.
CHECKS = ('own', 'text', 'table', 'columns', 'ids', 'values')
_COMPARED = CHECKS.index('columns')
HARD_MAX_BYTES = 64 * 1024 * 1024
_WORKER = pathlib.Path(__file__).with_name('grade_worker.py')
_START_TIMEOUT_S = 120.0
_GRACE_S = 10.0  # beyond what the process itself keeps to
_STATUS = {
  'ok': Outcome.OK,
  'invalid': Outcome.INVALID_SUBMISSION,
  'error': Outcome.GRADER_ERROR,
}


@dataclasses.dataclass(frozen=True)
class GradeResult:
  """score is None unless outcome is OK; reason is one line for the agent.

  passed: how many of CHECKS come before the one that failed; see `credited`.
  """

  score: float | None
  outcome: Outcome
  reason: str
  passed: int = 0


def credited(passed: int) -> tuple[str, ...]:
  """Returns the checks passed; none if the file may be a copy of the sample.

  Whether it is one is known once the table was compared with the sample, cell
  by cell: a file refused earlier must not be paid for being the program's own.
  """
  return CHECKS[:passed] if passed >= _COMPARED else ()


def _entry(task: PreparedTask) -> dict[str, str]:
  """Returns a task's entry for the grading process."""
  if task.spec.layout == mlagentbench_tasks.LAYOUT:
    return {
      'folder': str(task.private_dir),
      'eval': str(task.private_dir / 'eval.py'),
      'submission': task.spec.submission,
    }
  return {
    'eval': str((task.spec.root / 'scripts/eval.py').resolve()),
    'answers': str(task.private_dir / 'answers.csv'),
    'sample': str(task.public_dir / 'sample_submission.csv'),
    'metric': task.spec.metric,
  }


class WorkerDied(RuntimeError):
  """The grading process ended or went silent."""


class Grader:
  """A long-lived grading process; `grade` may be called from any thread.

  Args:
    prepared: task name -> prepared task; their answers are read at start.
    timeout_s: limit of one grade, in seconds.
    memory_mb: address space of the grading process, in MiB.

  Raises:
    ValueError: a task's answers or eval.py cannot be read.
  """

  def __init__(
    self,
    prepared: Mapping[str, PreparedTask],
    *,
    timeout_s: float = 20.0,
    memory_mb: int = 4096,
  ):
    self._entries = {name: _entry(task) for name, task in prepared.items()}
    self._timeout_s = timeout_s
    self._memory_mb = memory_mb
    self._lock = threading.Lock()
    self._closed = False
    self._buffer = b''
    self._worker: subprocess.Popen | None = None
    with self._lock:
      self._start()

  def grade(
    self,
    task_name: str,
    submission: bytes,
    split: str = 'valid',
    *,
    own_work: bool = False,
  ) -> GradeResult:
    """Scores the bytes of a submission file on one split.

    own_work: a submission that says what the sample submission says is none,
      whatever else is wrong with it (`grade_worker.Sample`).

    Faults of the submission give INVALID_SUBMISSION with a reason. Where
    grading fails, runs late or kills its process, a fresh process tries
    again; where that fails, too, but grades the task's sample submission,
    the fault is the submission's. Only a grader that cannot grade the sample
    gives GRADER_ERROR, which never becomes a reward.

    Raises:
      ValueError: unknown task or split, or the grader is closed.
    """
    if task_name not in self._entries:
      raise ValueError(
        f'task {task_name!r} is not graded here; choose one of '
        f'{", ".join(sorted(self._entries))}.'
      )
    if split not in SPLITS:
      raise ValueError(f'split={split!r}; choose one of {", ".join(SPLITS)}.')
    if len(submission) > HARD_MAX_BYTES:
      return GradeResult(
        None,
        Outcome.INVALID_SUBMISSION,
        f'submission has {len(submission)} bytes; at most {HARD_MAX_BYTES}.',
      )
    with self._lock:
      if self._closed:
        raise ValueError('the grader is closed.')
      result = self._attempt(task_name, bytes(submission), split, own_work)
      if result.outcome is Outcome.GRADER_ERROR:
        result = self._attempt(task_name, bytes(submission), split, own_work)
      if result.outcome is Outcome.GRADER_ERROR and self._sample_is_graded(
        task_name, split
      ):
        result = dataclasses.replace(
          result,
          outcome=Outcome.INVALID_SUBMISSION,
          # The kind of fault alone: its text may quote the answers.
          reason='grading this submission failed twice: '
          + result.reason.partition(':')[0],
        )
      return result

  def close(self) -> None:
    """Ends the grading process. May be called twice."""
    with self._lock:
      self._closed = True
      self._stop()

  def __enter__(self) -> Grader:
    return self

  def __exit__(self, *unused) -> None:
    self.close()

  def _attempt(
    self, task_name: str, data: bytes, split: str, own_work: bool = False
  ) -> GradeResult:
    """One grade; GRADER_ERROR, and no process left, where none came back."""
    try:
      result = self._ask(task_name, data, split, own_work)
    except (WorkerDied, OSError, ValueError) as error:
      result = GradeResult(None, Outcome.GRADER_ERROR, str(error))
    if result.outcome is Outcome.GRADER_ERROR:
      self._stop()
    return result

  def _sample_is_graded(self, task_name: str, split: str) -> bool:
    """Whether a fresh process grades what the task itself hands out."""
    entry = self._entries[task_name]
    if 'sample' not in entry:
      return True  # one of MLAgentBench's has none; its starter was graded
    try:
      sample = pathlib.Path(entry['sample']).read_bytes()
    except OSError:
      return False
    return self._attempt(task_name, sample, split).outcome is Outcome.OK

  def _ask(
    self, task_name: str, data: bytes, split: str, own_work: bool
  ) -> GradeResult:
    if self._worker is None or self._worker.poll() is not None:
      self._stop()
      self._start()
    request = {
      'task': task_name,
      'split': split,
      'own_work': own_work,
      'size': len(data),
      'timeout_s': self._timeout_s,
    }
    limit = self._timeout_s + _GRACE_S
    self._send(json.dumps(request).encode() + b'\n' + data, limit)
    answer = self._read_line(limit)
    return GradeResult(
      answer['score'],
      _STATUS[answer['status']],
      answer['reason'],
      answer['passed'],
    )

  def _start(self) -> None:
    keep = ('PATH', 'LANG', 'LC_ALL', 'TMPDIR', 'LD_LIBRARY_PATH')
    env = {key: os.environ[key] for key in keep if key in os.environ}
    # Scores alike in every process and on every node, as scripts.
    env.update(OMP_NUM_THREADS='1', OPENBLAS_NUM_THREADS='1')
    env.update(PYTHONHASHSEED='0', **cpu_levels.here())
    self._buffer = b''
    self._worker = subprocess.Popen(
      [sys.executable, '-s', '-P', str(_WORKER), str(self._memory_mb)],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      stderr=subprocess.DEVNULL,
      bufsize=0,  # else closing the pipe of a frozen process would block
      env=env,
      cwd='/',
      start_new_session=True,
    )
    os.set_blocking(self._pipes()[0], False)
    try:
      entries = json.dumps(self._entries).encode() + b'\n'
      self._send(entries, _START_TIMEOUT_S)
      hello = self._read_line(_START_TIMEOUT_S)
    except (WorkerDied, OSError):
      self._stop()
      raise
    if hello['status'] != 'ok':
      self._stop()
      raise ValueError(f'the grader cannot start: {hello["reason"]}')

  def _pipes(self) -> tuple[int, int]:
    worker = self._worker
    assert worker is not None and worker.stdin and worker.stdout  # `_start`
    return worker.stdin.fileno(), worker.stdout.fileno()

  def _send(self, data: bytes, timeout_s: float) -> None:
    end = time.monotonic() + timeout_s
    fd = self._pipes()[0]
    rest = memoryview(data)
    while rest:
      left = end - time.monotonic()
      if left <= 0 or not select.select([], [fd], [], left)[1]:
        raise WorkerDied(f'the grader did not listen for {timeout_s:g} s.')
      rest = rest[os.write(fd, rest) :]

  def _read_line(self, timeout_s: float) -> dict:
    end = time.monotonic() + timeout_s
    fd = self._pipes()[1]
    while b'\n' not in self._buffer:
      left = end - time.monotonic()
      if left <= 0 or not select.select([fd], [], [], left)[0]:
        raise WorkerDied(f'the grader did not answer in {timeout_s:g} s.')
      chunk = os.read(fd, 65536)
      if not chunk:
        raise WorkerDied('the grading process ended unexpectedly.')
      self._buffer += chunk
    line, self._buffer = self._buffer.split(b'\n', 1)
    return json.loads(line)

  def _stop(self) -> None:
    worker, self._worker = self._worker, None
    if worker is None:
      return
    for pipe in (worker.stdin, worker.stdout):
      assert pipe is not None
      try:
        pipe.close()
      except OSError:
        pass
    try:
      worker.wait(timeout=0.5)  # it ends by itself at the end of its input
    except subprocess.TimeoutExpired:
      worker.kill()
      worker.wait()
