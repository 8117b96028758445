"""One step of an agent: parse, edit, execute, grade, next state.

States are values: a step reads a State and returns the next one, so any
state can be restarted or forked, and nothing is shared between threads. An
edit is followed by the execution of the edited script and by grading, which
gives m_{t+1} (paper 000, section 4.3).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from jaxagent import types
from jaxagent.clock import NO_DEADLINE, Deadline
from jaxagent.envs import agents, interfaces, parser
from jaxagent.envs import carried as carried_files
from jaxagent.envs.actions import Actions, Effect, Scene
from jaxagent.envs.editing import AskedEditor
from jaxagent.envs.execution import (
  Call,
  ExecutionOptions,
  Outputs,
  Run,
  ScriptRunner,
  state_id,
)
from jaxagent.envs.mlagentbench import MlAgentBenchActions
from jaxagent.envs.snapshots import Snapshots
from jaxagent.envs.workspace import ActionFailed

# Duration of an action that runs nothing; durations must be > 0.
FLOOR_S = 1e-3
HISTORY = 3  # steps kept in a state, as in MLAgentBench's research agent
MAX_RESPONSE_CHARS, MAX_PAST_CHARS = 16_000, 6000  # kept of each of them
MAX_ACTION_CHARS = 80  # of the name of an action that there is not
AFTER_EDIT = ('execute', 'measure', 'nothing')
ON_FAILURE = ('revert', 'keep')
DIALECTS: dict[str, type[Actions]] = {
  actions.name: actions for actions in (Actions, MlAgentBenchActions)
}


@dataclasses.dataclass(frozen=True)
class StepResult:
  """Holds what one response did.

  outcome: typed; OK for a valid action without an execution, too.
  valid_action: the response parsed and named a known action with its
    arguments (a_t in A_valid of equation 6).
  state: where the next step starts; None after Final Answer.
  score: m_{t+1}, None where nothing was graded.
  score_before: m_t.
  exec_s: seconds of the execution clock; FLOOR_S where nothing ran.
  diff: unified diff of an edit.
  message: one line for people.
  undone: the edit is not in `state`, for its run failed.
  thoughts: role -> what its model thought that had a part in the step.
  measured: CPU seconds of a program that was handed over, as of `types.Record`.
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
  undone: bool = False
  thoughts: Mapping[str, str] = dataclasses.field(default_factory=dict)
  measured: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  @property
  def done(self) -> bool:
    return self.state is None


def truncate(text: str, limit: int) -> str:
  """Deterministic head and tail, saying how much was left out."""
  if len(text) <= limit:
    return text
  half = limit // 2
  left = len(text) - 2 * half
  return f'{text[:half]}\n[... {left} characters left out ...]\n{text[-half:]}'


@dataclasses.dataclass(frozen=True)
class StepRules:
  """Rules of an environment: what its actions do, how results are shown.

  dialect: of DIALECTS; the wording of observations.
  after_edit: 'execute' runs and grades the edited script in the same step
    and reports it; 'measure' reports the diff alone, and the score is for the
    reward (paper 000, which runs scripts by Execute Script); 'nothing' leaves
    the score, too, to Execute Script (paper 002).
  on_failure: of 'execute': 'revert' undoes an edit whose run failed, as an
    agent with Undo Edit Script would, so that a state always holds a script
    that runs; 'keep' leaves the broken script in the next state.
  agent: reads the responses.
  actions: that may be taken.
  carry_mb: what a run may leave for the next step, in new and changed files;
    0: each run starts from what the actions wrote.

  Raises ValueError for an unknown dialect, after_edit or on_failure.
  """

  dialect: str = 'jaxagent'
  after_edit: str = 'execute'
  on_failure: str = 'revert'
  agent: agents.AgentStyle = agents.AGENTS['research']
  actions: tuple[str, ...] = parser.DEFAULT_ACTIONS
  carry_mb: float = 16.0

  def __post_init__(self):
    for name, choices in (
      ('on_failure', ON_FAILURE),
      ('after_edit', AFTER_EDIT),
      ('dialect', DIALECTS),
    ):
      if (value := getattr(self, name)) not in choices:
        raise ValueError(
          f'{name}={value!r}; choose one of {", ".join(choices)}.'
        )


@dataclasses.dataclass(frozen=True)
class TextModels:
  """Models of the actions that need text: edits, reading, help."""

  editor: interfaces.Editor
  reader: interfaces.Reader
  helper: interfaces.Helper


