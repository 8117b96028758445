"""Marks put into the text of a program, whose statements stay where they are.

After a simple statement the mark goes onto the same line, after a compound one
onto a new line. Nothing is printed anew from a tree: comments, line numbers and
the program's own source stay what they were.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import re
import sys
from collections.abc import Sequence

from jaxagent.instrumentation import marks
from jaxagent.instrumentation.program import Instrumented

# As Python counts them; `str.splitlines` parts at more.
_LINE = re.compile(r'[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+')
_COMPOUND = (
  ast.FunctionDef,
  ast.AsyncFunctionDef,
  ast.ClassDef,
  ast.If,
  ast.For,
  ast.AsyncFor,
  ast.While,
  ast.With,
  ast.AsyncWith,
  ast.Try,
  ast.TryStar,
  ast.Match,
)


@dataclasses.dataclass(frozen=True)
class Place:
  """After `statement`, the mark `number`.

  value: name of a variable of the program that then holds a loss or score.
  """

  number: int
  statement: ast.stmt
  value: str = ''


def insert(
  code: str, tree: ast.Module, places: Sequence[Place], key: bytes
) -> Instrumented:
  """The program with marks; without any where there is no place.

  tree: of `code`. Of one number there may be several places.
  """
  places = [p for p in places if not _reads_the_sample(p)]
  if not places:
    return Instrumented(code)
  name = 'progress_' + hashlib.blake2b(key, digest_size=6).hexdigest()
  lines = _LINE.findall(code)
  if lines and not lines[-1].endswith(('\n', '\r')):
    lines[-1] += '\n'
  inline, after = _sorted(places)
  head = _head(name)
  first = _first(tree)
  # From the end, so that places before it stay where they are, and those behind
  # the same statement in their order.
  for place in reversed(sorted(inline, key=_end)):
    line, column = _end(place)
    lines[line - 1] = _put(lines[line - 1], column, f'; {_call(name, place)}')
  new: dict[int, list[str]] = {}  # line that they follow -> new lines
  for place in after:
    statement = place.statement
    indent = _indent(lines[statement.lineno - 1], statement.col_offset)
    new.setdefault(statement.end_lineno, []).append(
      f'{indent}{_call(name, place)}\n'
    )
  if first is not None and not isinstance(first, _COMPOUND):
    line = first.lineno - 1
    lines[line] = _put(lines[line], first.col_offset, f'{head}; ')
  else:
    at = 0 if first is None else _begin(first) - 1
    new.setdefault(at, []).insert(0, f'{head}\n')
  made = _joined(lines, new, places, name, key)
  paid = any(map(_imports_a_package, ast.walk(tree)))
  return dataclasses.replace(made, paid=paid)


def reads_the_sample(statement: ast.stmt) -> bool:
  """Whether it is about the sample submission, which nothing is learned from."""
  return 'sample_submission' in ast.unparse(statement)


def _reads_the_sample(place: Place) -> bool:
  return place.number == marks.LOADED and reads_the_sample(place.statement)


def _imports_a_package(node: ast.AST) -> bool:
  if isinstance(node, ast.ImportFrom):
    names = [node.module or '']
  elif isinstance(node, ast.Import):
    names = [alias.name for alias in node.names]
  else:
    return False
  return any(n.split('.')[0] not in sys.stdlib_module_names for n in names)


def _joined(lines, new, places, name, key) -> Instrumented:
  text, added, number = [], [], 0
  moved = {}  # line of the program -> line of the text
  for old in range(len(lines) + 1):
    if old:
      number += 1
      moved[old] = number
      text.append(lines[old - 1])
    for line in new.get(old, ()):
      number += 1
      added.append(number)
      text.append(line)
  allowed: dict[int, list[int]] = {}
  for place in places:
    end = place.statement.end_lineno
    if isinstance(place.statement, _COMPOUND):
      at = range(moved[end] + 1, moved[end] + 1 + len(new[end]))
    else:
      at = (moved[end],)
    allowed.setdefault(place.number, []).extend(at)
  return Instrumented(
    ''.join(text),
    tuple(sorted(allowed)),
    marks.files(name, key, allowed),
    marks.marks_file(name),
    key,
    tuple(added),
    (f'{_head(name)}; ', *(f'; {_call(name, place)}' for place in places)),
  )


def _sorted(places: Sequence[Place]) -> tuple[list[Place], list[Place]]:
  """(those on a statement's own line, those on a new one)."""
  inline = [p for p in places if not isinstance(p.statement, _COMPOUND)]
  return inline, [p for p in places if isinstance(p.statement, _COMPOUND)]


def _head(name: str) -> str:
  return f'from {name} import mark as _{name}'


def _call(name: str, place: Place) -> str:
  value = f', {place.value}' if place.value else ''
  return f'_{name}({place.number}{value})'


def _end(place: Place) -> tuple[int, int]:
  return place.statement.end_lineno, place.statement.end_col_offset


def _begin(statement: ast.stmt) -> int:
  """Its first line, with its decorators."""
  decorators = getattr(statement, 'decorator_list', [])
  return min([statement.lineno, *(d.lineno for d in decorators)])


def _first(tree: ast.Module) -> ast.stmt | None:
  """The first statement that something may come before."""
  body = list(tree.body)
  if body and _is_text(body[0]):
    body = body[1:]
  while body and _is_future(body[0]):
    body = body[1:]
  return body[0] if body else None


def _is_text(statement: ast.stmt) -> bool:
  return (
    isinstance(statement, ast.Expr)
    and isinstance(statement.value, ast.Constant)
    and isinstance(statement.value.value, str)
  )


def _is_future(statement: ast.stmt) -> bool:
  return (
    isinstance(statement, ast.ImportFrom) and statement.module == '__future__'
  )


def _put(line: str, column: int, text: str) -> str:
  """column: in bytes of UTF-8, as the tree counts."""
  data = line.encode()
  return (data[:column] + text.encode() + data[column:]).decode()


def _indent(line: str, column: int) -> str:
  return line.encode()[:column].decode()
