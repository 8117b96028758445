"""A pool and a grader for tests of the environment: nothing is executed.

`FakePool` stands for the sandbox: it never runs a script, it looks up what
the script's text says should come of it. `FakeGrader` stands for the grading
process: it reads the score out of the submission.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import pathlib
import re
from typing import Any

from jaxagent import types


def task_spec(**changes) -> types.TaskSpec:
  """A small classification task 't', scored from 0.5 to 1."""
  values: dict[str, Any] = dict(
    name='t',
    root=pathlib.Path('.'),
    modality='tabular',
    kind='classification',
    metric='accuracy',
    higher_is_better=True,
    m_init=0.5,
    m_best=1.0,
    m_best_source='',
    m_best_private=1.0,
    split='heldin',
    limits=types.Limits(),
  )
  return types.TaskSpec(**(values | changes))


class FakePool:
  """Answers a job by a line `# fake: <outcome> <seconds> <score>` in it.

  The score stands for what training would give: it becomes the submission.
  Without a score nothing is collected. `jobs` keeps what was submitted,
  `deadlines` the seconds that each was given from outside (None: no limit).
  """

  def __init__(self):
    self.jobs: list[types.Job] = []
    self.deadlines: list[float | None] = []

  def submit(
    self, job: types.Job, *, deadline_s: float | None = None
  ) -> concurrent.futures.Future:
    self.jobs.append(job)
    self.deadlines.append(deadline_s)
    future: concurrent.futures.Future = concurrent.futures.Future()
    try:
      future.set_result(self._execution(job))
    except Exception as error:  # noqa: BLE001 - handed on like a pool does
      future.set_exception(error)
    return future

  def _execution(self, job: types.Job) -> types.Execution:
    text = job.files[job.script]
    assert isinstance(text, str)
    match = re.search(r'# fake: (\w+) (\S+)(?: (\S+))?', text)
    if match is None:
      raise RuntimeError('the fake pool needs a line `# fake: ...`')
    outcome, seconds, score = match.groups()
    collected = {}
    if score is not None:
      collected = {name: score.encode() for name in job.collect}
    return types.Execution(
      job_id=job.job_id,
      outcome=types.Outcome(outcome),
      tier='fake',
      exec_s=float(seconds),
      output=f'ran {job.script}',
      collected=collected,
    )


@dataclasses.dataclass(frozen=True)
class FakeGrade:
  score: float | None
  outcome: types.Outcome
  reason: str
  passed: int = 0


class FakeGrader:
  """The submission is the score; no number is an invalid submission."""

  def __init__(self):
    self.splits: list[str] = []

  def grade(
    self, task: str, submission: bytes, split: str, *, own_work: bool = False
  ) -> FakeGrade:
    self.splits.append(split)
    try:
      return FakeGrade(float(submission), types.Outcome.OK, '')
    except ValueError:
      return FakeGrade(
        None, types.Outcome.INVALID_SUBMISSION, 'the score is no number'
      )


@dataclasses.dataclass(frozen=True)
class FakePrepared:
  """Stands for a prepared task."""

  spec: types.TaskSpec
  public_dir: pathlib.Path
  starter_files: dict[str, str]

  @property
  def mounts(self) -> dict[str, pathlib.Path]:
    return {'data': self.public_dir}


class ReplaceEditor:
  """Stands for an editor: `old -> new` replaces text, anything else fails."""

  name = 'replace_editor'
  is_stand_in = True

  def __init__(self, refused: type[Exception], down: type[Exception]):
    self._refused, self._down = refused, down

  def edit(self, script: str, instruction: str) -> str:
    if instruction == 'down':
      raise self._down('no answer')
    old, arrow, new = instruction.partition(' -> ')
    if not arrow or old not in script:
      raise self._refused('cannot do that')
    return script.replace(old, new)
