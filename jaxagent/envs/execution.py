"""Executions of a task's scripts: run contained, graded, looked up again."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import threading
from collections.abc import Collection, Mapping
from typing import Any

from jaxagent import types
from jaxagent.clock import NO_DEADLINE, Deadline
from jaxagent.envs import failures, programs, workspace
from jaxagent.envs.snapshots import Snapshots
from jaxagent.envs.specs import interpreters, task_data

# Of what is left of a trajectory's time: an execution that begins has so much.
SHORTEST_S = 0.1


@dataclasses.dataclass(frozen=True)
class Run:
  """A graded execution.

  passed: of `grading.CHECKS`, those that the submission stood, in order.
  measured: CPU seconds of a program that was handed over, as of `types.Record`.
  """

  outcome: types.Outcome
  score: float | None
  execution: types.Execution
  message: str
  passed: int = 0
  measured: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Graded:
  """Score of a submission, None unless outcome is OK; the rest as of `Run`."""

  score: float | None
  outcome: types.Outcome
  reason: str
  passed: int = 0
  measured: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class StartError(RuntimeError):
  """A task's starter script did not give a score."""


def reason_of(message: str, execution: types.Execution) -> str:
  """Returns one line: the message, and the script's last error or output."""
  last = ''
  if execution.outcome is not types.Outcome.OK:
    last = failures.last_words(execution.errors or execution.output)
  if not message:
    return last or 'no reason is known'
  return f'{message} ({last})' if last else message


def state_id(
  task: str,
  files: Mapping[str, str | bytes | types.Blob],
  script: str,
  step: int,
  last: str = '',
) -> str:
  """Content hash: equal content and position, equal id."""
  given = [(k, _content(v)) for k, v in sorted(files.items())]
  content = json.dumps([task, given, script, step, last], ensure_ascii=False)
  data = content.encode('utf-8', 'surrogatepass')
  return hashlib.sha256(data).hexdigest()[:24]


def _content(value: str | bytes | types.Blob) -> str | tuple:
  if isinstance(value, bytes):
    return hashlib.sha256(value).hexdigest(), len(value)
  return value if isinstance(value, str) else dataclasses.astuple(value)


@dataclasses.dataclass(frozen=True)
class ExecutionOptions:
  """Limits and resources of a runner's executions.

  timeout_s, memory_mb: limits of one execution; the task's own if None.
  threads: CPUs of one execution, and threads of its numerical libraries.
  zygote: use the pool's pre-imported worker.
  infrastructure_retries: how often an execution is repeated after an
    infrastructure error.
  step_timeout_s: seconds for a step as a whole: the editor, the pool's queue
    and the execution, with those retries. What is not done then has the
    outcome `deadline`, which is never a reward. None: no limit.
  """

  timeout_s: float | None = None
  memory_mb: int | None = None
  threads: int = 1
  zygote: bool = True
  infrastructure_retries: int = 1
  step_timeout_s: float | None = None


@dataclasses.dataclass(frozen=True)
class Call:
  """Name, split and deadlines of an execution.

  split: on which its submission is graded.
  job_id: name in the pool; repeated attempts have the same one.
  deadline: by when it has run. Grading, which has a limit of its own, is let
    finish once it has begun.
  most_s: seconds that it may take at most, where its own limit is longer; a
    run that this stops has timed out. The job that measures a program, whose
    seconds are no trajectory's, has the task's limit whatever is left.
  """

  split: str = 'valid'
  job_id: str = 'job'
  deadline: Deadline = NO_DEADLINE
  most_s: float = math.inf


@dataclasses.dataclass(frozen=True)
class Outputs:
  """Files that an execution returns, and how it is graded.

  graded: False asks for no submission; such a run has no score.
  own_work: a copy of the sample submission is refused.
  optional: files that are returned beside the submission, if they are there.
  apart: standard output and error are streams of their own.
  changed_mb: how much of what it changed is returned beside (`types.Job`).
  """

  graded: bool = True
  own_work: bool = False
  optional: tuple[str, ...] = ()
  apart: bool = False
  changed_mb: float = 0.0


