"""Agents by name: what a model is shown of a state, how its text is read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from jaxagent import types
from jaxagent.envs import parser, prompts
from jaxagent.envs.agents.autogpt import AutoGPT
from jaxagent.envs.agents.random_agent import RandomAgent
from jaxagent.envs.agents.react import ReAct
from jaxagent.envs.agents.research import Research
from jaxagent.envs.agents.style import AgentStyle
from jaxagent.envs.agents.without_thought import WithoutThought

_STYLES: tuple[AgentStyle, ...] = (
  Research(),
  WithoutThought(),
  ReAct(),
  AutoGPT(),
  RandomAgent(),
)
AGENTS: dict[str, AgentStyle] = {style.name: style for style in _STYLES}


STYLES = ('compact', 'full')
# Past steps shown, characters of each observation: what is shortened first, where
# a prompt has no room, is what was observed; then old steps go.
_SHORTER = (
  (3, 6000),
  (3, 2000),
  (3, 700),
  (3, 250),
  (2, 250),
  (1, 250),
  (0, 0),
)


def agent(name: str, *, mode: str = 'strict') -> AgentStyle:
  """The agent of that name; raises ValueError naming it and the choices.

  mode: how strictly it reads (parser.MODES), where it has such modes.
  """
  if name not in AGENTS:
    raise ValueError(f'agent={name!r} must be one of: {", ".join(AGENTS)}.')
  style: Any = AGENTS[name]
  if hasattr(style, 'mode'):
    return dataclasses.replace(style, mode=mode)
  return style


@dataclasses.dataclass(frozen=True)
class Prompter:
  """State -> the text that a policy answers.

  style: 'compact' (tiny models) or 'full' (the agent's own prompt).
  """

  style: str
  agent: AgentStyle = AGENTS['research']
  actions: tuple[str, ...] = parser.DEFAULT_ACTIONS

  def __post_init__(self):
    if self.style not in STYLES:
      raise ValueError(f'style={self.style!r}; choose one of {STYLES}.')

  def text(
    self,
    state: types.State,
    task: types.TaskSpec,
    fits: Callable[[str], bool] = lambda text: True,
  ) -> str:
    """fits: whether there is room; a full prompt is shortened until it does."""
    if self.style == 'compact':
      return prompts.compact(state, task)
    return prompt_that_fits(
      self.agent, state, task, actions=self.actions, fits=fits
    )


def prompt_that_fits(
  style: AgentStyle,
  state: types.State,
  task: types.TaskSpec,
  *,
  actions: Sequence[str],
  fits: Callable[[str], bool] = lambda text: True,
) -> str:
  """The agent's prompt with as much of the past as there is room for.

  The shortest, without any past, where nothing fits.
  """
  for steps, chars in _SHORTER:
    text = style.prompt(
      state, task, actions=actions, observation_chars=chars, steps=steps
    )
    if fits(text):
      break
  return text
