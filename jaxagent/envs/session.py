"""One trajectory in hand: actions by name, as MLAgentBench's environment takes
them, whatever their source (a script, a person, an agent of another project).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from typing import Any

from jaxagent import types
from jaxagent.clock import Deadline
from jaxagent.envs import parser
from jaxagent.envs.mlagentbench import SHUT_DOWN
from jaxagent.envs.step_env import StepEnvironment, StepResult

FINAL = 'Final Answer'
_NUMBERS = itertools.count()


class Session:
  """Takes actions from a state, one after the other.

  A state is a value: `state` may be kept, put back, or changed between two
  actions, within the same limits; `reset_to` starts again from a state, `fork`
  makes further sessions. After a Final Answer `state` is the last one.

  Args:
    env: carries actions out; its dialect is what `execute` answers in.
    max_steps: actions in all (paper 002: 50).
    max_time_s: seconds in all (paper 002: 5 hours).
    name: its jobs are known by it, so no other session may have it at the same
      time; one of its own where None.
  """

  def __init__(
    self,
    env: StepEnvironment,
    state: types.State,
    *,
    max_steps: int = 50,
    max_time_s: float = 5 * 3600.0,
    name: str | None = None,
  ):
    self.env = env
    self.name = f'session{next(_NUMBERS)}' if name is None else name
    self.max_steps, self.max_time_s = max_steps, max_time_s
    self._forks = itertools.count()
    self.reset_to(state)

  def reset_to(self, state: types.State) -> None:
    """Begins anew from a state: no result yet, all steps and time to come."""
    self.state, self.done = state, False
    self.deadline = Deadline.after(self.max_time_s)
    self.results: list[StepResult] = []
    self.times: list[float] = []  # seconds since the epoch, after each action

  def fork(self, k: int, state: types.State | None = None) -> list[Session]:
    """k sessions that begin from a state (this one's now), each with its limits.

    They may run at the same time: what one does no other sees.
    """
    if k < 1:
      raise ValueError(f'k={k} must be at least one.')
    start = self.state if state is None else state
    return [
      Session(
        self.env,
        start,
        max_steps=self.max_steps,
        max_time_s=self.max_time_s,
        # Names of their own, over several calls, too: jobs are known by them.
        name=f'{self.name}.{next(self._forks)}',
      )
      for _ in range(k)
    ]

  def is_final(self) -> bool:
    """Whether steps, time or a Final Answer have ended it."""
    return (
      self.done
      or len(self.results) >= self.max_steps
      or self.deadline.remaining() <= 0
    )

  def execute(self, action: str, args: Mapping[str, Any] | str) -> str:
    """Carries out one action; the observation, whatever was asked.

    args: by name; text where they could not be read.
    """
    if self.is_final() and action != FINAL:
      return SHUT_DOWN
    try:
      response = self._response(action, args)
    except parser.ResponseError as error:
      result = self.env.refuse(self.state, error)
    else:
      result = self.env.act(
        self.state,
        response,
        job_id=f'{self.name}-{len(self.results)}',
        deadline=self.deadline,
        text=parser.format_response({}, action, response.args),
      )
    self.results.append(result)
    self.times.append(time.time())
    if result.state is None:
      self.done = True
    else:
      self.state = result.state
    return result.observation

  def _response(
    self, action: str, args: Mapping[str, Any] | str
  ) -> parser.Response:
    value = dict(args) if isinstance(args, Mapping) else args
    try:
      with parser.naming(action):
        parser.check_action(action, self.env.rules.actions)
        checked = parser.check_args(action, value)
    except parser.ResponseError:
      if action != FINAL:
        raise
      checked = {'final_answer': ''}  # it ends a session, whatever it says
    return parser.Response({}, action, checked)
