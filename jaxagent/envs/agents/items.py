"""Answers that consist of named items, and the thoughts in front of them."""

from __future__ import annotations

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
  found = [head for name in names for head in _heads(text, name)]
  named = [name for _, name in found]
  for name in names:
    if name not in named:
      return f'{name} is missing'
    if named.count(name) > 1:
      return f'{name} is there twice'
  found.sort()
  if (named := [name for _, name in found]) != list(names):
    return f'the items stand in the order {", ".join(named)}'
  if text[: found[0][0]].strip():
    return f'there is text in front of {names[0]}'
  ends = [place for place, _ in found[1:]] + [len(text)]
  items = {
    name: text[place + len(name) + 1 : end].strip()
    for (place, name), end in zip(found, ends)
  }
  for name, item in items.items():
    if not item:
      return f'{name} is empty'
  return items


def _heads(text: str, name: str) -> list[tuple[int, str]]:
  """The first two places at which `NAME:` begins a line, white space in front or not.

  No regular expression: one that looks at each line takes 10 ms for a long text.
  """
  head = f'{name}:'
  found: list[tuple[int, str]] = []
  at = text.find(head)
  while at >= 0 and len(found) < 2:
    line = text.rfind('\n', 0, at) + 1
    if not text[line:at].strip(' \t'):
      found.append((at, name))
    # What else stands on the line does not begin it.
    end = text.find('\n', at)
    at = text.find(head, end) if end >= 0 else -1
  return found


def write_items(items: Sequence[tuple[str, str]]) -> str:
  """Writes items as `split_items` reads them: a line of its own for each name."""
  return '\n\n'.join(f'{name}:\n{text.strip()}' for name, text in items)
