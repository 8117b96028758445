"""Answers that consist of named items, and the thoughts in front of them."""

from __future__ import annotations

import re
from collections.abc import Sequence

_OPEN, _SHUT = '<think>', '</think>'


def take_off_thoughts(text: str) -> tuple[str, str, bool]:
  """Returns (thoughts, the rest, are the thoughts left open).

  Only a `<think>` block that begins the text is taken off. A block that nothing
  closes leaves no rest.
  """
  begin = len(text) - len(text.lstrip())
  if not text.startswith(_OPEN, begin):
    return '', text, False
  inner = begin + len(_OPEN)
  end = text.find(_SHUT, inner)
  if end < 0:
    return text[inner:].strip(), '', True
  return text[inner:end].strip(), text[end + len(_SHUT) :], False


def split_items(text: str, names: Sequence[str]) -> dict[str, str] | str:
  """Splits a text into items `NAME:` that begin a line each.

  Returns name -> text of the item, without white space around it; or a sentence that
  says why it is not each of the names once, in their order, non-empty, with nothing
  in front of the first one.
  """
  choices = '|'.join(map(re.escape, names))
  heads = re.compile(rf'^[ \t]*({choices}):', re.M)
  # A text may hold a heading a million times: one too many settles it.
  found = []
  for head in heads.finditer(text):
    found.append(head)
    if len(found) > len(names):
      break
  named = [head[1] for head in found]
  for name in names:
    if name not in named:
      return f'{name} is missing'
    if named.count(name) > 1:
      return f'{name} is there twice'
  if named != list(names):
    return f'the items stand in the order {", ".join(named)}'
  if text[: found[0].start()].strip():
    return f'there is text in front of {names[0]}'
  ends = [head.start() for head in found[1:]] + [len(text)]
  items = {
    head[1]: text[head.end() : end].strip() for head, end in zip(found, ends)
  }
  for name, item in items.items():
    if not item:
      return f'{name} is empty'
  return items


def write_items(items: Sequence[tuple[str, str]]) -> str:
  """Writes items as `split_items` reads them: a line of its own for each name."""
  return '\n\n'.join(f'{name}:\n{text.strip()}' for name, text in items)
