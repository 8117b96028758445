"""Conversations for supervised fine-tuning, in ShareGPT's layout.

A file is a JSON array, or a JSON object a line, of

  {"conversations": [{"from": "human", "value": PROMPT},
                     {"from": "gpt", "value": RESPONSE}]}

as LLaMA-Factory (its data/README.md, "ShareGPT format") and others read and write
it. Ours have one turn each: an agent's step is prompted with all that it is shown.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

from jaxagent.envs import parser

_SAID_BY = {'human': 'prompt', 'gpt': 'response'}
_SPLIT = 'split it into conversations of one human and one gpt turn'


@dataclasses.dataclass(frozen=True)
class Conversation:
  """What was asked, and the answer to learn."""

  prompt: str
  response: str


def read(path: str | pathlib.Path) -> list[Conversation]:
  """All of a file, in its order.

  Raises ValueError, naming the entry, where one is not as above; OSError where
  the file cannot be read.
  """
  path = pathlib.Path(path)
  try:
    text = path.read_text(encoding='utf-8')
  except UnicodeDecodeError as error:
    raise ValueError(f'{path} is no UTF-8 text: {error}') from error
  found = [_parse(value, where) for value, where in _entries(path, text)]
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
  return {'conversations': [{'from': who, 'value': text} for who, text in turns]}


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


def _parse(value: Any, where: str) -> Conversation:
  turns = value.get('conversations') if isinstance(value, dict) else None
  if not isinstance(turns, list):
    raise ValueError(f'{where} has no list "conversations".')
  if value.get('system'):
    raise ValueError(
      f'{where} has a system text, which is not supported: put it before the '
      'human turn.'
    )
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
    said[_SAID_BY[who]] = text
  if len(said) < 2:
    raise ValueError(f'{where} has no gpt turn after a human one.')
  return Conversation(**said)
