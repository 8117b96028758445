"""What a model card prints of a run's text: one line, inert in Markdown, no places.

A place is where something is on a machine or in a network: a path, an address, an
account. A relative path without `..` is none: it may as well be the name of a model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

LEFT_OUT = '(a place, left out)'
# Last parts of options whose values are places.
_OPTIONS = frozenset(
  """address addresses conversations dir dirs file files host hosts image images path
  paths python url urls""".split()
)
_END = r'[^\s"\'`|,;]*'
_START = r'[^\s"\'`|,;]{0,256}'  # bounded: the search is linear in the text
_PLACE = re.compile(
  '|'.join(
    (
      rf'(?<![\w+.-])[\w+.-]*://{_END}',
      rf'(?<![\w.+-])[\w.+-]+@[\w-]+\.{_END}',  # an account: of a mail or of ssh
      rf'{_START}\.\.[/\\]{_END}',
      r'(?<![\w.])\.\.(?![\w.])',
      rf'(?<![\w.~])~(?=[A-Za-z_/\\]|$|\s){_END}',
      # A root; not the slash of a fraction or of a closing tag.
      rf'(?<![\w.~*/])(?<!</)/(?!\w+>)(?=[^\s/]){_END}',
      rf'{_START}/(?:home|root|Users)/{_END}',
      rf'(?<!\w)[A-Za-z]:[\\/]{_END}',
      rf'\\\\\w{_END}',
      r'(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?!\w)(?::\d+)?',
      r'\[?(?<![\w:])(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{1,4}(?![\w:])(?:\]:\d+)?',
      # HOST:PORT; `paper:123/train` is a pattern of tasks.
      rf'(?<![\w.-])(?!paper:)\w[\w.-]*:[1-9]\d{{1,4}}(?![\w.]){_END}',
    )
  )
)
_MARKS = re.compile(
  r'[\\`|<>\[\]*~&$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|(?<=www)\.', re.I
)


def cell(value: Any) -> str:
  """Returns text that stands in a line or a table of Markdown as it is read."""
  return _MARKS.sub(r'\\\g<0>', _line(value)).replace('@', '(at)')


def code(value: Any) -> str:
  """Returns a code span."""
  return '`' + (_line(value).replace('`', '"') or ' ') + '`'


def public(value: Any, name: str = '') -> Any:
  """Returns a JSON value without places.

  name: of the option whose value it is. Of the option `recipe` the file name is kept.
  """
  if isinstance(value, Mapping):
    return {without_places(str(k)): public(v, str(k)) for k, v in value.items()}
  if isinstance(value, list):
    return [public(item, name) for item in value]
  if not isinstance(value, str) or not value:
    return value
  if name == 'recipe':
    value = re.split(r'[/\\]', value)[-1]
  is_place = name.rpartition('_')[2] in _OPTIONS or _PLACE.search(value)
  return LEFT_OUT if is_place else value


def without_places(text: str) -> str:
  """Returns text with each place replaced by LEFT_OUT."""
  return _PLACE.sub(LEFT_OUT, text)


def _line(value: Any) -> str:
  """Text of a value in one line that can be printed, without places."""
  words = ' '.join(str(value).split())
  return without_places(''.join(c for c in words if c.isprintable()))
