"""Starts of trajectories: each task's starter script, run and scored once."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jaxagent import types
from jaxagent.data import records as record_data
from jaxagent.envs import parser, programs, workspace
from jaxagent.envs.execution import Call, StartError, reason_of, state_id
from jaxagent.envs.grading import WHOLE, has_whole
from jaxagent.errors import UserError
from jaxagent.metrics import ProgressBar
from jaxagent.runtime import kept

if TYPE_CHECKING:
  from jaxagent.envs.execution import Graded, Run
  from jaxagent.envs.grading import GradeResult
  from jaxagent.envs.step_env import StepResult
  from jaxagent.runtime.context import RunContext


class GradingError(RuntimeError):
  """The grader failed, so that a score is not known."""


@dataclasses.dataclass(frozen=True)
class Start:
  """A task's starter with its private score.

  private: what a policy that changes nothing is given, and m_init of the
    scale that it is measured on.
  whole: its score on the whole hidden test (`whole_score`).
  """

  state: types.State
  private: float
  whole: float | None = None

  @property
  def valid(self) -> float:
    """Returns the score on the validation rows; ValueError where there is none."""
    if self.state.score is None:
      raise ValueError(f'task {self.state.task}: its starter has no score.')
    return self.state.score


def make_starts(context: RunContext) -> dict[str, Start]:
  """Runs and grades the starter of every task; each is kept on disk as it ends."""
  path = context.work / 'eval' / 'starts.json'
  names = context.heldin + context.heldout
  starts = kept.kept_json(path, lambda value: _starts_from(value, names)) or {}
  if missing := [task for task in names if task not in starts]:
    with ProgressBar('starters', len(missing)) as progress:
      for task in missing:
        starts[task] = _make_start(context, task)
        write_json(path, {t: _to_json(start) for t, start in starts.items()})
        progress.update()
        context.stop.check('finished stages are saved')
  return {task: starts[task] for task in names}


def _make_start(context: RunContext, task: str) -> Start:
  """Runs and grades the starter of a task."""
  try:
    initial = context.env.initial_state(task)
  except StartError as error:
    raise UserError(str(error)) from error
  return Start(initial, *_starter_scores(context, initial))


def _to_json(start: Start) -> dict[str, Any]:
  return {
    'state': record_data.state_to_json(start.state),
    'private': start.private,
    'whole': start.whole,
  }


def private_score(
  context: RunContext, task: str, result: StepResult | Run
) -> float | None:
  """Returns the score of an execution's submission on the private rows.

  None where nothing was submitted or it is not valid. Raises GradingError
  where the fault is the grader's.
  """
  execution = result.execution
  name = context.spec(task).submission
  if execution is None or name not in execution.collected:
    return None
  data = execution.collected[name]
  grade: Graded | GradeResult
  if programs.is_one(context.spec(task)):  # runs it on the private inputs
    call = Call(split='private', job_id=execution.job_id)
    grade = context.env.grade(task, data, call)
  else:
    grade = context.grader.grade(task, data, split='private')
  if grade.outcome.is_infrastructure:
    raise GradingError(
      f'{grade.outcome.value}: no private score: {grade.reason}'
    )
  return grade.score


def whole_score(
  context: RunContext, task: str, result: StepResult | Run
) -> float | None:
  """Returns the score of an execution's submission on the whole hidden test.

  It is the number of the task's source, of both halves together, to be read beside
  the private score and paid for by no reward. None where there is no such number.
  """
  execution, spec = result.execution, context.spec(task)
  if execution is None or spec.submission not in execution.collected:
    return None
  if not has_whole(spec):
    return None
  data = execution.collected[spec.submission]
  return context.grader.grade(task, data, split=WHOLE).score


def both_scores(
  context: RunContext, task: str, result: StepResult | Run
) -> dict[str, float | None]:
  """Returns `private` and, where there is one, `whole`, as a stored step has them.

  {} where the submission has no private score. Raises as `private_score`.
  """
  private = private_score(context, task, result)
  if private is None:
    return {}
  whole = whole_score(context, task, result)
  return {'private': private, **({} if whole is None else {'whole': whole})}


def _starter_scores(
  context: RunContext, initial: types.State
) -> tuple[float, float | None]:
  """Returns the starter's private score, and that on the whole hidden test."""
  task = initial.task
  if initial.last_outcome != types.Outcome.OK.value:
    assert (
      initial.score is not None
    )  # what one without a score is compared with
    return initial.score, None
  response = parser.Response(
    {}, 'Execute Script', {'script_name': initial.script}
  )
  result = context.env.act(
    initial,
    response,
    split='valid',
    job_id=f'starter-{task}',
  )
  try:
    score = private_score(context, task, result)
  except GradingError as error:
    raise UserError(f'task {task}: the starter script: {error}') from error
  if score is None:
    why = result.message or result.observation
    if result.execution is not None:
      why = reason_of(result.message, result.execution)
    raise UserError(
      f'task {task}: the starter script was not graded '
      f'({result.outcome.value}: {why}); '
      f'run `python -m jaxagent.tasks check {task}`.'
    )
  return score, whole_score(context, task, result)


def _starts_from(value: Any, names: Sequence[str]) -> dict[str, Start]:
  """Reads the starts of the tasks of `names` that JSON has; raises on damage."""
  return {
    task: Start(
      record_data.state_from_json(value[task]['state']),
      float(value[task]['private']),
      value[task].get('whole'),
    )
    for task in names
    if task in value
  }


def fresh_state(state: types.State, start_score: float | None) -> types.State:
  """Returns the state as the start of a trajectory: step 0, no history."""
  files = workspace.visible(state.files)  # nothing to undo
  return dataclasses.replace(
    state,
    state_id=state_id(state.task, files, state.script, 0),
    files=files,
    start_score=start_score,
    last_outcome='ok',
    history=(),
    ideas=(),
    step=0,
  )


def with_ideas(state: types.State, ideas: Sequence[str]) -> types.State:
  """Returns the state with ideas in its problem, for the model prompted with it.

  Paper 000 writes them into research_problem.txt (appendix B.2), so that the
  trained policy is shown them as well. A compact prompt has no room for them.
  """
  name = '\x1f'.join((state.state_id, *ideas)).encode('utf-8', 'surrogatepass')
  return dataclasses.replace(
    state,
    ideas=tuple(ideas),
    state_id=hashlib.sha256(name).hexdigest()[:24],
  )


def write_json(path: pathlib.Path, value: Any) -> None:
  path.parent.mkdir(parents=True, exist_ok=True)
  temporary = path.with_suffix('.tmp')
  temporary.write_text(json.dumps(value))
  os.replace(temporary, path)
