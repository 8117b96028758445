"""Reads an Ideator's answer: three items and nothing else (paper 001, 3.1)."""

from __future__ import annotations

import dataclasses
import itertools
import re

from jaxagent.envs.agents import items
from jaxagent.envs.parser import is_text

ITEMS = ('ANALYSIS_ON_CURRENT_PROGRESS', 'ACTION', 'RATIONALE')
MOST_CHARACTERS = 50_000  # of an answer without its thoughts
_NAMED = {name: re.compile(rf'\b{name}:') for name in ITEMS}
_PARAGRAPH = re.compile(r'\n[ \t\r]*+\n')


@dataclasses.dataclass(frozen=True)
class Idea:
  """One idea, each item without white space around it.

  thoughts: what its model thought in front of it; the Implementer never sees them.
  """

  analysis: str
  action: str
  rationale: str
  thoughts: str = ''

  @property
  def text(self) -> str:
    """The three items, as the Implementer is shown them."""
    values = (self.analysis, self.action, self.rationale)
    return items.write_items(list(zip(ITEMS, values)))


@dataclasses.dataclass(frozen=True)
class FormatError:
  """An answer that is no idea, as a value. reason: a sentence without its point."""

  reason: str


def parse_idea(text: str) -> Idea | FormatError:
  """Reads an answer; never raises, and takes under 10 ms for 1 MB of anything.

  An item begins a line, and the last one is a paragraph: what follows a blank line
  is text after it. The name of one with its colon may stand nowhere else, not
  in code either: what an ACTION holds would depend on the reader.
  """
  if not isinstance(text, str):
    return FormatError(f'the answer is {type(text).__name__}, no text')
  thoughts, rest, is_open = items.take_off_thoughts(text)
  if is_open:
    return FormatError('the <think> block is not closed')
  if len(rest) > MOST_CHARACTERS:
    return FormatError(
      f'the answer has {len(rest)} characters; the most is {MOST_CHARACTERS}'
    )
  if not is_text(rest):
    return FormatError('the answer holds a NUL or a lone surrogate')
  read = items.split_items(rest, ITEMS)
  if isinstance(read, str):
    return FormatError(read)
  if name := _named_again(rest):
    return FormatError(f'{name}: stands within an item, too')
  if _PARAGRAPH.search(read['RATIONALE']):
    return FormatError('there is text after the paragraph of RATIONALE')
  analysis, action, rationale = (read[name] for name in ITEMS)
  return Idea(analysis, action, rationale, thoughts)


def _named_again(text: str) -> str:
  """The first item whose name with its colon stands in more than one place, or ''."""
  for name in ITEMS:
    if text.count(f'{name}:') > 1:  # it may end a longer word
      places = _NAMED[name].finditer(text)
      if len([*itertools.islice(places, 2)]) > 1:
        return name
  return ''


def write_idea(idea: Idea) -> str:
  """Writes an answer that `parse_idea` reads as that idea, without its thoughts.

  Raises ValueError where it would be read as another one.
  """
  read = parse_idea(idea.text)
  if read != dataclasses.replace(idea, thoughts=''):
    raise ValueError(f'{idea!r:.200} is read as {read!r:.200}.')
  return idea.text
