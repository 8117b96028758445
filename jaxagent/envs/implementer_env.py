"""Steps of an Implementer (paper 001): whole programs, run contained and graded.

A step runs in a fresh process; what connects it with the steps before is the files of
the workspace. A submission counts where this very step wrote it: the one before is
never laid out. It is graded on the validation rows, outside of the sandbox.
"""

from __future__ import annotations

import dataclasses
import math
import threading
from typing import Any

from jaxagent import types
from jaxagent.clock import NO_DEADLINE, Deadline
from jaxagent.envs import carried, parser, workspace
from jaxagent.envs.agents.implementer import Turn
from jaxagent.envs.execution import Call, Outputs, Run, ScriptRunner
from jaxagent.envs.grading import WHOLE, has_whole
from jaxagent.envs.implementer_state import (
  PROGRAMS,
  Effect,
  ImplementerState,
  PastTurn,
  Program,
)
from jaxagent.envs.specs import label_sources
from jaxagent.envs.step_env import FLOOR_S, truncate
from jaxagent.envs.workspace import ActionFailed

SCRIPT = 'program.py'  # of a step in Python; stays in the workspace
MAX_OUTPUT_CHARS = 6000  # of a run, in an observation
_COMMANDS = f'{workspace.COMMANDS}/step.sh'
_SHELL = f'{workspace.COMMANDS}/step.py'
_SHELL_SCRIPT = f"""\
import os
os.execvp('bash', ['bash', {_COMMANDS!r}])
"""