class ScriptRunner:
  """Runs scripts and grades what they submit; blocking and thread-safe.

  Args:
    prepared: task name -> PreparedTask (spec, mounts, starter_files).
    pool: has `submit(types.Job) -> Future[types.Execution]`.
    grader: has `grade(task_name, submission_bytes, split)` giving
      `score`, `outcome`, `reason`.
    options: limits and resources of executions.
    store: keeps files that are no text; one in memory where None.
  """

  def __init__(
    self,
    prepared: Mapping[str, Any],
    pool: Any,
    grader: Any,
    options: ExecutionOptions = ExecutionOptions(),
    store: Snapshots | None = None,
  ):
    self.store = store or Snapshots(':memory:')
    self.prepared = dict(prepared)
    self.pool = pool
    self.grader = grader
    self.options = options
    self._fixed_files: dict[str, workspace.Files] = {}
    self._lock = threading.Lock()
    self.executions = 0

  def task(self, name: str) -> Any:
    if name not in self.prepared:
      raise KeyError(
        f'task {name!r} is not prepared; prepared are: '
        f'{", ".join(sorted(self.prepared))}.'
      )
    return self.prepared[name]

  def _limits(self, spec: types.TaskSpec, most_s: float) -> types.Limits:
    own = self.options.timeout_s
    if own is None:
      own = spec.limits.timeout_s
    changes: dict[str, Any] = {'timeout_s': min(own, max(most_s, SHORTEST_S))}
    if self.options.memory_mb is not None:
      changes['memory_mb'] = self.options.memory_mb
    return dataclasses.replace(spec.limits, **changes)

  def step_deadline(self, around: Deadline = NO_DEADLINE) -> Deadline:
    """Returns the deadline of a step that begins now, nested in `around`."""
    if self.options.step_timeout_s is None:
      return around
    return around.nested(self.options.step_timeout_s)

  def run_script(
    self,
    task: str,
    files: Mapping[str, str | bytes | types.Blob],
    script: str,
    call: Call = Call(),
    outputs: Outputs = Outputs(),
  ) -> Run:
    """Executes one script in a fresh workspace and grades its submission."""
    for _ in range(self.options.infrastructure_retries + 1):
      # Under the same id: a caller that cancels the job knows no other.
      run = self._run_once(task, files, script, call, outputs)
      if not run.outcome.is_infrastructure or call.deadline.remaining() <= 0:
        break
    return run

  def _run_once(
    self,
    task: str,
    files: Mapping[str, str | bytes | types.Blob],
    script: str,
    call: Call,
    outputs: Outputs,
  ) -> Run:
    prepared = self.task(task)
    spec = prepared.spec
    gpus = spec.details.gpus if spec.details is not None else 0
    job = types.Job(
      job_id=call.job_id,
      script=script,
      files=self.store.bytes_of(files),
      mounts=prepared.mounts,
      **(task_data.brought_out(spec) if outputs.graded else {}),
      optional=outputs.optional,
      apart=outputs.apart,
      changed_mb=outputs.changed_mb,
      limits=self._limits(spec, call.most_s),
      threads=self.options.threads,
      gpus=gpus,
      interpreter=interpreters.own(spec),
      zygote=self.options.zygote and not gpus,
    )
    with self._lock:
      self.executions += 1
    execution = self._executed(job, call.deadline)
    if execution.outcome is not types.Outcome.OK:
      return Run(execution.outcome, None, execution, execution.message)
    if not outputs.graded:
      return Run(execution.outcome, None, execution, '')
    submission = execution.collected.get(spec.submission)
    if submission is None:
      return Run(
        types.Outcome.NO_SUBMISSION,
        None,
        execution,
        f'the script wrote no {spec.submission}',
      )
    grade = self.grade(task, submission, call, own_work=outputs.own_work)
    score, outcome, reason = grade.score, grade.outcome, grade.reason
    if outcome is types.Outcome.OK and (
      score is None or not math.isfinite(score)
    ):
      score, outcome = None, types.Outcome.INVALID_SUBMISSION
      reason = reason or 'the score is not a finite number'
    return Run(
      outcome, score, execution, reason or '', grade.passed, grade.measured
    )

  def grade(
    self,
    task: str,
    submission: bytes,
    call: Call = Call(),
    *,
    own_work: bool = False,
  ) -> Graded:
    """Grades a submission on `call.split`; a program is run for it.

    call: names the job that runs a program, and says by when it has run.
    own_work: a copy of the sample submission is refused.
    """
    measured: Mapping[str, Any] = {}
    spec = self.task(task).spec
    if programs.is_one(spec):
      found = self._measured(task, submission, call)
      if found.outcome is not types.Outcome.OK:
        return Graded(None, found.outcome, found.reason)
      submission, measured = found.data, found.seconds
    grade = self.grader.grade(task, submission, call.split, own_work=own_work)
    return Graded(
      grade.score, grade.outcome, grade.reason, grade.passed, measured
    )

  def _measured(
    self, task: str, program: bytes, call: Call
  ) -> programs.Measured:
    """Runs a program beside the reference, in a job of its own."""
    prepared = self.task(task)
    if why := programs.too_large(prepared.spec, program):
      return programs.Measured(types.Outcome.INVALID_SUBMISSION, why)
    try:
      job = programs.second_job(prepared, program, call.split, call.job_id)
    except (ValueError, OSError) as error:
      return programs.Measured(types.Outcome.INFRASTRUCTURE, str(error))
    if (memory_mb := self.options.memory_mb) is not None:
      limits = dataclasses.replace(job.limits, memory_mb=memory_mb)
      job = dataclasses.replace(job, limits=limits)
    return programs.read(self._executed(job, call.deadline))

  def _executed(self, job: types.Job, deadline: Deadline) -> types.Execution:
    try:
      return self._submit(job, deadline).result()
    except Exception as error:  # the pool itself failed, not the script
      return types.Execution(
        job_id=job.job_id,
        outcome=types.Outcome.INFRASTRUCTURE,
        tier='',
        message=f'{type(error).__name__}: {error}',
      )

  def _submit(self, job: types.Job, deadline: Deadline):
    if deadline == NO_DEADLINE:
      return self.pool.submit(job)
    return self.pool.submit(job, deadline_s=deadline.remaining())

  def initial_state(
    self, task: str, *, ideas: tuple[str, ...] = (), job_id: str | None = None
  ) -> types.State:
    """Runs the starter script: m_0 on the validation split.

    Raises StartError where it gives no score.
    """
    files, script = self.starter(task), 'train.py'
    if script not in files:
      raise StartError(f'task {task}: the starter has no {script}.')
    prepared = self.task(task)
    laid_out = workspace.laid_out(
      files, prepared.mounts, prepared.spec.submission
    )
    run = self.run_script(
      task, laid_out, script, Call(job_id=job_id or f'start-{task}')
    )
    score = run.score
    if score is None:
      score = self._baseline(task, run)
    return types.State(
      state_id=state_id(task, files, script, 0),
      task=task,
      files=files,
      score=score,
      start_score=score,
      last_outcome=run.outcome.value,
      ideas=tuple(ideas),
      script=script,
    )

  def starter(
    self, task: str, names: Collection[str] | None = None
  ) -> dict[str, str | types.Blob]:
    """A state's files at the start; those of `names` alone, if given."""
    files: dict[str, str | types.Blob] = {}
    for name, given in self.task(task).starter_files.items():
      if names is not None and name not in names:
        continue
      if isinstance(given, str):
        files[name] = given
        continue
      blob = self.store.put_bytes(given.read_bytes())
      if blob is None:
        raise StartError(
          f'task {task}: env/{name} ({given.stat().st_size} bytes) is more than '
          'the store of states has room for; put it into a folder of env/, '
          'which is shown where it is.'
        )
      files[name] = blob
    return files

  def fixed(self, task: str) -> workspace.Files:
    """The read-only files of a task's starter that a run gets; found once."""
    if task not in self._fixed_files:
      prepared = self.task(task)
      spec = prepared.spec
      names = workspace.laid_out(
        prepared.starter_files, prepared.mounts, spec.submission
      )
      self._fixed_files[task] = self.starter(
        task, [name for name in names if workspace.is_read_only(name, spec)]
      )
    return self._fixed_files[task]

  def _baseline(self, task: str, run: Run) -> float:
    """Returns the baseline for a starter without a score (002, appendix A)."""
    spec = self.task(task).spec
    why = f'{run.outcome.value}: {reason_of(run.message, run.execution)}'
    if spec.layout == 'jaxagent':
      raise StartError(
        f'task {task}: the starter script gave no score: {why}. Run '
        f'`python -m jaxagent.tasks check {task}`.'
      )
    if spec.m_init is None or run.outcome.is_infrastructure:
      raise StartError(
        f'task {task}: the starter script gave no score: {why}. Write what it '
        f'is compared with as m_init: NUMBER into {spec.root}.yaml.'
      )
    return spec.m_init
