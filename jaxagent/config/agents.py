"""The agent of a run, as its config names it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxagent.envs import agents, parser

if TYPE_CHECKING:
  from ml_collections import ConfigDict


def actions_of(config: ConfigDict) -> tuple[str, ...]:
  """Returns the actions that a policy is offered and may take."""
  return tuple(config.env.actions) or parser.DEFAULT_ACTIONS


def agent_of(config: ConfigDict) -> agents.AgentStyle:
  """Returns the agent style that writes prompts and reads responses."""
  return agents.agent(config.agent, mode=config.env.parse_mode)


def prompter_of(config: ConfigDict) -> agents.Prompter:
  """Returns the prompter that turns a state into the policy's prompt."""
  return agents.Prompter(
    config.rollout.prompt_style, agent_of(config), actions_of(config)
  )


def stop_of(config: ConfigDict) -> tuple[str, ...]:
  """Returns the texts that end a response: those given, and the agent's own."""
  own = agent_of(config).stop if config.rollout.prompt_style == 'full' else ()
  return tuple(dict.fromkeys((*config.rollout.stop, *own)))
