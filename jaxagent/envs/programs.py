"""Programs as submissions: a second job measures what the first handed over.

A task of kind `speed` hands over a Python file. It is run in a fresh sandbox, beside
the task's reference solution, on inputs that the first job never saw, five for each
half of the hidden rounds (`_stopwatch`). What is graded are the arrays that it wrote,
and the seconds that were measured from outside (`graders.speed`). Nothing that the
second job prints is shown: a program could tell of its inputs there.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxagent.envs import _stopwatch
from jaxagent.envs.specs import interpreters, task_data
from jaxagent.envs.specs.task_yaml2 import REFERENCE
from jaxagent.envs.tasks import PreparedTask
from jaxagent.types import Execution, Job, Outcome, TaskSpec

# Results of the second job.
MEASURED, ARRAYS = 'measured.json', 'measured.npz'
_SCRIPT = 'stopwatch.py'
_MOST_TOLD = 65_536  # bytes of MEASURED
_RUN_SHARE = 0.1  # of the job's time limit, in CPU time of one run
_HEAD_BYTES = 4096  # of an output beyond its numbers


@dataclasses.dataclass(frozen=True)
class Measured:
  """Result of the second job.

  outcome: OK, or what the program or the sandbox did.
  reason: one line; '' of OK.
  data: arrays for the grader.
  seconds: {program_s, reference_s}, a number a round.
  """

  outcome: Outcome
  reason: str = ''
  data: bytes = b''
  seconds: Mapping[str, list[float]] = dataclasses.field(default_factory=dict)


def is_one(spec: TaskSpec) -> bool:
  """Whether what a task hands over is a program."""
  return spec.details is not None and spec.details.is_program


@functools.cache
def _script() -> str:
  return pathlib.Path(_stopwatch.__file__).read_text('utf-8')


@functools.lru_cache(maxsize=8)
def _inputs(
  folder: pathlib.Path, split: str
) -> tuple[tuple[int, ...], tuple[bytes, ...], int]:
  """(rounds of a half, their inputs as `.npz` files, bytes of the largest output)."""
  with np.load(folder / task_data.INPUTS) as given:
    inputs = {name: given[name] for name in given.files}
  with np.load(folder / 'answers.npz') as answers:
    halves, output = answers['split'], answers['output']
  rounds = tuple(int(k) for k in np.flatnonzero(halves == split))
  if not rounds:
    raise ValueError(f'{folder}: there is no round of split {split!r}.')
  files = tuple(
    task_data.npz({name: values[k] for name, values in inputs.items()})
    for k in rounds
  )
  return rounds, files, output[0].size * max(8, output.itemsize) + _HEAD_BYTES


def second_job(
  prepared: PreparedTask,
  program: bytes,
  split: str,
  job_id: str,
) -> Job:
  """Makes the job that measures a program on the inputs of one half.

  Raises: ValueError where the half has no round; OSError where the task's data or its
  reference solution cannot be read.
  """
  spec = prepared.spec
  rounds, inputs, max_bytes = _inputs(prepared.private_dir, split)
  names = [f'input_{k}.npz' for k in rounds]
  plan = {
    'program': 'given.py',
    'reference': 'reference.py',
    'inputs': names,
    'rounds': rounds,
    'cpu_s': spec.limits.timeout_s * _RUN_SHARE,
    'max_bytes': max_bytes,
    'timeout_s': spec.limits.timeout_s,
  }
  return Job(
    job_id=job_id,
    script=_SCRIPT,
    files={
      _SCRIPT: _script(),
      'stopwatch.json': json.dumps(plan),
      'given.py': program,
      'reference.py': (spec.root / REFERENCE).read_bytes(),
      **dict(zip(names, inputs, strict=True)),
    },
    collect=(MEASURED,),
    optional=(ARRAYS,),
    limits=spec.limits,
    interpreter=interpreters.own(spec),
  )


def too_large(spec: TaskSpec, program: bytes) -> str:
  """Returns why a program is too large to be run; '' where it is not."""
  most = int(task_data.details_of(spec).submission_mb * 1e6)
  if len(program) <= most:
    return ''
  return f'{spec.submission} has {len(program)} bytes; at most {most}.'


def read(execution: Execution) -> Measured:
  """Reads what the second job gave; any bytes at all end in an outcome.

  Failures of the sandbox, of a reference before the program ran, and of a machine
  without a free CPU are infrastructure errors. All else is the program's doing.
  """
  outcome = execution.outcome
  if outcome.is_infrastructure:
    return Measured(outcome, execution.message or 'the second job failed')
  if execution.exit_code == _stopwatch.NOT_MEASURED:
    return Measured(
      Outcome.INFRASTRUCTURE,
      f'the program could not be measured: {execution.output[-200:]}',
    )
  if outcome in (Outcome.SCRIPT_ERROR, Outcome.NO_SUBMISSION):
    return Measured(
      Outcome.INVALID_SUBMISSION, 'the program broke off its own measurement.'
    )
  if outcome is not Outcome.OK:
    return Measured(
      outcome, f'while the program was measured: {execution.message}'
    )
  return _told(execution.collected)


def _told(collected: Mapping[str, bytes]) -> Measured:
  """Reads the files of a job that ended well."""
  try:
    text = collected[MEASURED]
    said: Any = json.loads(text[: _MOST_TOLD + 1])
    if reason := str(said['reason']):
      return Measured(Outcome.INVALID_SUBMISSION, reason[:500])
    seconds = {
      name: [float(s) for s in said[name]]
      for name in ('program_s', 'reference_s')
    }
    return Measured(Outcome.OK, '', collected[ARRAYS], seconds)
  except (ValueError, TypeError, LookupError, OverflowError, RecursionError):
    return Measured(
      Outcome.INVALID_SUBMISSION, 'the program broke off its own measurement.'
    )
