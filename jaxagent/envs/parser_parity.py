"""MLAgentBench's own parser of responses, in linear time.

Its rules, as its environment showed them (tests/golden, `parse_action_input`)
and its agent class at 5d71205 has them, written anew: the original matches
with greedy patterns. Here a label's place is searched for from the end, which
finds what a greedy pattern finds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

# What the original escapes before it reads malformed JSON a second time. The
# slash is among them, so that a path guessed from such JSON holds `\/`.
_ESCAPES = str.maketrans(
  {
    '\\': '\\\\',
    '/': '\\/',
    '\b': '\\b',
    '\f': '\\f',
    '\r': '\\r',
    '\t': '\\t',
  }
)


class ParityError(ValueError):
  """The original gives an error here."""


def _spans(
  text: str, labels: Sequence[str], separator: str = ''
) -> list[str] | None:
  """The text after each label up to the next; None where one is missing.

  The first label is the first of its kind, every other one the last before
  the next. With a separator, only labels that follow it and blanks count.
  """
  values: list[str] = []
  end = limit = len(text)  # the value's end; where the next label starts
  start = -1
  for label in reversed(labels[1:]):
    while True:
      start = text.rfind(label, 0, limit)
      if start < 0:
        return None
      stop = start
      if separator:
        while stop > 0 and text[stop - 1].isspace():
          stop -= 1
        if not text.endswith(separator, 0, stop):
          limit = start + len(label) - 1
          continue
        stop -= len(separator)
      break
    values.append(text[start + len(label) : end])
    end = limit = stop
  start = text.find(labels[0], 0, limit)
  if start < 0:
    return None
  values.append(text[start + len(labels[0]) : end])
  return values[::-1]


def entries(text: str, names: Sequence[str]) -> dict[str, str]:
  """Entry name -> its text, up to the stop text `Observation:`."""
  text = text.split('Observation:', 1)[0]
  values = _spans(text, [f'{name}:' for name in names])
  if values is None:
    raise ParityError(f'The response needs, in this order: {", ".join(names)}.')
  return dict(zip(names, (v.strip() for v in values), strict=True))


def _escaped(text: str) -> str:
  """Malformed JSON with what may not stand in its strings escaped."""
  text = text.strip('`json').strip('`').strip().translate(_ESCAPES)
  parts = text.split('"')
  # Odd parts stand between quotes, but for a last one that is not closed.
  for index in range(1, len(parts) - 1, 2):
    parts[index] = parts[index].replace('\n', '\\n')
  return '"'.join(parts)


def action_input(text: str, names: Sequence[str]) -> dict[str, object]:
  """Argument -> value: by JSON if it has just these keys, else by search."""
  value: object = None
  try:
    value = json.loads(text)
  except (ValueError, RecursionError):
    text = _escaped(text)
    try:
      value = json.loads(text)
    except (ValueError, RecursionError):
      pass
  if isinstance(value, dict) and set(value) == set(names):
    return value
  inner = text[text.find('{') + 1 :]
  # Where no brace closes, the original drops the last character.
  inner = inner[: inner.rfind('}')]
  values = _spans(inner, [f'"{name}":' for name in names], ',')
  if values is None:
    raise ParityError(
      'The action input does not hold the arguments, in this order: '
      f'{", ".join(names)}.'
    )
  return {n: v.strip().strip('"') for n, v in zip(names, values, strict=True)}
