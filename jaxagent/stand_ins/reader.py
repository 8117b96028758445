"""Reader and helper stand-ins: no model reads, no person answers."""

from __future__ import annotations

import re

MAX_LINES = 60
_MARKS = ('import ', 'from ', 'def ', 'class ', 'model', 'pred')
_WORD = re.compile(r'\w{4,}')


class ScriptedReader:
  """Tells the lines that make up a script, and those that were asked for."""

  name = 'scripted_reader'
  is_stand_in = True

  def describe(self, text: str, wanted: str) -> str:
    """Imports, definitions, the model, and lines with a word of `wanted`."""
    lines = text.split('\n')
    words = {word.lower() for word in _WORD.findall(wanted)}
    told = [
      f'{number}: {line}'
      for number, line in enumerate(lines, 1)
      if line.startswith(_MARKS) or '.fit(' in line or _has(line, words)
    ]
    return f'{len(lines)} lines. Relevant lines:\n' + '\n'.join(
      told[:MAX_LINES]
    )

  def reflect(self, problem: str, log: str, things: str) -> str:
    entries = log.strip() or 'nothing was noted so far'
    return f'On {_one_line(things)}: the research log says: {entries}'

  def retrieve(self, problem: str, log: str, plan: str) -> str:
    """The log's lines that share a word with the plan; else its last ones."""
    lines = [line for line in log.split('\n') if line.strip()]
    words = {word.lower() for word in _WORD.findall(plan)}
    found = [line for line in lines if _has(line, words)]
    return '\n'.join((found or lines)[-10:]) or 'The research log is empty.'


class NoHelper:
  """Helper that answers that none is available."""

  name = 'no_helper'
  is_stand_in = True

  def answer(self, request: str) -> str:
    return 'No help is available in this run; go on with the tools.'


def _has(line: str, words: set[str]) -> bool:
  return any(word.lower() in words for word in _WORD.findall(line))


def _one_line(text: str) -> str:
  return ' '.join(text.split())[:200]
