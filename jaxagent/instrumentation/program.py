"""A program with marks in it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Protocol

from jaxagent.instrumentation import marks

_POINTER = re.compile(r' +[~^]+')


@dataclasses.dataclass(frozen=True)
class Instrumented:
  """The program that is run instead of the given one.

  code: the program with marks; as it was where none could be put in.
  placed: numbers of its marks (`marks.NAMES`).
  files: beside it in the workspace.
  collect: what it leaves in the workspace; '' where there are no marks.
  added: lines of `code` that the program does not have, ascending.
  put_in: texts within its other lines; the first begins one.
  refused: why an instrumenter's own answer was not used, '' where it was.
  paid: whether what it reaches can be a milestone. With Python's own modules
    alone no model is trained: else a program that copies a file would be paid
    for an import and for reading. True means that an import of another package
    stands somewhere in the text; the marks check that it ran.
  """

  code: str
  placed: tuple[int, ...] = ()
  files: Mapping[str, str | bytes] = dataclasses.field(default_factory=dict)
  collect: str = ''
  key: bytes = b''
  added: tuple[int, ...] = ()
  put_in: tuple[str, ...] = ()
  refused: str = ''
  paid: bool = True

  def reached(self, left: bytes | None) -> tuple[marks.Mark, ...]:
    """left: the collected file, None where there is none."""
    placed = self.placed if self.paid else ()
    return marks.read(left or b'', self.key, placed)

  def as_it_was(self, output: str, script: str) -> str:
    """The output with tracebacks as the program itself would give them.

    script: as which the code was run.
    """
    if not self.placed:
      return output
    lines: list[str | None] = [*output.split('\n')]
    for i, line in enumerate(lines):
      if line is None:
        continue
      own = line
      for text in self.put_in:
        own = own.replace(text, '')
      if own != line:
        lines[i] = own
        below = lines[i + 1] if i + 1 < len(lines) else None
        if below is not None and _POINTER.fullmatch(below):
          head = line.lstrip().startswith(self.put_in[0])
          lines[i + 1] = _moved(below, own, len(self.put_in[0]) if head else 0)
    name = re.escape(script)
    # Any output can look like a traceback; int() takes no more than 4,300 digits.
    return re.sub(
      rf'("[^"\n]*{name}", line |^[^\n:]*{name}:)(\d{{1,9}})(?!\d)',
      lambda found: f'{found[1]}{self._own(int(found[2]))}',
      '\n'.join(line for line in lines if line is not None),
      flags=re.M,
    )

  def _own(self, line: int) -> int:
    return line - sum(at < line for at in self.added)


def _moved(pointer: str, line: str, by: int) -> str | None:
  """Moves a traceback's pointer left; None if it marks the whole line."""
  moved = pointer.replace(' ' * by, '', 1)
  return None if moved.strip() == '^' * len(line.strip()) else moved


class Instrumenter(Protocol):
  """Puts marks into programs; blocking, called from many threads."""

  def instrument(self, code: str, key: bytes) -> Instrumented:
    """Puts marks in; a text that cannot be instrumented is returned as it is.

    Never raises.

    key: of this run of the program, up to 64 bytes; fresh each time.
    """
