"""The models behind endpoints, by role: who speaks for which, and their options' rules."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from typing import Any

from jaxagent.llm import request
from jaxagent.loops import checks
from jaxagent.loops.checks import Rule

# Role -> the kind that needs no endpoint.
WITHOUT = {
  'expert': 'scripted',
  'editor': 'scripted',
  'reader': 'scripted',
  'instrumenter': 'syntax',
  'writer': 'policy',
  'embeddings': 'tfidf',
}
WRITERS = tuple(role for role in WITHOUT if role != 'embeddings')  # of text
SPEAKERS = ('expert', 'editor')  # whose model may speak for another role, too
# Of the expert that trajectories are collected from; `loop=agent` measures one.
MEASURED_BY = {
  'max_tokens': (1024, 'max_new_tokens'),
  'temperature': (0.7, 'temperature'),
}


def as_dict(value: Any) -> dict[str, Any]:
  """Returns an option that is a dictionary, or the text of one, as plain values.

  The text is JSON or a Python literal, as a command line has it; '' is {}.
  Raises ValueError, in one line, for anything else.
  """
  if isinstance(value, str):
    value = _parsed(value)
  if hasattr(value, 'to_dict'):
    value = value.to_dict()
  if value is None:
    return {}
  if not isinstance(value, Mapping):
    raise ValueError('no dictionary')
  return dict(value)


def _parsed(text: str) -> Any:
  if not text.strip():
    return {}
  for read in (json.loads, ast.literal_eval):
    try:
      return read(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
      continue
  raise ValueError('neither JSON nor a Python literal')


def speaker(config, role: str):
  """Returns the options of who speaks for a role, which may be another role."""
  while config[role].kind in SPEAKERS:
    role = config[role].kind
  return config[role]


def max_concurrency(config, role: str) -> int:
  """Returns how many calls of a role are in flight at once."""
  return config[role].max_concurrency


def extra_of(config, role: str) -> dict[str, Any]:
  """Returns what is merged into a role's requests: its own over its speaker's."""
  own = as_dict(config[role].extra)
  if config[role].kind in SPEAKERS:
    return extra_of(config, config[role].kind) | own
  return own


def rules() -> tuple[Rule, ...]:
  """Returns what the options of every role may be."""
  found: list[Rule] = []
  for role, without in WITHOUT.items():
    found += _address(role, without)
    found.append(_extra(role))
    found.append(checks.whole(f'{role}.max_concurrency'))
  for role in WRITERS:
    found.append(checks.whole(f'{role}.max_tokens'))
    found.append(checks.number(f'{role}.temperature', least=0))
  return (*found, *(_measured(key) for key in MEASURED_BY))


def _address(role: str, without: str) -> tuple[Rule, Rule]:
  """Rules of a model behind an address; `without`: the kind that needs none."""

  def address(config) -> str:
    options = config[role]
    if options.kind != 'openai' or checks.is_http(options.base_url):
      return ''
    return (
      f'config.{role}.base_url={options.base_url!r} must be an http or https '
      "address without user name or query, such as 'http://127.0.0.1:8000/v1'."
    )

  def named(config) -> str:
    options = config[role]
    if options.kind != 'openai' or str(options.model).strip():
      return ''
    return (
      f'config.{role}.model is empty: name the model that the endpoint '
      f'{options.base_url} serves, or set config.{role}.kind={without}.'
    )

  kind = f'{role}.kind'
  return (
    Rule((kind, f'{role}.base_url'), address),
    # The paper's variant is planned without an endpoint at hand.
    Rule((kind, f'{role}.model'), named, 'run'),
  )


def _extra(role: str) -> Rule:
  key = f'{role}.extra'

  def check(config) -> str:
    value = checks.get(config, key)
    try:
      extra = as_dict(value)
      request.check_extra(extra)
    except ValueError as error:
      return (
        f'config.{key}={_shown(value)}: {error}; give a dictionary of JSON values, '
        f"such as --config.{key}=\"{{'top_p': 0.9, 'seed': None}}\", or {{}}."
      )
    kind = speaker(config, role).kind
    if extra and kind != 'openai':
      return (
        f'config.{key}={_shown(value)} is of an endpoint, and who speaks for this '
        f'role has none ({kind}); leave it out, or set config.{role}.kind=openai.'
      )
    return ''

  return Rule((key, f'{role}.kind'), check)


def _shown(value: Any) -> str:
  value = value.to_dict() if hasattr(value, 'to_dict') else value
  text = ' '.join(repr(value).split())
  return text if len(text) <= 200 else text[:200] + ' ...'


def _measured(name: str) -> Rule:
  """A model that is measured answers as a policy would: within its limits."""
  usual, of_policy = MEASURED_BY[name]
  return checks.related(
    f'expert.{name}',
    'loop',
    holds=lambda value, loop: value == usual or loop != 'agent',
    say=f'config.expert.{name}={{0}} is of an expert that is collected from; the '
    f'model that config.loop={{1!r}} measures has config.rollout.{of_policy}: set '
    'that.',
  )
