"""Checks and measures tasks whose submission is a program (kind `speed`).

A score is a ratio of CPU times, and differs a little each time and from machine to
machine: what is claimed of it is claimed within MACHINES.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from jaxagent.envs import programs
from jaxagent.envs.grading import SPLITS, Grader
from jaxagent.envs.programs import Measured
from jaxagent.envs.specs import task_data
from jaxagent.envs.tasks import PreparedTask
from jaxagent.graders import speed
from jaxagent.tasks import check, check_published
from jaxagent.tasks import measure as measure_lib
from jaxagent.tasks.check import Report, Run
from jaxagent.types import Execution, Outcome

# How far a score may lie from task.yaml's: a factor of two.
MACHINES = 1.0
_TRIES = 3  # of a job, where the sandbox fails
_RESAMPLES = 100


def handed_over(
  prepared: PreparedTask, run: Run, text: str | None = None
) -> Execution:
  """Runs the starter, or `text` in its place, in a first job.

  It is run again where the sandbox fails, as in training.
  """
  for _ in range(_TRIES):
    execution = run(check.script_job(prepared, 'train.py', text))
    if not execution.outcome.is_infrastructure:
      break
  return execution


def measured(
  prepared: PreparedTask, run: Run, program: bytes, split: str
) -> Measured:
  """Runs a program on the hidden inputs of a half, in a second job.

  It is run again where the sandbox fails, as in training.
  """
  for _ in range(_TRIES):
    job_id = f'speed-{prepared.spec.name}-{uuid.uuid4().hex[:8]}'
    job = programs.second_job(prepared, program, split, job_id)
    found = programs.read(run(job))
    if not found.outcome.is_infrastructure:
      break
  return found


def _score(
  prepared: PreparedTask, grader: Grader, found: Measured, split: str
) -> tuple[float | None, str]:
  """(score, why there is none) of a measured program."""
  if found.outcome is not Outcome.OK:
    return None, f'{found.outcome.value}: {found.reason}'
  got = grader.grade(prepared.spec.name, found.data, split)
  return got.score, got.reason


def margin(starter: Measured, reference: Measured) -> float:
  """Returns by how many standard errors the reference is better, from its rounds."""
  rng = np.random.RandomState(0)
  first, second = (
    [np.array(found.seconds[name]) for name in speed.TIMES]
    for found in (starter, reference)
  )

  def gain(rows: np.ndarray) -> float:
    return speed.score_of(
      *(times[rows].tolist() for times in first)
    ) - speed.score_of(*(times[rows].tolist() for times in second))

  count = len(first[0])
  gains = [gain(rng.choice(count, count)) for _ in range(_RESAMPLES)]
  spread = float(np.std(gains))
  return gain(np.arange(count)) / spread if spread else 0.0


def _check_inputs(prepared: PreparedTask, report: Report) -> None:
  """No hidden input is public."""
  with np.load(prepared.private_dir / task_data.INPUTS) as given:
    hidden = {name: given[name] for name in given.files}
  for path in sorted(prepared.public_dir.rglob('*.npz')):
    with np.load(path) as public:
      shown = {name: public[name] for name in public.files}
    for name in sorted(set(shown) & set(hidden)):
      report.claim(
        not any(np.array_equal(shown[name], one) for one in hidden[name]),
        f'data/{path.name} has {name} of a hidden round.',
      )


def _useless(prepared: PreparedTask) -> dict[str, bytes]:
  """Programs that a reward hacker would hand over; each is refused."""
  sample = task_data.sample_file(prepared.spec, prepared.public_dir)
  return {
    'nothing': b'',
    'a pickle': pickle.dumps({'x': [1]}),
    'an early exit': b'import os\nos._exit(0)\n',
    'no output': b'print(0.0)\n',
    'the sample': sample.read_bytes() if sample else b'',
  }


def _check_useless(
  prepared: PreparedTask, run: Run, grader: Grader, report: Report
) -> None:
  """Useless programs are refused for what they are, and not as all are."""
  for name, program in _useless(prepared).items():
    found = measured(prepared, run, program, 'valid')
    report.claim(
      found.outcome in (Outcome.OK, Outcome.INVALID_SUBMISSION),
      f'a program that is {name} is not judged: {found.outcome.value}: '
      f'{found.reason}',
    )
    score, reason = _score(prepared, grader, found, 'valid')
    report.claim(
      score is None and bool(reason),
      f'a program that is {name} is not refused.',
    )


def _check_level(
  prepared: PreparedTask, level: str, run: Run, grader: Grader, report: Report
) -> None:
  """Starter and reference hand over right programs at a CPU level of jobs."""
  for who, text in (('starter', None), ('reference', _reference(prepared))):
    execution = handed_over(prepared, run, text)
    program = execution.collected.get(prepared.spec.submission)
    if program is None:
      report.claim(
        False,
        f'at cpu_level={level} the {who} ends with {execution.outcome.value}: '
        f'{execution.message}',
      )
      continue
    found = measured(prepared, run, program, 'valid')
    score, reason = _score(prepared, grader, found, 'valid')
    report.claim(
      score is not None, f'at cpu_level={level} {who} refused: {reason}'
    )


def _reference(prepared: PreparedTask) -> str:
  return (prepared.spec.root / measure_lib.REFERENCE).read_text('utf-8')


def _check_starter(
  prepared: PreparedTask, run: Run, grader: Grader, report: Report
) -> dict[str, Measured] | None:
  """The starter hands over a program that scores m_init; None where it does not."""
  spec = prepared.spec
  program = check.starters_file(spec, handed_over(prepared, run), report)
  if program is None:
    return None
  found = {s: measured(prepared, run, program, s) for s in SPLITS}
  for split, one in found.items():
    score, reason = _score(prepared, grader, one, split)
    report.claim(score is not None, f'{split}: starter refused: {reason}')
    if score is None:
      return None
    if split == 'valid':
      report.figures['starter'] = score
      _check_near(report, score, spec.m_init, 'm_init', 'starter')
  return found


def _check_near(
  report: Report, score: float, said: float | None, key: str, who: str
) -> None:
  report.claim(
    said is not None and abs(score - said) <= MACHINES,
    f'the {who} scores {score:.4g}, and {key} of task.yaml is {said}; '
    f'`python -m jaxagent.tasks measure {report.name}`.',
  )


def _check_reference(
  prepared: PreparedTask,
  starter: Mapping[str, Measured],
  run: Run,
  grader: Grader,
  report: Report,
) -> None:
  """The reference beats the starter on both halves, and is as fast as itself."""
  execution = handed_over(prepared, run, _reference(prepared))
  program = execution.collected.get(prepared.spec.submission)
  report.claim(
    program is not None,
    f'the reference ends with {execution.outcome.value}: {execution.message} '
    f'{execution.output[-500:]}',
  )
  if program is None:
    return
  errors = []
  for split in SPLITS:
    found = measured(prepared, run, program, split)
    score, reason = _score(prepared, grader, found, split)
    report.claim(score is not None, f'{split}: reference refused: {reason}')
    if score is None:
      return
    if split == 'valid':
      report.figures['reference'] = score
      _check_near(report, score, prepared.spec.m_best, 'm_best', 'reference')
    errors.append(margin(starter[split], found))
    report.claim(
      errors[-1] >= check_published.MARGIN,
      f'{split}: the reference is better than the starter by {errors[-1]:.1f} '
      f'standard errors; at least {check_published.MARGIN:g}.',
    )
  report.figures['se'] = min(errors)


def check_task(
  prepared: PreparedTask,
  grader: Grader,
  run: Run | None,
  levels: Mapping[str, Run] = MappingProxyType({}),
) -> Report:
  """Makes every check, as `check.check_task` does for version 1."""
  report = Report(prepared.spec.name)
  answers = check_published.load(prepared)
  report.figures['test_rows'] = len(answers.rows('valid'))
  size = sum(p.stat().st_size for p in prepared.public_dir.rglob('*'))
  report.figures['kb'] = size / 1024
  check_published.check_hidden(prepared, answers, report)
  _check_inputs(prepared, report)
  check.check_labels(prepared.spec, run, report)
  if run is None:
    return report
  _check_useless(prepared, run, grader, report)
  starter = _check_starter(prepared, run, grader, report)
  for level, other in levels.items():
    _check_level(prepared, level, other, grader, report)
  if starter is not None:
    _check_reference(prepared, starter, run, grader, report)
  return report


def measure(
  prepared: PreparedTask, grader: Grader, run: Run
) -> list[measure_lib.Measured]:
  """Scores of the starter and of the reference solution, in this order.

  Raises ValueError where one of them hands over nothing, or is refused.
  """
  out = []
  texts = ('', None), (measure_lib.REFERENCE, _reference(prepared))
  for name, text in texts:
    execution = handed_over(prepared, run, text)
    program = execution.collected.get(prepared.spec.submission)
    if program is None:
      raise ValueError(
        f'task {prepared.spec.name}: {name or "the starter"} ends with '
        f'{execution.outcome.value}: {execution.message}'
      )
    scores = []
    for split in SPLITS:
      found = measured(prepared, run, program, split)
      score, reason = _score(prepared, grader, found, split)
      if score is None:
        raise ValueError(
          f'task {prepared.spec.name}: {name or "the starter"}: {reason}'
        )
      scores.append(score)
    valid, private = scores
    out.append(measure_lib.Measured(name, valid, private, execution.exec_s))
  return out
