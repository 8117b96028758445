"""Agents by name: what a model is shown of a state, how its text is read."""

from __future__ import annotations

from jaxagent.envs.agents.autogpt import AutoGPT
from jaxagent.envs.agents.random_agent import RandomAgent
from jaxagent.envs.agents.react import ReAct
from jaxagent.envs.agents.research import Research
from jaxagent.envs.agents.style import AgentStyle
from jaxagent.envs.agents.without_thought import WithoutThought

AGENTS: dict[str, AgentStyle] = {
  style.name: style
  for style in (Research(), WithoutThought(), ReAct(), AutoGPT(), RandomAgent())
}


def agent(name: str) -> AgentStyle:
  """The agent of that name; raises ValueError naming it and the choices."""
  if name not in AGENTS:
    raise ValueError(
      f'agent={name!r} must be one of: {", ".join(AGENTS)}.'
    )
  return AGENTS[name]
