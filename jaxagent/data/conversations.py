"""Conversations for supervised fine-tuning, in ShareGPT's layout.

A file is a JSON array, or a JSON object a line, of

  {"conversations": [{"from": "human", "value": PROMPT},
                     {"from": "gpt", "value": RESPONSE}]}

as LLaMA-Factory (its data/README.md, "ShareGPT format") and others read and write
it, one turn each: an agent's step is prompted with all that it is shown. What such
files may say beside the turns and would change what is learned (tools, images,
preferences, weights) is refused by name; a key that is not known is ignored, and
logged once a file.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
import os
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

from jaxagent.envs import parser
from jaxagent.files import model_files

_log = logging.getLogger(__name__)
_SAID_BY = {'human': 'prompt', 'gpt': 'response'}
_SPLIT = 'split it into conversations of one human and one gpt turn'

_TOOLS = 'answers that call tools are not learned'
_MEDIA = 'only text is learned'
_PREFERENCE = (
  'preferences are not learned, and a rejected answer would be, as a good one'
)
_LOSS = 'each answer is learned once and whole, and no prompt'
# Keys of LLaMA-Factory, axolotl, TRL and OpenAI's files -> why they cannot be ignored.
_CHANGES_AN_ENTRY = {
  **dict.fromkeys(
    ('tools', 'functions', 'tool_calls', 'function_call', 'tool_choice'), _TOOLS
  ),
  **dict.fromkeys(
    ('image', 'images', 'video', 'videos', 'audio', 'audios', 'media', 'files'),
    _MEDIA,
  ),
  **dict.fromkeys(
    ('chosen', 'rejected', 'completions', 'rankings'), _PREFERENCE
  ),
  **dict.fromkeys(
    ('loss_mask', 'mask', 'mask_history', 'train_on_input', 'train_on_inputs'),
    _LOSS,
  ),
  **dict.fromkeys(
    ('messages', 'instruction', 'input', 'output', 'history'),
    'a conversation is its "conversations" alone',
  ),
}
_CHANGES_A_TURN = {
  **_CHANGES_AN_ENTRY,
  'train_detail': _LOSS,
  **dict.fromkeys(
    ('thinking', 'reasoning', 'reasoning_content'),
    'an answer is its "value" alone, as the policy is to write it',
  ),
}
# Keys that say whether something is to be learned, and how much.
_VERDICTS = {'kto_tag': _PREFERENCE, 'label': _PREFERENCE}
_SHARES = dict.fromkeys(('weight', 'train', 'loss', 'trainable'), _LOSS)
_DESCRIBES = (
  'id',
  'idx',
  'source',
  'dataset',
  'language',
  'lang',
  'model',
  'name',
)


@dataclasses.dataclass(frozen=True)
class Conversation:
  """A prompt and the response to learn."""

  prompt: str
  response: str


def read(path: str | pathlib.Path) -> list[Conversation]:
  """All of a file, in its order.

  Raises ValueError, naming the entry, where one is not as above; OSError where
  the file cannot be read.
  """
  path = pathlib.Path(path)
  model_files.refuse_pointer(path)
  try:
    text = path.read_text(encoding='utf-8')
  except UnicodeDecodeError as error:
    raise ValueError(f'{path} is no UTF-8 text: {error}') from error
  ignored: set[str] = set()
  found = [
    _parse(value, where, ignored) for value, where in _entries(path, text)
  ]
  if ignored:
    _log.warning(
      '%s: keys that are not read: %s.', path, ', '.join(sorted(ignored))
    )
  if not found:
    raise ValueError(f'{path} holds no conversation.')
  return found


def write(path: str | pathlib.Path, rows: Iterable[Conversation]) -> int:
  """The number written; *.jsonl gets a line each, all others an array.

  The file is there whole or not at all.
  """
  path = pathlib.Path(path)
  lines = path.suffix == '.jsonl'
  partial = path.with_name(f'{path.name}.tmp')
  n = 0
  try:
    with partial.open('w', encoding='utf-8') as file:
      for row in rows:
        file.write('' if lines else ',\n' if n else '[\n')
        file.write(json.dumps(_entry(row), ensure_ascii=True))
        file.write('\n' if lines else '')
        n += 1
      file.write('' if lines else '\n]\n' if n else '[]\n')
    os.replace(partial, path)
  finally:
    partial.unlink(missing_ok=True)
  return n


def distinct(rows: Iterable[Conversation]) -> Iterator[Conversation]:
  """Equal ones once, where they come first."""
  return iter(dict.fromkeys(rows))


def _entry(row: Conversation) -> dict[str, Any]:
  turns = (('human', row.prompt), ('gpt', row.response))
  return {
    'conversations': [{'from': who, 'value': text} for who, text in turns]
  }


def _entries(path: pathlib.Path, text: str) -> Iterator[tuple[Any, str]]:
  """(value, where it is) of each."""
  if text.lstrip()[:1] == '[':
    try:
      values = json.loads(text)
    except (ValueError, RecursionError) as error:
      raise ValueError(f'{path} is no JSON: {error}') from error
    yield from zip(values, (f'{path}, entry {i}' for i in itertools.count()))
    return
  # Not splitlines: a text may hold other ends of lines than "\n".
  for number, line in enumerate(text.split('\n'), 1):
    if not line.strip():
      continue
    try:
      yield json.loads(line), f'{path}:{number}'
    except (ValueError, RecursionError) as error:
      raise ValueError(f'{path}:{number} is no JSON: {error}') from error


def _parse(value: Any, where: str, ignored: set[str]) -> Conversation:
  turns = value.get('conversations') if isinstance(value, dict) else None
  if not isinstance(turns, list):
    raise ValueError(f'{where} has no list "conversations".')
  if value.get('system'):
    raise ValueError(
      f'{where} has a system text, which is not supported: put it before the '
      'human turn.'
    )
  known = {'conversations', 'system'}
  _check_extras(value, known, _CHANGES_AN_ENTRY, where, ignored)
  said: dict[str, str] = {}
  for turn in turns:
    who = turn.get('from') if isinstance(turn, dict) else None
    text = turn.get('value') if isinstance(turn, dict) else None
    if who not in _SAID_BY or not isinstance(text, str):
      raise ValueError(
        f'{where}: a turn is not {{"from": "human" or "gpt", "value": TEXT}}; '
        f'{_SPLIT}.'
      )
    if who == 'gpt' and 'prompt' not in said or _SAID_BY[who] in said:
      raise ValueError(
        f'{where} has other turns than human and then gpt, which is not '
        f'supported; {_SPLIT}.'
      )
    if not parser.is_text(text):
      raise ValueError(
        f'{where}: its {who} turn holds a NUL or a lone surrogate, which is no '
        'text; take it out.'
      )
    its = f'{where}: its {who} turn'
    _check_extras(turn, {'from', 'value'}, _CHANGES_A_TURN, its, ignored, who)
    said[_SAID_BY[who]] = text
  if len(said) < 2:
    raise ValueError(f'{where} has no gpt turn after a human one.')
  if not said['response'].strip():
    raise ValueError(
      f'{where}: its gpt turn is empty, and to say nothing would be learned; leave '
      'the entry out.'
    )
  return Conversation(**said)


def _check_extras(
  record: dict[str, Any],
  known: set[str],
  changes: dict[str, str],
  where: str,
  ignored: set[str],
  who: str = 'gpt',
) -> None:
  """Raises ValueError for a key that would change what is learned.

  who: speaker of the turn; of a human's nothing is learned, and 0 says just that.
  """
  usual = 0 if who == 'human' else 1
  for key, value in record.items():
    if key in known or key in _DESCRIBES or value is None:
      continue
    if key in _VERDICTS:
      why = _VERDICTS[key] if value is False or value == 0 else ''
    elif key in _SHARES:
      why = _SHARES[key] if value != usual else ''
    else:
      empty = value in ('', '[]', '{}') or value == [] or value == {}
      why = '' if empty or value is False else changes.get(key, '')
      if key not in changes:
        ignored.add(key)
    if why:
      raise ValueError(
        f'{where} has {json.dumps(key)}: {json.dumps(value)[:40]}, which is not '
        f'supported: {why}. Leave such entries out, or the key where it is not meant.'
      )
