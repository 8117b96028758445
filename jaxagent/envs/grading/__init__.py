"""Scores submissions outside the sandbox, in a process of its own.

A submission is untrusted bytes: it is never unpickled, never handed to code
of the sandbox, and read strictly (exact ids, no duplicates, finite values, columns
by name). See `grade_worker.py` for the rules of version 1 of `task.yaml`, whose tasks
share a process. A task of version 2 has one of its own (`competition_worker.py`),
started when it is first needed, with limits that follow its answers.
"""

from __future__ import annotations

import dataclasses
import pathlib
import threading
from collections.abc import Mapping
from typing import Any

from jaxagent.envs.grading import grade_process
from jaxagent.envs.grading.grade_process import GradeProcess, WorkerDied
from jaxagent.envs.grading.grade_worker import WHOLE
from jaxagent.envs.specs import mlagentbench_tasks, task_data
from jaxagent.envs.tasks import PreparedTask, has_eval, is_divided
from jaxagent.graders import folders
from jaxagent.types import Outcome, TaskSpec

SPLITS = ('valid', 'private')
# What is asked of a submission, in this order: that it is the program's own (no
# copy of the sample, no fault of the grader), UTF-8, CSV, with the right columns,
# with each id once, with values of the right kind.
CHECKS = ('own', 'text', 'table', 'columns', 'ids', 'values')
_COMPARED = CHECKS.index('columns')
HARD_MAX_BYTES = 64 * 1024 * 1024
# Of a task of version 2: what every process takes, and what its answers take.
_BASE_MB, _MB_PER_MB = 4096, 40
_BASE_S, _S_PER_MB = 20.0, 0.5
_MEASURED_BYTES = 1_000_000  # of a measured program, beyond twice its answers
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


def _has_grader(spec: TaskSpec) -> bool:
  """Whether `graders` grade a task, and no eval.py of its own."""
  return spec.version == 2 and not has_eval(spec)


def has_whole(spec: TaskSpec) -> bool:
  """Whether a task's source would report one number of the whole hidden test."""
  return _has_grader(spec) and not task_data.details_of(spec).is_program


def _entry(task: PreparedTask) -> dict[str, Any]:
  """Returns a task's entry for the grading process.

  Raises ValueError where the answers of a task of version 2 are not there.
  """
  if _has_grader(task.spec):
    return _competition(task)
  if task.spec.layout == mlagentbench_tasks.LAYOUT:
    return _folder(task)
  return {
    'eval': str((task.spec.root / 'scripts/eval.py').resolve()),
    'answers': str(task.private_dir / 'answers.csv'),
    'sample': str(task.public_dir / 'sample_submission.csv'),
    'metric': task.spec.metric,
  }


def _folder(task: PreparedTask) -> dict[str, Any]:
  """The entry of one of MLAgentBench's folders, scored by its own eval.py."""
  scripts = task.public_dir.parent / 'scripts'
  return {
    'folder': str(scripts),
    'eval': str(scripts / 'eval.py'),
    'submission': task.spec.submission,
  }


def _competition(task: PreparedTask) -> dict[str, Any]:
  details = task_data.details_of(task.spec)
  answers = task_data.answers_file(task.spec, task.private_dir)
  sample = task_data.sample_file(task.spec, task.public_dir)
  # A folder of MLAgentBench may have none.
  needs_sample = not is_divided(task.spec) or bool(details.sample)
  if not answers.is_file() or (sample is None and needs_sample):
    raise ValueError(
      f'the grader cannot start: task {task.spec.name}: there is no '
      f'{answers if sample else f"sample submission in {task.public_dir}"}; '
      'prepare the task again.'
    )
  return {
    'grader': task.spec.metric,
    'answers': str(answers),
    **({} if sample is None else {'sample': str(sample)}),
    # Of a program, what it wrote and took (`envs.programs`).
    'suffix': '.npz' if details.is_program else details.suffix,
    'max_bytes': 2 * answers.stat().st_size + _MEASURED_BYTES
    if details.is_program
    else int(details.submission_mb * 1e6),
    'id': details.id_column,
    'targets': list(details.targets),
  }


@dataclasses.dataclass
class _Desk:
  """A grading process with its limits; `lock` is held while it is asked."""

  process: GradeProcess
  timeout_s: float
  max_bytes: int
  lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)


def _own_desk(
  name: str, entry: dict[str, Any], timeout_s: float, memory_mb: int
) -> _Desk:
  """A desk of one task, whose limits follow the size of its answers."""
  size = pathlib.Path(entry['answers']).stat().st_size / 1e6
  return _Desk(
    GradeProcess(
      {name: entry},
      grade_process.COMPETITION_WORKER,
      max(memory_mb, int(_BASE_MB + _MB_PER_MB * size)),
    ),
    max(timeout_s, _BASE_S + _S_PER_MB * size),
    entry['max_bytes'],
  )


