"""Interactions of paper 001: an Implementer's run, and one idea in one step.

Both are pure reducers. A question to a role is a value, too: its prompt is made of it
where the answer is drawn.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxagent import types
from jaxagent.envs.agents.implementer import (
  FINISH,
  INVALID,
  SEEK_HELP,
  Briefing,
  Exchange,
  Turn,
  chat,
  idea_message,
  parse_turn,
)
from jaxagent.envs.implementer_env import ImplementerEnvironment
from jaxagent.envs.implementer_state import (
  PROGRAMS,
  Effect,
  ImplementerState,
  Program,
  Scored,
)
from jaxagent.envs.interfaces import MOST_THOUGHTS
from jaxagent.envs.parser import plain
from jaxagent.envs.step_env import FLOOR_S
from jaxagent.interactions import (
  POLICY,
  Call,
  Credit,
  Execute,
  Generate,
  RolloutState,
  Transition,
)
from jaxagent.recipes.ideator.parser import (
  ITEMS,
  FormatError,
  Idea,
  parse_idea,
)
from jaxagent.recipes.ideator.programs import same_program
from jaxagent.recipes.ideator.prompt import State
from jaxagent.recipes.ideator.record import IdeaRecord
from jaxagent.recipes.ideator.types_of import type_of_family
from jaxagent.types import NoReward, Outcome

IMPLEMENTER, IDEATOR = 'implementer', 'ideator'  # roles
# Of both programs; a diff of more takes too long: cubic in lines that come often.
MOST_DIFFED, MOST_DIFFED_LINES = 50_000, 2_000


@dataclasses.dataclass(frozen=True)
class Question:
  """A question to a role.

  run: name of the run or of the pool's state; seeds of scripted roles depend on it.
  state: of the run; the Ideator's ends with its query.
  calls_left: questions that the Implementer may still ask.
  """

  run: str
  state: ImplementerState
  calls_left: int = 0


@dataclasses.dataclass(frozen=True)
class Action:
  """A program that is to be carried out.

  most_s: seconds that it may take at most, where the task's own limit is longer.
  """

  state: ImplementerState
  turn: Turn
  text: str
  most_s: float = float('inf')


def execute(
  env: ImplementerEnvironment,
  action: Action,
  job_id: str,
  *,
  private: bool = False,
) -> types.Executed:
  """Carries out the request of an `Execute`, see `ImplementerEnvironment`."""
  return env.execute(
    action.state,
    action.turn,
    action.text,
    job_id=job_id,
    most_s=action.most_s,
    private=private,
  )


def exchanges(state: ImplementerState) -> list[Exchange]:
  """Returns the steps as prompts show them; an open question is none yet."""
  steps = state.steps[:-1] if state.asks else state.steps
  return [Exchange(step.text, step.observation) for step in steps]


def chat_of(
  question: Question,
  briefing: Briefing,
  *,
  seek_help: bool = True,
  fits: Callable[[Sequence[dict[str, str]]], bool] = lambda messages: True,
) -> list[dict[str, str]]:
  """Returns the messages that ask a model to be the Implementer.

  The trajectory is cut at the borders of steps, the oldest go first.

  fits: whether there is room for messages.
  """
  steps = exchanges(question.state)
  return chat(briefing, steps, seek_help=seek_help, fits=fits)


def shown_state(
  state: ImplementerState, spec: types.TaskSpec, before: str = 'best'
) -> State:
  """Returns s_t of section 3.2 as the Ideator's prompt takes it.

  before: of BEFORE: whose score and program are p_t and C_t.

  Raises ValueError where the state asks nothing.
  """
  if (query := state.query) is None:
    raise ValueError('the state does not end with a question.')
  present = state.best if before == 'best' else state.last
  program = present.program if present else state.current
  return State(
    task=spec.research_problem,
    query=query,
    steps=exchanges(state),
    score=present.score if present else None,
    code=program.code if program else '',
    metric=spec.metric,
    higher_is_better=state.higher_is_better,
  )


def _text(result: types.TextCompletion | str) -> str:
  """Returns the text of a frozen role's answer."""
  return result if isinstance(result, str) else result.text


