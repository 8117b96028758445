"""One trajectory in hand: actions by name, as MLAgentBench's environment takes
them, from whoever gives them (a script, a person, an agent of another project).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from jaxagent import types
from jaxagent.clock import Deadline
from jaxagent.envs import parser
from jaxagent.envs.mlagentbench import SHUT_DOWN
from jaxagent.envs.step_env import StepEnvironment, StepResult


class Session:
  """Walks from a state, one action after the other.

  A state is a value: `state` may be kept, put back, or changed between two
  actions. After a Final Answer it is the last one.

  Args:
    env: carries actions out; its dialect is what `execute` answers in.
    max_steps: actions in all (paper 002: 50).
    max_time_s: seconds in all (paper 002: 5 hours).
  """

  def __init__(
    self,
    env: StepEnvironment,
    state: types.State,
    *,
    max_steps: int = 50,
    max_time_s: float = 5 * 3600.0,
    name: str = 'session',
  ):
    self.env, self.state, self.name = env, state, name
    self.max_steps, self.deadline = max_steps, Deadline.after(max_time_s)
    self.results: list[StepResult] = []
    self.times: list[float] = []  # seconds since the epoch, after each action
    self.done = False

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
    if self.is_final() and action != 'Final Answer':
      return SHUT_DOWN
    try:
      response = self._response(action, args)
    except parser.ResponseError as error:
      error.action = action
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

  def _response(self, action: str, args) -> parser.Response:
    parser.check_action(action, self.env.actions)
    value = dict(args) if isinstance(args, Mapping) else args
    checked = parser.check_args(action, value)
    return parser.Response({}, action, checked)