class Grader:
  """Long-lived grading processes; `grade` may be called from any thread.

  Args:
    prepared: task name -> prepared task. The answers of version 1 are read at
      start, those of version 2 when a task is first graded.
    timeout_s: limit of one grade, in seconds; more for large answers.
    memory_mb: address space of a grading process, in MiB; more for large answers.

  Raises:
    ValueError: a task's answers or eval.py cannot be read.
  """

  def __init__(
    self,
    prepared: Mapping[str, PreparedTask],
    *,
    timeout_s: float = _BASE_S,
    memory_mb: int = _BASE_MB,
  ):
    self._entries = {name: _entry(task) for name, task in prepared.items()}
    shared = {
      name: _folder(task) if is_divided(task.spec) else self._entries[name]
      for name, task in prepared.items()
      if is_divided(task.spec) or not _has_grader(task.spec)
    }
    process = GradeProcess(shared, (grade_process.WORKER,), memory_mb)
    self._shared = _Desk(process, timeout_s, HARD_MAX_BYTES)
    self._own = {
      name: _own_desk(name, entry, timeout_s, memory_mb)
      for name, entry in self._entries.items()
      if _has_grader(prepared[name].spec)
    }
    # Of MLAgentBench's folders the source's own number is that of their eval.py.
    self._by_eval = set(shared) & set(self._own)
    self._whole = {
      name for name, task in prepared.items() if has_whole(task.spec)
    }
    self._closed = False
    if shared or not self._own:
      with self._shared.lock:
        process.start()

  def grade(
    self,
    task_name: str,
    submission: bytes,
    split: str = 'valid',
    *,
    own_work: bool = False,
  ) -> GradeResult:
    """Scores the bytes of a submission file on one split.

    split: one of SPLITS, or WHOLE of a task that `has_whole`: no reward.
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
    whole = split == WHOLE and task_name in self._whole
    if split not in SPLITS and not whole:
      raise ValueError(f'split={split!r}; choose one of {", ".join(SPLITS)}.')
    desk = self._desk(task_name, split)
    if len(submission) > desk.max_bytes:
      return GradeResult(
        None,
        Outcome.INVALID_SUBMISSION,
        f'submission has {len(submission)} bytes; at most {desk.max_bytes}.',
      )
    with desk.lock:
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
    """Ends the grading processes. May be called twice."""
    self._closed = True
    for desk in (self._shared, *self._own.values()):
      with desk.lock:
        desk.process.stop()

  def __enter__(self) -> Grader:
    return self

  def __exit__(self, *unused) -> None:
    self.close()

  def _desk(self, task_name: str, split: str) -> _Desk:
    """Returns the desk at which a task is graded on a split."""
    if split == WHOLE and task_name in self._by_eval:
      return self._shared
    return self._own.get(task_name, self._shared)

  def _attempt(
    self, task_name: str, data: bytes, split: str, own_work: bool = False
  ) -> GradeResult:
    """One grade; GRADER_ERROR, and no process left, where none came back."""
    try:
      result = self._ask(task_name, data, split, own_work)
    except (WorkerDied, OSError, ValueError) as error:
      result = GradeResult(None, Outcome.GRADER_ERROR, str(error))
    if result.outcome is Outcome.GRADER_ERROR:
      self._desk(task_name, split).process.stop()
    return result

  def _sample_is_graded(self, task_name: str, split: str) -> bool:
    """Whether a fresh process grades what the task itself hands out."""
    entry = self._entries[task_name]
    if 'sample' not in entry:
      return True  # one of MLAgentBench's has none; its starter was graded
    path = pathlib.Path(entry['sample'])
    try:
      sample = path.read_bytes()
    except OSError:
      return False
    if entry.get('suffix') == folders.ZIP:
      sample = folders.packed(path.name, sample)
    graded = [Outcome.OK]
    if task_name in self._own:  # equal predictions may have no score
      graded.append(Outcome.INVALID_SUBMISSION)
    return self._attempt(task_name, sample, split).outcome in graded

  def _ask(
    self, task_name: str, data: bytes, split: str, own_work: bool
  ) -> GradeResult:
    desk = self._desk(task_name, split)
    request = {
      'task': task_name,
      'split': split,
      'own_work': own_work,
      'size': len(data),
      'timeout_s': desk.timeout_s,
    }
    answer = desk.process.ask(request, data, desk.timeout_s + _GRACE_S)
    return GradeResult(
      answer['score'],
      _STATUS[answer['status']],
      answer['reason'],
      answer['passed'],
    )