# A run with an Ideator ---------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Run:
  """A run that is wanted. name: unique within its stage."""

  name: str
  initial: ImplementerState


@dataclasses.dataclass(frozen=True)
class Adviser:
  """Source of the answers to `<seek_help>`.

  role: that is asked, IDEATOR or the policy; '' where no model is.
  sentence: every answer, where no model is asked (table 2 of paper 001).
  prompt: of the policy alone: state -> its ids, int32 [P].
  text: a role's result -> its text.
  max_calls: answers in a run; further questions get none.
  """

  role: str = IDEATOR
  sentence: str = ''
  prompt: Callable[[ImplementerState], np.ndarray] | None = None
  text: Callable[[Any], str] = _text
  max_calls: int = 2


@dataclasses.dataclass(frozen=True)
class At:
  """Progress of a run.

  elapsed_s: seconds of its executions and, where they are known, of its models.
  advised: numbers of the policy's calls.
  asked: states that end with a question to the Ideator which was answered.
  """

  run: Run
  state: ImplementerState
  elapsed_s: float = 0.0
  advised: tuple[int, ...] = ()
  asked: tuple[ImplementerState, ...] = ()


class Runs:
  """Runs of an Implementer with an Ideator, or with none.

  The policy's calls as an Ideator get no reward here: a run is for evaluation, or for
  the pool.

  Args:
    max_steps: messages of the Implementer.
    time_limit_s: of executions and models together.
    adviser: None: `<seek_help>` is no action.
  """

  def __init__(
    self, *, max_steps: int, time_limit_s: float, adviser: Adviser | None
  ):
    self._max_steps, self._time_limit_s = max_steps, time_limit_s
    self._adviser = adviser

  def start(self, payload: Run) -> Transition:
    return self._next(At(payload, payload.initial), 0)

  def advance(self, state: At, call: Call, result: Any) -> Transition:
    number = call.call + 1
    if isinstance(call, Execute):
      effect = Effect.from_json(result.state)
      at = _later(state, result.exec_s, state.state.after(effect))
      return self._next(at, number)
    if call.role == IMPLEMENTER:
      at = _later(state, _answer_s(result))
      return self._acted(at, number, _text(result))
    assert self._adviser is not None  # it was asked
    advised = state.advised
    if call.role == POLICY:
      advised = (*advised, call.call)
    at = _later(state, _answer_s(result), advised=advised)
    idea = parse_idea(self._adviser.text(result))
    return self._answered(at, number, told(idea))

  def _acted(self, at: At, number: int, text: str) -> Transition:
    """The step after a message of the Implementer."""
    turn = parse_turn(text, seek_help=self._adviser is not None)
    text = plain(text)  # the Ideator's tokenizer reads it
    if turn.kind == FINISH:
      return _end(at)
    if turn.kind in PROGRAMS:
      left = max(self._time_limit_s - at.elapsed_s, 0.0)
      action = Action(at.state, turn, text, left)
      return Transition(at, (Execute(number, action),))
    if turn.kind == INVALID:
      state = at.state.with_step(
        INVALID, text, turn.error, Outcome.INVALID_FORMAT
      )
      return self._next(_later(at, state=state), number)
    state = at.state.with_step(SEEK_HELP, text)
    return self._asked(_later(at, state=state), number)

  def _asked(self, at: At, number: int) -> Transition:
    """The step after a question to the Ideator."""
    adviser = self._adviser
    assert adviser is not None  # else the question is no action
    if at.state.calls > adviser.max_calls:
      return self._answered(
        at,
        number,
        f'You have had your {adviser.max_calls} answers; continue by yourself.',
      )
    at = dataclasses.replace(at, asked=(*at.asked, at.state))
    if not adviser.role:
      return self._answered(at, number, idea_message(adviser.sentence))
    prompt: Any = Question(at.run.name, at.state)
    if adviser.prompt is not None and adviser.role == POLICY:
      prompt = adviser.prompt(at.state)
    return Transition(at, (Generate(number, prompt, adviser.role),))

  def _answered(self, at: At, number: int, observation: str) -> Transition:
    return self._next(_later(at, state=at.state.answered(observation)), number)

  def _next(self, at: At, number: int) -> Transition:
    steps = len(at.state.steps)
    if steps >= self._max_steps or at.elapsed_s >= self._time_limit_s:
      return _end(at)
    most = 0 if self._adviser is None else self._adviser.max_calls
    left = max(most - at.state.calls, 0)
    question = Question(at.run.name, at.state, left)
    return Transition(at, (Generate(number, question, IMPLEMENTER),))


