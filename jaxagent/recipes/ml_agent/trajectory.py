"""Rollout of a trajectory: actions in turn, from a state to a final answer.

Step-wise RL takes one step, episode-wise RL and evaluations take many.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from jaxagent import types
from jaxagent.interactions import (
  POLICY,
  Call,
  Credit,
  Execute,
  Generate,
  Transition,
)

# An executed step and the number of the completion that led to it.
_Done = tuple[tuple[int, types.Executed], ...]


@dataclasses.dataclass(frozen=True)
class Action:
  """An answer that is to be carried out.

  state: that it answers. response: its text. completion: the role's result.
  left_s: seconds of executions that are left. before: the steps before it.
  """

  state: types.State
  response: str
  completion: Any = None
  left_s: float = math.inf
  before: tuple[types.Executed, ...] = ()


class Trajectory:
  """A role is shown a state and answers, the answer is run, and so on.

  It ends with an action after which there is no state (Final Answer), after
  `max_steps`, or once its executions have taken `time_limit_s` together. An
  Execute's request is an `Action`.

  Args:
    prompt: state -> what the role is shown.
    text: the role's result -> its response.
    reward: of one executed step, or why it has none; not asked where the role is frozen.
  """

  def __init__(
    self,
    prompt: Callable[[types.State], Any],
    text: Callable[[Any], str],
    *,
    max_steps: int,
    time_limit_s: float = math.inf,
    role: str = POLICY,
    reward: Callable[[types.Executed], float | types.NoReward] | None = None,
  ):
    self._prompt, self._text, self._reward = prompt, text, reward
    self._max_steps, self._time_limit_s = max_steps, time_limit_s
    self._role = role

  def start(self, payload: types.State) -> Transition:
    return self._ask(payload, (), call=0)

  def advance(self, state: tuple, call: Call, result: Any) -> Transition:
    at, done = state
    if isinstance(call, Generate):
      action = Action(
        at,
        self._text(result),
        result,
        self._left_s(done),
        tuple(one for _, one in done),
      )
      return Transition(state, (Execute(call.call + 1, action),))
    done = (*done, (call.call - 1, result))
    over = self._left_s(done) <= 0
    if result.state is None or len(done) == self._max_steps or over:
      return Transition(None, credits=self._credits(done))
    return self._ask(result.state, done, call.call + 1)

  def _left_s(self, done: _Done) -> float:
    return self._time_limit_s - sum(one.exec_s for _, one in done)

  def _ask(self, at: types.State, done: _Done, call: int) -> Transition:
    asked = Generate(call, self._prompt(at), self._role)
    return Transition((at, done), (asked,))

  def _credits(self, done: _Done) -> dict[int, Credit]:
    reward = self._reward
    if self._role != POLICY or reward is None:
      return {}
    return {
      call: Credit(reward(one), one.exec_s, one.outcome, one.record)
      for call, one in done
    }
