"""Expert trajectories (paper 000, 4.1 and B.2), as rollouts of a frozen role.

Some start from an edited script: the expert's first random edit that ran. The first
steps follow ideas that were drawn for the trajectory.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxagent import types
from jaxagent.interactions import (
  Call,
  Execute,
  Generate,
  RolloutState,
  Transition,
)
from jaxagent.recipes.ml_agent.trajectory import Action
from jaxagent.recipes.starts import fresh_state, with_ideas

EXPERT = 'expert'  # the role
_EDITS = 4  # attempts at an edited start


@dataclasses.dataclass(frozen=True)
class Assignment:
  """A trajectory that is wanted.

  initial: the task's starter. ideas: that its first steps follow. varied_start:
  whether it starts from an edited script. rng_state: of the generator that the
  expert draws from, `random.Random.getstate`.
  """

  initial: types.State
  index: int
  ideas: tuple[str, ...]
  varied_start: bool
  rng_state: tuple

  @property
  def name(self) -> str:
    """Unique within a collection."""
    return f'{self.initial.task}-{self.index}'


@dataclasses.dataclass(frozen=True)
class Question:
  """A request to the expert: state, ideas, and the generator that it draws from."""

  state: types.State
  ideas: tuple[str, ...]
  rng_state: tuple


class StartEdit(Action):
  """An edit before the start of a trajectory."""


@dataclasses.dataclass(frozen=True)
class _At:
  """Progress of a trajectory.

  edits: attempts at an edited start, None once it has started. done: its steps.
  """

  assignment: Assignment
  state: types.State
  rng_state: tuple
  edits: int | None
  done: tuple[types.Executed, ...] = ()
  exec_s: float = 0.0  # of its start, too


class Demonstrations:
  """Assignments -> trajectories.

  Args:
    max_steps: of a trajectory.
    time_limit_s: of all its executions together.
    ideas_in_prompt: whether the trained policy's prompts show the ideas, too.
  """

  def __init__(
    self, *, max_steps: int, time_limit_s: float, ideas_in_prompt: bool
  ):
    self._max_steps, self._time_limit_s = max_steps, time_limit_s
    self._ideas_in_prompt = ideas_in_prompt

  def start(self, payload: Assignment) -> Transition:
    at = _At(payload, payload.initial, payload.rng_state, 0)
    return self._ask(at, 0) if payload.varied_start else self._begin(at, 0)

  def advance(self, state: _At, call: Call, result: Any) -> Transition:
    if isinstance(call, Generate):
      kind = Action if state.edits is None else StartEdit
      action = kind(
        state.state,
        result.text,
        result,
        self._time_limit_s - state.exec_s,
        state.done,
      )
      at = dataclasses.replace(state, rng_state=result.rng_state)
      return Transition(at, (Execute(call.call + 1, action),))
    at = dataclasses.replace(state, exec_s=state.exec_s + result.exec_s)
    if at.exec_s >= self._time_limit_s:
      return _end()
    if at.edits is not None:
      return self._after_edit(at, at.edits + 1, call.call + 1, result)
    at = dataclasses.replace(at, state=result.state, done=(*at.done, result))
    if result.state is None or len(at.done) == self._max_steps:
      return _end()
    return self._ask(at, call.call + 1)

  def _after_edit(
    self, at: _At, edits: int, call: int, result: types.Executed
  ) -> Transition:
    if result.made.is_edit and result.made.score_after is not None:
      edited = fresh_state(
        result.state, start_score=at.assignment.initial.start_score
      )
      return self._begin(dataclasses.replace(at, state=edited), call)
    if edits == _EDITS:
      return self._begin(at, call)
    return self._ask(dataclasses.replace(at, edits=edits), call)

  def _begin(self, at: _At, call: int) -> Transition:
    state = at.state
    if self._ideas_in_prompt:
      state = with_ideas(state, at.assignment.ideas)
    return self._ask(dataclasses.replace(at, state=state, edits=None), call)

  def _ask(self, at: _At, call: int) -> Transition:
    ideas = () if at.edits is not None else at.assignment.ideas
    question = Question(at.state, ideas, at.rng_state)
    return Transition(at, (Generate(call, question, EXPERT),))


def steps_of(progress: RolloutState) -> list[types.Executed]:
  """Returns the steps of a trajectory; the edits before its start are none."""
  found = []
  for call, result in progress.results:
    edit = isinstance(call, Execute) and isinstance(call.request, StartEdit)
    if isinstance(result, types.Executed) and not edit:
      found.append(result)
  return found


def _end() -> Transition:
  return Transition(None, credits={})