def told(idea: Idea | FormatError) -> str:
  """Returns the observation of a question: the idea, or that there is none."""
  if isinstance(idea, FormatError):
    return (
      f'The adviser gave no usable answer: {idea.reason}. Continue by yourself.'
    )
  return idea_message(idea.text)


def whole_scores(progress: RolloutState) -> list[float | None]:
  """Returns each program's score on the whole hidden test, as `scores`."""
  return [
    result.kept.get('whole')
    for call, result in progress.results
    if isinstance(call, Execute) and isinstance(result, types.Executed)
  ]


def scores(progress: RolloutState) -> list[tuple[float | None, float | None]]:
  """Returns (validation, private) score of each program of a run, in order.

  None where the step has no valid submission, or was not graded on those rows.
  """
  return [
    (Effect.from_json(result.state).step.score, result.kept.get('private'))
    for call, result in progress.results
    if isinstance(call, Execute) and isinstance(result, types.Executed)
  ]


def _later(
  at: At,
  seconds: float = 0.0,
  state: ImplementerState | None = None,
  advised: tuple[int, ...] | None = None,
) -> At:
  return dataclasses.replace(
    at,
    elapsed_s=at.elapsed_s + seconds,
    state=at.state if state is None else state,
    advised=at.advised if advised is None else advised,
  )


def _answer_s(result: Any) -> float:
  """Seconds that a model took; 0 where that was not measured."""
  return float(getattr(result, 'cost', {}).get('answer_s', 0.0))


def _end(at: At) -> Transition:
  return Transition(
    at,
    credits={n: Credit(NoReward.NOT_CREDITED, FLOOR_S) for n in at.advised},
  )


# One idea in one step -----------------------------------------------------------

BEFORE = ('best', 'last')


@dataclasses.dataclass(frozen=True)
class HelpState:
  """A state of the pool, which ends with a question.

  key: unique within the pool. run: name of the run that it was taken from.
  noise: spread of the present program's score over repeated runs; None where it is
    not known.
  """

  key: str
  run: str
  state: ImplementerState
  noise: float | None = None


@dataclasses.dataclass(frozen=True)
class _Given:
  """An answer that is being carried out."""

  item: HelpState
  response: str = ''
  idea: Idea | None = None
  message: str = ''
  thoughts: str = ''  # in front of the message


