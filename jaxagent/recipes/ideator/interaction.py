"""Interactions of paper 001: an Implementer's run, and one idea in one step.

Both are pure reducers. What a role is asked is a value, too: its prompt is made of it
where it is drawn.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxagent import types
from jaxagent.envs.agents.implementer import (
  FINISH,
  INVALID,
  SEEK_HELP,
  Exchange,
  Turn,
  idea_message,
  parse_turn,
)
from jaxagent.envs.implementer_env import ImplementerEnvironment
from jaxagent.envs.implementer_state import (
  PROGRAMS,
  Effect,
  ImplementerState,
)
from jaxagent.envs.step_env import FLOOR_S
from jaxagent.interactions import (
  POLICY,
  Call,
  Credit,
  Execute,
  Generate,
  Progress,
  Step,
)
from jaxagent.recipes.ideator.parser import FormatError, Idea, parse_idea
from jaxagent.types import NoReward, Outcome

IMPLEMENTER, IDEATOR = 'implementer', 'ideator'  # roles


@dataclasses.dataclass(frozen=True)
class Question:
  """What a role is asked.

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
  text: Callable[[Any], str] = lambda result: str(
    getattr(result, 'text', result)
  )
  max_calls: int = 2


@dataclasses.dataclass(frozen=True)
class At:
  """Progress of a run.

  elapsed_s: seconds of its executions and, where they are known, of its models.
  advised: numbers of the policy's calls.
  """

  run: Run
  state: ImplementerState
  elapsed_s: float = 0.0
  advised: tuple[int, ...] = ()


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

  def start(self, payload: Run) -> Step:
    return self._next(At(payload, payload.initial), 0)

  def advance(self, state: At, call: Call, result: Any) -> Step:
    number = call.call + 1
    if isinstance(call, Execute):
      effect = Effect.from_json(result.state)
      at = _later(state, result.exec_s, state.state.after(effect))
      return self._next(at, number)
    if call.role == IMPLEMENTER:
      return self._acted(_later(state, _answer_s(result)), number, result.text)
    assert self._adviser is not None  # it was asked
    advised = state.advised
    if call.role == POLICY:
      advised = (*advised, call.call)
    at = _later(state, _answer_s(result), advised=advised)
    idea = parse_idea(self._adviser.text(result))
    return self._answered(at, number, told(idea))

  def _acted(self, at: At, number: int, text: str) -> Step:
    """The step after a message of the Implementer."""
    turn = parse_turn(text, seek_help=self._adviser is not None)
    if turn.kind == FINISH:
      return _end(at)
    if turn.kind in PROGRAMS:
      left = max(self._time_limit_s - at.elapsed_s, 0.0)
      action = Action(at.state, turn, text, left)
      return Step(at, (Execute(number, action),))
    if turn.kind == INVALID:
      state = at.state.with_step(
        INVALID, text, turn.error, Outcome.INVALID_FORMAT
      )
      return self._next(_later(at, state=state), number)
    state = at.state.with_step(SEEK_HELP, text)
    return self._asked(_later(at, state=state), number)

  def _asked(self, at: At, number: int) -> Step:
    """The step after a question to the Ideator."""
    adviser = self._adviser
    assert adviser is not None  # else the question is no action
    if at.state.calls > adviser.max_calls:
      return self._answered(
        at,
        number,
        f'You have had your {adviser.max_calls} answers; continue by yourself.',
      )
    if not adviser.role:
      return self._answered(at, number, idea_message(adviser.sentence))
    prompt: Any = Question(at.run.name, at.state)
    if adviser.prompt is not None and adviser.role == POLICY:
      prompt = adviser.prompt(at.state)
    return Step(at, (Generate(number, prompt, adviser.role),))

  def _answered(self, at: At, number: int, observation: str) -> Step:
    return self._next(_later(at, state=at.state.answered(observation)), number)

  def _next(self, at: At, number: int) -> Step:
    steps = len(at.state.steps)
    if steps >= self._max_steps or at.elapsed_s >= self._time_limit_s:
      return _end(at)
    most = 0 if self._adviser is None else self._adviser.max_calls
    left = max(most - at.state.calls, 0)
    question = Question(at.run.name, at.state, left)
    return Step(at, (Generate(number, question, IMPLEMENTER),))


def told(idea: Idea | FormatError) -> str:
  """Returns the observation of a question: the idea, or that there is none."""
  if isinstance(idea, FormatError):
    return (
      f'The adviser gave no usable answer: {idea.reason}. Continue by yourself.'
    )
  return idea_message(idea.text)


def scores(progress: Progress) -> list[tuple[float | None, float | None]]:
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


def _end(at: At) -> Step:
  return Step(
    at,
    credits={n: Credit(NoReward.NOT_CREDITED, FLOOR_S) for n in at.advised},
  )