class StepEnvironment(ScriptRunner):
  """Step function over States; blocking and thread-safe.

  Args:
    prepared, pool, grader, options, store: as for `execution.ScriptRunner`.
    models: write and read text for the actions.
    rules: what the actions do.
  """

  def __init__(
    self,
    prepared: Mapping[str, Any],
    pool: Any,
    grader: Any,
    models: TextModels,
    rules: StepRules = StepRules(),
    options: ExecutionOptions = ExecutionOptions(),
    store: Snapshots | None = None,
  ):
    super().__init__(prepared, pool, grader, options, store)
    self.editor, self.reader = models.editor, models.reader
    self.helper = models.helper
    self._asking = AskedEditor(models.editor)
    self.rules = rules
    self.dialect = DIALECTS[rules.dialect]()

  def step(
    self,
    state: types.State,
    response_text: str,
    *,
    split: str = 'valid',
    job_id: str = 'step',
    deadline: Deadline = NO_DEADLINE,
    most_s: float = math.inf,
  ) -> StepResult:
    """Carries out one response. Never raises for what a response holds.

    deadline: of what the step is part of; `step_timeout_s` is nested in it.
    most_s: seconds of an execution at most, where its own limit is longer.
    """
    try:
      response = self.rules.agent.parse(
        response_text, actions=self.rules.actions
      )
    except parser.ResponseError as error:
      return self.refuse(state, error, response_text)
    return self.act(
      state,
      response,
      split=split,
      job_id=job_id,
      deadline=deadline,
      most_s=most_s,
      text=response_text,
    )

  def refuse(
    self, state: types.State, error: parser.ResponseError, text: str = ''
  ) -> StepResult:
    """The step of a response that cannot be acted on."""
    effect = Effect(self.dialect.not_understood(error), error.outcome)
    named = parser.plain(str(error.action))[:MAX_ACTION_CHARS]
    return self._finish(state, named, {}, effect, text, valid=False)

  def act(
    self,
    state: types.State,
    response: parser.Response,
    *,
    split: str = 'valid',
    job_id: str = 'step',
    deadline: Deadline = NO_DEADLINE,
    most_s: float = math.inf,
    text: str = '',
  ) -> StepResult:
    """Carries out one action that is known; the rest is as for `step`.

    text: the response as it was written, for the state's history.
    """
    name, args = response.action, dict(response.args)
    call = Call(split, job_id, self.step_deadline(deadline), most_s)
    scene = self._scene(state, call)
    try:
      with interfaces.thinking() as thoughts:
        effect = self.dialect.carry_out(scene, name, args)
    except ActionFailed as error:
      effect = Effect(
        self.dialect.failed(name, args, error), types.Outcome.INVALID_ACTION
      )
    except interfaces.TextModelError as error:
      effect = Effect(
        f'a text model gave no answer: {error}', types.Outcome.INFRASTRUCTURE
      )
    result = self._finish(state, name, args, effect, text)
    return dataclasses.replace(
      result, entries=response.entries, thoughts=thoughts
    )

  def _scene(self, state: types.State, call: Call) -> Scene:
    """Returns what an action sees; `call` is of whatever the action runs."""
    task = self.task(state.task)
    graded = Outputs(
      apart=self.dialect.streams_apart, changed_mb=self.rules.carry_mb
    )
    ungraded = dataclasses.replace(graded, graded=False)

    def run(files: Any, script: str) -> Run:
      return self.run_script(state.task, files, script, call, graded)

    def command(files: Any, script: str) -> types.Execution:
      run = self.run_script(state.task, files, script, call, ungraded)
      return run.execution

    def carried(files: Any, execution: types.Execution):
      if self.rules.carry_mb <= 0:
        return dict(files), []
      return carried_files.carry(
        files, execution, task.spec, self.store, task.mounts
      )

    return Scene(
      state=state,
      spec=task.spec,
      mounts=task.mounts,
      run=run,
      command=command,
      carried=carried,
      store=self.store,
      fixed=self.fixed(state.task),
      edited=self._asking.edited,
      reader=self.reader,
      helper=self.helper,
      after_edit=self.rules.after_edit,
      on_failure=self.rules.on_failure,
    )

  def _finish(
    self,
    state: types.State,
    action: str,
    args: Mapping[str, str],
    effect: Effect,
    text: str,
    *,
    valid: bool = True,
  ) -> StepResult:
    """Builds the next state. An infrastructure failure changes nothing."""
    observation = effect.observation
    if (most := self.dialect.max_observation_chars) is not None:
      observation = truncate(observation, most)
    score = effect.run.score if effect.run else None
    execution = effect.run.execution if effect.run else effect.execution
    if effect.outcome.is_infrastructure:
      next_state: types.State | None = state
    elif action == 'Final Answer' and effect.outcome is types.Outcome.OK:
      next_state = None
    else:
      next_state = self._next(state, action, effect, score, text, observation)
    lines = observation.strip().splitlines()
    return StepResult(
      outcome=effect.outcome,
      action=action,
      args=args,
      is_edit=valid and action in parser.EDIT_ACTIONS,
      valid_action=valid,
      state=next_state,
      score=score,
      score_before=state.score,
      observation=observation,
      execution=execution,
      exec_s=max(execution.exec_s, FLOOR_S) if execution else FLOOR_S,
      diff=effect.diff,
      message=next(iter(lines), '')[:160],
      undone=effect.undone,
      measured=effect.run.measured if effect.run else {},
    )

  def _next(
    self,
    state: types.State,
    action: str,
    effect: Effect,
    score: float | None,
    text: str,
    observation: str,
  ) -> types.State:
    files = dict(state.files if effect.files is None else effect.files)
    script, last = effect.script or state.script, effect.outcome.value
    short = last + ('' if score is None else f' {score:.4g}')
    said = truncate(parser.plain(text), MAX_RESPONSE_CHARS)
    told = truncate(parser.plain(observation), MAX_PAST_CHARS)
    past = types.PastStep(action, short, said, told)
    return dataclasses.replace(
      state,
      files=files,
      script=script,
      score=state.score if score is None else score,
      last_outcome=last,
      history=(*state.history, past)[-HISTORY:],
      step=state.step + 1,
      state_id=state_id(state.task, files, script, state.step + 1, last),
    )