class ImplementerEnvironment:
  """Carries out what an Implementer writes; blocking and thread-safe.

  Args:
    runner: runs and grades scripts.
    carry_mb: what a run may leave for the next step, in new and changed files.
    output_chars: of a run's output that the Implementer is shown, head and tail.
  """

  def __init__(
    self,
    runner: ScriptRunner,
    *,
    carry_mb: float = 16.0,
    output_chars: int = MAX_OUTPUT_CHARS,
  ):
    self.runner = runner
    self._carry_mb, self._output_chars = carry_mb, output_chars
    self._lock = threading.Lock()

  def initial(
    self, task: str, start_score: float | None = None
  ) -> ImplementerState:
    """Returns the state of a run that begins: the starter's files, no step.

    start_score: of the starter on the validation rows, where it is known.
    """
    with self._lock:  # its files are put into the store once
      files = self.runner.starter(task)
    spec = self.runner.task(task).spec
    return ImplementerState(task, spec.higher_is_better, files, start_score)

  def execute(
    self,
    state: ImplementerState,
    turn: Turn,
    text: str,
    *,
    job_id: str = 'job',
    deadline: Deadline = NO_DEADLINE,
    most_s: float = math.inf,
    private: bool = False,
  ) -> types.Executed:
    """Runs the program of a turn; any program ends in an outcome.

    turn: of a kind in PROGRAMS. text: the message that it was read from.
    deadline: by which the run ends; `most_s`: seconds that it may take at most, where
      the task's own limit is longer. A run that `most_s` stops has timed out.
    private: whether a valid submission is graded on the private rows, too; that score
      is `kept['private']`, that on the whole hidden test, where there is one,
      `kept['whole']`, and neither is part of the state.

    Returns an execution whose `state` is the JSON form of an `Effect`; None where an
    infrastructure error left everything as it was.

    Raises ValueError for a turn that holds no program.
    """
    if turn.kind not in PROGRAMS:
      raise ValueError(
        f'a turn of kind {turn.kind!r} runs nothing; give one of '
        f'{", ".join(PROGRAMS)}.'
      )
    program = Program(turn.kind, turn.code)
    try:
      kept, laid_out, script = self._files(state, program)
    except ActionFailed as error:
      step = PastTurn(
        turn.kind,
        text,
        f'This program cannot be run: {error}',
        types.Outcome.INVALID_ACTION,
      )
      return _executed(Effect(step, program=program), FLOOR_S, str(error))
    run = self.runner.run_script(
      state.task,
      laid_out,
      script,
      Call(
        job_id=job_id,
        deadline=self.runner.step_deadline(deadline),
        most_s=most_s,
      ),
      Outputs(own_work=True, changed_mb=self._carry_mb),
    )
    if run.outcome.is_infrastructure:
      return types.Executed(
        run.outcome, max(run.execution.exec_s, FLOOR_S), message=run.message
      )
    return self._carried_out(state, program, text, run, kept, private)

  def _files(
    self, state: ImplementerState, program: Program
  ) -> tuple[workspace.Files, dict[str, Any], str]:
    """Returns (files of the workspace, files of the run, script to run).

    Raises ActionFailed where no sandbox could hold the program.
    """
    task = self.runner.task(state.task)
    files = dict(state.files)
    if program.kind == 'ipython':
      path = workspace.writable(files, task.spec, SCRIPT)
      files = workspace.with_file(files, path, program.code)
    elif not parser.is_text(program.code):
      raise ActionFailed('it holds a NUL or a lone surrogate.')
    elif len(program.code) > workspace.MAX_FILE_BYTES:
      raise ActionFailed(f'it has over {workspace.MAX_FILE_BYTES} characters.')
    given = workspace.laid_out(files, task.mounts, task.spec.submission)
    laid_out = workspace.restored(
      given, task.spec, self.runner.fixed(state.task)
    )
    if program.kind == 'ipython':
      return files, laid_out, SCRIPT
    more = {_SHELL: _SHELL_SCRIPT, _COMMANDS: program.code}
    return files, {**laid_out, **more}, _SHELL

  def _carried_out(
    self,
    state: ImplementerState,
    program: Program,
    text: str,
    run: Run,
    files: workspace.Files,
    private: bool,
  ) -> types.Executed:
    task = self.runner.task(state.task)
    lost: list[str] = []
    if self._carry_mb > 0:
      files, lost = carried.carry(
        files, run.execution, task.spec, self.runner.store, task.mounts
      )
    exec_s = max(run.execution.exec_s, FLOOR_S)
    observation = self._observation(state, run) + carried.told(lost)
    step = PastTurn(
      program.kind,
      text,
      observation,
      run.outcome,
      run.score,
      exec_s,
      run.measured,
    )
    execution = run.execution
    effect = Effect(
      step,
      files,
      program,
      tier=execution.tier,
      untrusted=label_sources.untrusted(task.spec, execution.tier),
      queue_s=execution.queue_s,
      startup_s=execution.startup_s,
      cpu_s=execution.cpu_s,
      recorded=execution.recorded,
    )
    told = _executed(effect, exec_s, run.message)
    if not private or run.score is None:
      return told
    name = task.spec.submission
    data = run.execution.collected[name]
    call = Call('private', job_id=run.execution.job_id)
    grade = self.runner.grade(state.task, data, call, own_work=True)
    if grade.outcome.is_infrastructure:
      return types.Executed(grade.outcome, exec_s, message=grade.reason)
    found = {'private': grade.score}
    if has_whole(task.spec):
      whole = self.runner.grade(state.task, data, Call(WHOLE))
      found['whole'] = whole.score
    return dataclasses.replace(told, kept=found)

  def _observation(self, state: ImplementerState, run: Run) -> str:
    """Returns what the Implementer is shown: status, score or reason, output."""
    spec = self.runner.task(state.task).spec
    lines = [f'Status: {run.outcome.value}']
    if run.score is not None:
      best = state.best.score if state.best else None
      known = 'the first one' if best is None else f'best before {best:.6g}'
      lines.append(
        f'{spec.submission} is valid. {spec.metric} on the validation rows: '
        f'{run.score:.6g} ({known})'
      )
    elif run.outcome is types.Outcome.NO_SUBMISSION:
      lines.append(f'This step wrote no {spec.submission}.')
    elif run.message:
      lines.append(run.message)
    output = parser.plain(run.execution.output)
    if output.strip():
      lines.append(truncate(output, self._output_chars))
    return '\n'.join(lines)


def _executed(effect: Effect, exec_s: float, message: str) -> types.Executed:
  return types.Executed(
    effect.step.outcome, exec_s, state=effect.to_json(), message=message
  )
