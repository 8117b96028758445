"""Models behind endpoints, by role: which endpoint answers, and rules of options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jaxagent.config import checks
from jaxagent.config.checks import Rule
from jaxagent.config.sections import SECTIONS
from jaxagent.llm.config import Endpoint, ExpertOptions, TextEndpoint
from jaxagent.options import as_dict, shown

if TYPE_CHECKING:
  from ml_collections import ConfigDict

_ROLES = {r: s for r, s in SECTIONS.items() if issubclass(s, Endpoint)}
# Role -> the kind that needs no endpoint.
WITHOUT = {role: section.without for role, section in _ROLES.items()}
WRITERS = tuple(r for r, s in _ROLES.items() if issubclass(s, TextEndpoint))
SPEAKERS = ('expert', 'editor')  # whose model may speak for another role, too
# Of the expert that trajectories are collected from; recipe `agents` measures one.
MEASURED_BY = {
  'max_tokens': (ExpertOptions.max_tokens, 'max_new_tokens'),
  'temperature': (ExpertOptions.temperature, 'temperature'),
}


def speaker(config: ConfigDict, role: str):
  """Returns the options of the endpoint of a role, which may be another role's."""
  while config[role].kind in SPEAKERS:
    role = config[role].kind
  return config[role]


def max_concurrency(config: ConfigDict, role: str) -> int:
  """Returns how many calls of a role are in flight at once."""
  return config[role].max_concurrency


def extra_of(config: ConfigDict, role: str) -> dict[str, Any]:
  """Returns `extra` of a role's requests: its own over that of the role it uses."""
  own = as_dict(config[role].extra)
  if config[role].kind in SPEAKERS:
    return extra_of(config, config[role].kind) | own
  return own


def rules() -> tuple[Rule, ...]:
  """Returns rules between a role and the role whose model it uses."""
  return tuple(map(extra_rule, WITHOUT))


def extra_rule(role: str) -> Rule:
  """Returns the rule that `ROLE.extra` is for an endpoint alone."""
  key = f'{role}.extra'

  def check(config: ConfigDict) -> str:
    value = checks.get(config, key)
    kind = speaker(config, role).kind
    if as_dict(value) and kind != 'openai':
      return (
        f'config.{key}={shown(value)} is for an endpoint, and the model of this role '
        f'has none ({kind}); leave it out, or set config.{role}.kind=openai.'
      )
    return ''

  return Rule((key, f'{role}.kind'), check)
