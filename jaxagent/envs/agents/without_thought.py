"""The agent that acts without thought (paper 000 table 10)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from jaxagent import types
from jaxagent.envs import parser
from jaxagent.envs.agents import research, style


@dataclasses.dataclass(frozen=True)
class WithoutThought:
  """Entries Action and Action Input alone.

  Its prompt has no instructions: those of the research agent speak of a plan
  that it does not write, and paper 000 table 5 has none.
  """

  name: str = 'without_thought'
  stop: tuple[str, ...] = style.STOP
  mode: str = 'strict'

  def prompt(
    self,
    state: types.State,
    task: types.TaskSpec,
    *,
    actions: Sequence[str],
    observation_chars: int,
    steps: int = 3,
  ) -> str:
    """See style.AgentStyle."""
    return research.render(
      state,
      task,
      actions=actions,
      entries=parser.ENTRIES_WITHOUT_THOUGHT,
      instructions='',
      observation_chars=observation_chars,
      steps=steps,
    )

  def parse(self, text: str, *, actions: Sequence[str]) -> parser.Response:
    """See style.AgentStyle."""
    return parser.parse_response(
      text,
      mode=self.mode,
      required=parser.ENTRIES_WITHOUT_THOUGHT,
      actions=actions,
    )

  def write(
    self, thoughts: Mapping[str, str], action: str, args: Mapping[str, str]
  ) -> str:
    """See style.AgentStyle."""
    return parser.format_response({}, action, args)