class Ideas:
  """One idea: drawn, carried out by the Implementer in one message, credited.

  Args:
    prompt: state -> ids of the policy's prompt, int32 [P].
    text: a completion of the policy -> its text.
    before: of BEFORE: whether p_t and C_t are those of the best valid submission or
      of the last one.
    margin: in units of a state's noise, what a score must rise by more than.
    first_score: of `rewards.ideator.FIRST_SCORES`.
    most_s: seconds of the one execution at most.
    family_of: (ACTION, task) -> family of a scripted idea; '' where it has none.

  Raises ValueError for another `before`.
  """

  def __init__(
    self,
    prompt: Callable[[HelpState], np.ndarray],
    text: Callable[[Any], str],
    *,
    before: str = 'best',
    margin: float = 0.0,
    first_score: str = '1',
    most_s: float = float('inf'),
    family_of: Callable[[str, str], str] = lambda action, task: '',
  ):
    if before not in BEFORE:
      raise ValueError(f'before={before!r}; choose one of {", ".join(BEFORE)}.')
    self._prompt, self._text, self._family_of = prompt, text, family_of
    self._before, self._most_s = before, most_s
    self._margin, self._first_score = margin, first_score

  def start(self, payload: HelpState) -> Transition:
    return Transition(_Given(payload), (Generate(0, self._prompt(payload)),))

  def advance(self, state: _Given, call: Call, result: Any) -> Transition:
    if isinstance(call, Execute):
      return self._executed(state, result)
    if call.role == POLICY:
      return self._read(state, call.call + 1, self._text(result))
    return self._acted(state, call.call + 1, result)

  def scored(self, state: ImplementerState) -> Scored | None:
    """Returns p_t and C_t; None where there was no valid submission."""
    return state.best if self._before == 'best' else state.last

  def _read(self, state: _Given, number: int, response: str) -> Transition:
    idea = parse_idea(response)
    given = dataclasses.replace(state, response=response)
    if isinstance(idea, FormatError):
      record = self._record(
        given, outcome=Outcome.INVALID_FORMAT, format_error=idea.reason
      )
      return _credited(record)
    given = dataclasses.replace(given, idea=idea)
    answered = state.item.state.answered(told(idea))
    question = Question(state.item.key, answered)
    return Transition(given, (Generate(number, question, IMPLEMENTER),))

  def _acted(self, state: _Given, number: int, result: Any) -> Transition:
    """The step after the one message that carries the idea out."""
    message = _text(result)
    thoughts = str(getattr(result, 'cost', {}).get('thoughts', ''))
    given = dataclasses.replace(
      state, message=message, thoughts=thoughts[-MOST_THOUGHTS:]
    )
    turn = parse_turn(message)
    if turn.kind not in PROGRAMS:
      why = turn.error or f'it is {turn.kind}, which runs nothing'
      record = self._record(
        given, outcome=Outcome.INVALID_ACTION, message_error=why
      )
      return _credited(record)
    assert state.idea is not None  # else no Implementer was asked
    answered = state.item.state.answered(told(state.idea))
    action = Action(answered, turn, message, self._most_s)
    return Transition(given, (Execute(number, action),))

  def _executed(self, state: _Given, result: types.Executed) -> Transition:
    effect = Effect.from_json(result.state)
    step, program = effect.step, effect.program
    present = self.scored(state.item.state)
    assert program is not None  # it was to be run
    no_op = (
      present is not None
      and present.program.kind == program.kind
      and same_program(present.program.code, program.code)
    )
    record = self._record(
      state,
      outcome=result.outcome,
      exec_s=result.exec_s,
      no_op=no_op,
      score_after=step.score,
      measured=step.measured,
      diff=_diff(present, program),
      observation=step.observation,
      tier=effect.tier,
      untrusted=effect.untrusted,
      queue_s=effect.queue_s,
      startup_s=effect.startup_s,
      cpu_s=effect.cpu_s,
      recorded=effect.recorded,
    )
    return _credited(record)

  def _record(self, given: _Given, **fields: Any) -> IdeaRecord:
    item, idea = given.item, given.idea
    present, state = self.scored(item.state), item.state
    if idea is not None:
      family = self._family_of(idea.action, state.task)
      values = (idea.analysis, idea.action, idea.rationale)
      fields |= {
        'entries': dict(zip(ITEMS, values)),
        'idea_type': type_of_family(family) if family else '',
        'family': family,
        'thoughts': idea.thoughts,
      }
    return IdeaRecord(
      **{'exec_s': FLOOR_S} | fields,
      task=state.task,
      state_id=state.state_id,
      response=given.response,
      valid_action=idea is not None,
      message=given.message,
      implementer_thoughts=given.thoughts,
      score_before=present.score if present else None,
      higher_is_better=state.higher_is_better,
      behind_best=state.best != state.last,
      noise=item.noise,
      margin=self._margin,
      first_score=self._first_score,
    )


def _credited(record: IdeaRecord) -> Transition:
  credit = Credit(record.derive(), record.exec_s, record.outcome, record)
  return Transition(record, credits={0: credit})


def _diff(present: Scored | None, program: Program) -> str:
  before = present.program.code if present else ''
  if len(before) + len(program.code) > MOST_DIFFED:
    return ''
  old, new = before.splitlines(), program.code.splitlines()
  if len(old) + len(new) > MOST_DIFFED_LINES:
    return ''
  lines = difflib.unified_diff(old, new, 'before', 'after', lineterm='')
  return '\n'.join(lines)
