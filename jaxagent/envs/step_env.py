"""One step of an agent: parse, edit, execute, grade, next state.

States are values: a step reads a State and returns the next one, so any
state can be restarted or forked, and nothing is shared between threads. An
edit is followed by the execution of the edited script and by grading, which
gives m_{t+1} (paper 000, section 4.3).
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from typing import Any

from jaxagent import types
from jaxagent.clock import NO_DEADLINE, Deadline
from jaxagent.envs import interfaces, parser, workspace
from jaxagent.envs.editing import AskedEditor
from jaxagent.envs.execution import Run, ScriptRunner, state_id
from jaxagent.envs.workspace import BACKUP, ActionFailed

# Duration of an action that runs nothing; durations must be > 0.
FLOOR_S = 1e-3
HISTORY = 3  # steps kept in a state, as in MLAgentBench's research agent
MAX_OBSERVATION_CHARS = 6000
MAX_INSPECT_LINES = 100
# As valid as any edit (MLAgentBench's editor writes such a file, too): what
# is executed scores what it scored.
NO_CHANGE = 'Nothing changed: the file was so already.'


@dataclasses.dataclass(frozen=True)
class StepResult:
  """What one response did.

  outcome: typed; OK for a valid action without an execution, too.
  valid_action: the response parsed and named a known action with its
    arguments (a_t in A_valid of equation 6).
  state: where the next step starts; None after Final Answer.
  score: m_{t+1}, None where nothing was graded.
  score_before: m_t.
  exec_s: seconds of the execution clock; FLOOR_S where nothing ran.
  diff: unified diff of an edit.
  message: one line for people.
  """

  outcome: types.Outcome
  action: str
  args: Mapping[str, str]
  is_edit: bool
  valid_action: bool
  state: types.State | None
  score: float | None
  score_before: float | None
  observation: str
  execution: types.Execution | None = None
  exec_s: float = FLOOR_S
  diff: str = ''
  message: str = ''
  entries: Mapping[str, str] = dataclasses.field(default_factory=dict)

  @property
  def done(self) -> bool:
    return self.state is None


def truncate(text: str, limit: int = MAX_OBSERVATION_CHARS) -> str:
  """Deterministic head and tail, saying how much was left out."""
  if len(text) <= limit:
    return text
  half = limit // 2
  left = len(text) - 2 * half
  return f'{text[:half]}\n[... {left} characters left out ...]\n{text[-half:]}'


class StepEnvironment(ScriptRunner):
  """Step function over States; blocking and thread-safe.

  Args:
    prepared: task name -> PreparedTask (spec, public_dir, starter_files).
    pool: has `submit(types.Job) -> Future[types.Execution]`.
    editor: interfaces.Editor.
    grader: has `grade(task_name, submission_bytes, split)` giving
      `score`, `outcome`, `reason`.
    timeout_s, memory_mb: limits of one execution; the task's own if None.
    threads: CPUs of one execution, and threads of its numerical libraries.
    zygote: use the pool's pre-imported worker.
    edit_then_execute: run and grade after each edit (paper 000); False
      leaves execution to the agent's own Execute Script.
    on_failure: 'revert' undoes an edit whose run failed, as an agent with
      Undo Edit Script would, so that a state always holds a script that
      runs; 'keep' leaves the broken script in the next state.
    parse_mode, entries: see parser.parse_response.
    cache: executions of the same task, files and split are looked up
      instead of run (durations too). For collection only: RL runs for real.
    infrastructure_retries: how often a failure of ours is run again.
    step_timeout_s: seconds for a step as a whole: the editor, the pool's queue
      and the execution, with those retries. What is not done then has the
      outcome `deadline`, which is never a reward. None: no limit.
  """

  def __init__(
    self,
    prepared: Mapping[str, Any],
    pool: Any,
    editor: interfaces.Editor,
    grader: Any,
    *,
    timeout_s: float | None = None,
    memory_mb: int | None = None,
    threads: int = 1,
    zygote: bool = True,
    edit_then_execute: bool = True,
    on_failure: str = 'revert',
    parse_mode: str = 'strict',
    entries: tuple[str, ...] = parser.ENTRIES,
    actions: tuple[str, ...] | None = parser.DEFAULT_ACTIONS
    + ('Read File', 'Undo Edit Script', 'Edit Script Segment (AI)'),
    cache: bool = False,
    infrastructure_retries: int = 1,
    step_timeout_s: float | None = None,
  ):
    if on_failure not in ('revert', 'keep'):
      raise ValueError(f"on_failure={on_failure!r} must be 'revert' or 'keep'.")
    super().__init__(
      prepared,
      pool,
      grader,
      timeout_s=timeout_s,
      memory_mb=memory_mb,
      threads=threads,
      zygote=zygote,
      cache=cache,
      infrastructure_retries=infrastructure_retries,
      step_timeout_s=step_timeout_s,
    )
    self.editor = editor
    self._asking = AskedEditor(editor)
    self.edit_then_execute = edit_then_execute
    self.on_failure = on_failure
    self.parse_mode = parse_mode
    self.entries = entries
    self.actions = actions

  # --- One step ------------------------------------------------------------

  def step(
    self,
    state: types.State,
    response_text: str,
    *,
    split: str = 'valid',
    job_id: str = 'step',
    deadline: Deadline = NO_DEADLINE,
  ) -> StepResult:
    """Carries out one response. Never raises for what a response holds.

    deadline: of what the step is part of; `step_timeout_s` is nested in it.
    """
    call = {
      'split': split,
      'job_id': job_id,
      'deadline': self.step_deadline(deadline),
    }
    try:
      response = parser.parse_response(
        response_text,
        mode=self.parse_mode,
        required=self.entries,
        actions=self.actions,
      )
    except parser.ResponseError as error:
      return self._finish(state, error.outcome, '', {}, f'{error}', valid=False)
    name, args = response.action, dict(response.args)
    handler = _HANDLERS[name]
    is_edit = name in parser.EDIT_ACTIONS
    try:
      result = handler(self, state, name, args, call)
    except ActionFailed as error:
      result = self._finish(
        state,
        types.Outcome.INVALID_ACTION,
        name,
        args,
        f'Error: {error}',
        is_edit=is_edit,
      )
    except interfaces.TextModelError as error:
      result = self._finish(
        state,
        types.Outcome.INFRASTRUCTURE,
        name,
        args,
        f'the editor gave no answer: {error}',
        is_edit=is_edit,
      )
    return dataclasses.replace(result, entries=response.entries)

  def _finish(
    self,
    state: types.State,
    outcome: types.Outcome,
    action: str,
    args: Mapping[str, str],
    observation: str,
    *,
    valid: bool = True,
    is_edit: bool = False,
    run: Run | None = None,
    files: Mapping[str, str] | None = None,
    script: str | None = None,
    diff: str = '',
  ) -> StepResult:
    """Builds the next state. An infrastructure failure changes nothing."""
    message = next(iter(observation.strip().splitlines()), '')[:160]
    score = run.score if run is not None else None
    if outcome.is_infrastructure:
      next_state: types.State | None = state
    elif action == 'Final Answer' and outcome is types.Outcome.OK:
      next_state = None
    else:
      next_files = dict(state.files if files is None else files)
      next_script = script or state.script
      label = action or 'invalid'
      short = outcome.value + ('' if score is None else f' {score:.4g}')
      last = outcome.value
      next_state = dataclasses.replace(
        state,
        files=next_files,
        script=next_script,
        score=state.score if score is None else score,
        last_outcome=last,
        history=(*state.history, (label, short))[-HISTORY:],
        step=state.step + 1,
        state_id=state_id(
          state.task, next_files, next_script, state.step + 1, last
        ),
      )
    execution = run.execution if run is not None else None
    exec_s = max(execution.exec_s, FLOOR_S) if execution else FLOOR_S
    return StepResult(
      outcome=outcome,
      action=action,
      args=args,
      is_edit=is_edit,
      valid_action=valid,
      state=next_state,
      score=score,
      score_before=state.score,
      observation=truncate(observation),
      execution=execution,
      exec_s=exec_s,
      diff=diff,
      message=message,
    )

  # --- Reading -------------------------------------------------------------

  def _read(self, state: types.State, name: str) -> str:
    data = self.task(state.task).public_dir
    return workspace.read(state.files, data, name)

  def _act_list(self, state, name, args, call) -> StepResult:
    data = self.task(state.task).public_dir
    text = workspace.listing(state.files, data, args['dir_path'])
    return self._finish(state, types.Outcome.OK, name, args, text)

  def _act_read(self, state, name, args, call) -> StepResult:
    text = self._read(state, args['file_name'])
    return self._finish(state, types.Outcome.OK, name, args, text)

  def _act_inspect(self, state, name, args, call) -> StepResult:
    lines = self._read(state, args['script_name']).split('\n')
    try:
      start = int(args['start_line_number'])
      end = int(args['end_line_number'])
    except ValueError:
      raise ActionFailed('the line numbers must be whole numbers.') from None
    if not 1 <= start <= end:
      raise ActionFailed(f'lines {start} to {end} are no range.')
    if end - start >= MAX_INSPECT_LINES:
      raise ActionFailed(f'at most {MAX_INSPECT_LINES} lines at once.')
    text = f'Lines {start}-{end} of {len(lines)}:\n' + '\n'.join(
      lines[start - 1 : end]
    )
    return self._finish(state, types.Outcome.OK, name, args, text)

  def _act_understand(self, state, name, args, call) -> StepResult:
    text = self._read(state, args['file_name'])
    return self._finish(
      state, types.Outcome.OK, name, args, workspace.summarise(text)
    )

  # --- Changing ------------------------------------------------------------

  def _writable(self, state: types.State, name: str) -> str:
    return workspace.writable(state.files, self.task(state.task).spec, name)

  def _act_copy(self, state, name, args, call) -> StepResult:
    text = self._read(state, args['source'])
    target = self._writable(state, args['destination'])
    files = workspace.with_file(state.files, target, text)
    return self._finish(
      state,
      types.Outcome.OK,
      name,
      args,
      f'{args["source"]} copied to {target}.',
      files=files,
    )

  def _act_undo(self, state, name, args, call) -> StepResult:
    path = self._writable(state, args['script_name'])
    backup = f'{BACKUP}/{path}'
    if backup not in state.files:
      raise ActionFailed('there is no change to undo.')
    files = dict(state.files)
    files[path] = files.pop(backup)
    return self._finish(
      state, types.Outcome.OK, name, args, files[path], files=files
    )

  def _act_final(self, state, name, args, call) -> StepResult:
    return self._finish(state, types.Outcome.OK, name, args, '')

  def _act_execute(self, state, name, args, call) -> StepResult:
    path = workspace.inside(args['script_name'])
    files = workspace.visible(state.files)
    if path is None or path not in files:
      raise ActionFailed(f'there is no script {args["script_name"]!r}.')
    run = self.run_script(state.task, files, path, **call)
    return self._finish(
      state, run.outcome, name, args, self._report(run), run=run, script=path
    )

  def _report(self, run: Run) -> str:
    """Status line, then standard output and error of the run."""
    status = f'Status: {run.outcome.value}'
    if run.score is not None:
      status += f', validation score {run.score:.6g}'
    elif run.message:
      status += f' ({run.message})'
    return f'{status}\n{run.execution.output}'

  def _act_edit(self, state, name, args, call) -> StepResult:
    old = self._read(state, args['script_name'])
    target = self._writable(state, args['save_name'])
    new = self._asking.edited(old, args['edit_instruction'])
    return self._after_edit(state, name, args, old, new, target, call)

  def _act_segment(self, state, name, args, call) -> StepResult:
    old = self._read(state, args['script_name'])
    target = self._writable(state, args['save_name'])
    lines = old.split('\n')
    try:
      start = int(args['start_line_number'])
      end = int(args['end_line_number'])
    except ValueError:
      raise ActionFailed('the line numbers must be whole numbers.') from None
    if not 1 <= start <= end <= len(lines):
      raise ActionFailed(f'lines {start} to {end} are no range of the file.')
    part = self._asking.edited(
      '\n'.join(lines[start - 1 : end]), args['edit_instruction']
    )
    new = '\n'.join([*lines[: start - 1], part.rstrip('\n'), *lines[end:]])
    return self._after_edit(state, name, args, old, new, target, call)

  def _after_edit(
    self, state, name, args, old, new, target, call
  ) -> StepResult:
    files = workspace.with_file(state.files, target, new)
    diff = ''.join(
      difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True)
      )
    )
    if target in state.files and self.on_failure == 'keep':
      files[f'{BACKUP}/{target}'] = state.files[target]
    text = f'The edited file is saved to {target}.\n{diff or NO_CHANGE}'
    if not self.edit_then_execute:
      return self._finish(
        state,
        types.Outcome.OK,
        name,
        args,
        text,
        is_edit=True,
        files=files,
        diff=diff,
        script=target,
      )
    run = self.run_script(
      state.task, workspace.visible(files), target, **call
    )
    text = f'{self._report(run)}\n{text}'
    keep = run.outcome is types.Outcome.OK or self.on_failure == 'keep'
    if not keep:
      text += '\nThe run failed, so the edit was undone.'
    return self._finish(
      state,
      run.outcome,
      name,
      args,
      text,
      is_edit=True,
      run=run,
      diff=diff,
      files=files if keep else None,
      script=target if keep else None,
    )


_HANDLERS: dict[str, Callable[..., StepResult]] = {
  'List Files': StepEnvironment._act_list,
  'Read File': StepEnvironment._act_read,
  'Inspect Script Lines': StepEnvironment._act_inspect,
  'Understand File': StepEnvironment._act_understand,
  'Copy File': StepEnvironment._act_copy,
  'Undo Edit Script': StepEnvironment._act_undo,
  'Execute Script': StepEnvironment._act_execute,
  'Edit Script (AI)': StepEnvironment._act_edit,
  'Edit Script Segment (AI)': StepEnvironment._act_segment,
  'Final Answer': StepEnvironment._act_final,
}
