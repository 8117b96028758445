"""The policy's chat template: its arguments, and a check of what it opens."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from jaxagent import options
from jaxagent.config import checks, recipe
from jaxagent.data import chat

if TYPE_CHECKING:
  from ml_collections import ConfigDict

_log = logging.getLogger(__name__)
_KEY = 'rollout.chat_template_kwargs'
_SWITCHES = ('enable_thinking', 'thinking')  # Qwen3, GLM; DeepSeek, Granite


def kwargs_of(config: ConfigDict) -> dict[str, Any]:
  """Returns the arguments of the chat template beside the messages."""
  return options.as_dict(checks.get(config, _KEY))


def load(config: ConfigDict, folder: str, system: str = ''):
  """Returns the tokenizer of a folder, see `chat.load`."""
  return chat.load(folder, system, kwargs_of(config))


def complaint(config: ConfigDict, tokenizer: Any) -> str:
  """Returns a complaint about a template that opens the answer within thoughts.

  '' where they do not. A parser that takes text before the format gets a warning.
  """
  tag = getattr(tokenizer, 'opens_thoughts', '')
  own = recipe.find(config)
  if not tag or not own.has_policy:
    return ''
  what = (
    f'the chat template in {tokenizer.folder} opens {tag} at the end of each prompt: '
    'what the policy writes begins within its thoughts'
  )
  remedy = _remedy(config, tokenizer)
  if own.strict_format or config.env.parse_mode == 'strict':
    return f'{what}, and every response is of invalid format. {remedy}'
  _log.warning('%s. %s', what, remedy)
  return ''


def _remedy(config: ConfigDict, tokenizer: Any) -> str:
  own = kwargs_of(config)
  for name in _SWITCHES:
    try:
      found = chat.load(tokenizer.folder, '', {**own, name: False})
    except ValueError:
      continue
    if not getattr(found, 'opens_thoughts', ''):
      given = {**own, name: False}
      return f'Give --config.{_KEY}="{given}".'
  return (
    'No switch of the template closes it: give --config.tokenizer.path=DIR, a copy of '
    f"the tokenizer's files whose chat_template does not write {tokenizer.opens_thoughts}"
    ', or closes it at once.'
  )


def _rule(config: ConfigDict) -> str:
  chosen = kwargs_of(config)
  if chosen and not (config.tokenizer.path or config.model.path):
    return (
      f'config.{_KEY}={chosen!r} is for a chat template, and the tokenizer that a run '
      'trains has none; leave it out, or give --config.model.path=DIR.'
    )
  return ''


RULE = checks.Rule((_KEY, 'tokenizer.path', 'model.path'), _rule)
