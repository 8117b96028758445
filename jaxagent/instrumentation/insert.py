"""Marks put into the text of a program, whose statements stay where they are.

After a simple statement the mark goes onto the same line, after a compound one
onto a new line. Nothing is printed anew from a tree: comments, line numbers and
the program's own source stay what they were.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import itertools
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jaxagent.instrumentation import marks
from jaxagent.instrumentation.program import Instrumented
from jaxagent.instrumentation.source import blocks, compiled, statements

# As Python counts them; `str.splitlines` parts at more.
_LINE = re.compile(r'[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+')
# What follows a statement on its line where a backslash leads on to the next.
_LEADS_ON = re.compile(rb'[ \t\f;]*\\(?:\r\n|\r|\n)')
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
# Marked imports of a program. One that runs is enough for all its milestones,
# so what imports more loses nothing; each takes time and a place in the text.
_MOST_IMPORTS = 100


@dataclasses.dataclass(frozen=True)
class Place:
  """Place of the mark `number`: after `statement`.

  value: argument of the mark: the name of a variable of the program that then
    holds a loss or score.
  """

  number: int
  statement: ast.stmt
  value: str = ''


def insert(
  code: str, tree: ast.Module, places: Sequence[Place], key: bytes
) -> Instrumented:
  """The program with marks; without any where there is no place.

  tree: of `code`. Of one number there may be several places; those where no mark
  can stand are left out. Raises one of `source.FAULTS` where what is made does not
  compile, or is more than the program and its marks.
  """
  within = {id(s): s for s in statements(tree.body)}
  for statement in _before(tree):
    del within[id(statement)]
  places = [
    p for p in places if id(p.statement) in within and not _reads_the_sample(p)
  ]
  if not places:
    return Instrumented(code)
  # First, so that a mark behind the same import finds it done.
  imports = _imports(within.values())
  places = [*imports, *places]
  name = 'progress_' + hashlib.blake2b(key, digest_size=6).hexdigest()
  made = _joined(code, tree, places, name, key)
  _compare(made.code, tree, places, name)
  return dataclasses.replace(made, paid=bool(imports))


def reads_the_sample(statement: ast.stmt) -> bool:
  """Whether it is about the sample submission, which nothing is learned from."""
  return 'sample_submission' in ast.unparse(statement)


def _reads_the_sample(place: Place) -> bool:
  return place.number == marks.LOADED and reads_the_sample(place.statement)


def _imports(within: Iterable[ast.stmt]) -> list[Place]:
  """Finds statements that may just have imported a package not Python's own."""
  found = []
  for statement in within:
    if names := _packages(statement):
      found.append(Place(marks.PACKAGE, statement, repr(' '.join(names))))
    if len(found) == _MOST_IMPORTS:
      break
  return found


def _packages(statement: ast.stmt) -> list[str]:
  if isinstance(statement, ast.ImportFrom) and not statement.level:
    names = [statement.module or '']
  elif isinstance(statement, ast.Import):
    names = [alias.name for alias in statement.names]
  else:
    return []
  top = [name.split('.')[0] for name in names]
  return [name for name in top if name not in sys.stdlib_module_names]


def _joined(
  code: str, tree: ast.Module, places: Sequence[Place], name: str, key: bytes
) -> Instrumented:
  lines = _LINE.findall(code)
  if lines and not lines[-1].endswith(('\n', '\r')):
    lines[-1] += '\n'
  edits: dict[int, list[tuple[int, str]]] = {}  # line -> column, text
  new: dict[int, list[str]] = {}  # line that they follow -> new lines
  _put_head(lines, tree, name, edits, new)
  ends: dict[int, int] = {}  # of compound statements, by id: line
  # Of those that end together the inner one first.
  for place in sorted(places, key=lambda p: -p.statement.col_offset):
    statement, call = place.statement, _call(name, place)
    if isinstance(statement, _COMPOUND):
      end = ends[id(statement)] = _last_line(lines, statement)
      indent = _indent(lines[statement.lineno - 1], statement.col_offset)
      new.setdefault(end, []).append(f'{indent}{call}\n')
  for place in places:
    if id(place.statement) not in ends:
      end, column = _end(place.statement)
      edits.setdefault(end, []).append((column, f'; {_call(name, place)}'))
  for line, of_line in edits.items():
    lines[line - 1] = _edited(lines[line - 1], of_line)
  text, added, moved = _merged(lines, new)
  allowed: dict[int, list[int]] = {}
  for place in places:
    if id(place.statement) in ends:
      end = ends[id(place.statement)]
      at = [*range(moved[end] + 1, moved[end] + 1 + len(new[end]))]
    else:
      at = [moved[_end(place.statement)[0]]]
    allowed.setdefault(place.number, []).extend(at)
  calls = dict.fromkeys(f'; {_call(name, place)}' for place in places)
  return Instrumented(
    text,
    tuple(sorted(set(allowed) - {marks.PACKAGE})),
    marks.files(name, key, allowed),
    marks.marks_file(name),
    key,
    added,
    (f'{_head(name)}; ', *calls),
  )


def _put_head(lines: Any, tree: Any, name: str, edits: Any, new: Any) -> None:
  """Inserts the head before all but what Python requires first."""
  before = _before(tree)
  first = _first(tree)
  assert first is not None  # there are places, which follow statements
  if not isinstance(first, _COMPOUND):
    edits[first.lineno] = [(first.col_offset, f'{_head(name)}; ')]
    return
  # Where the one before ends: a decorator may begin lines before what it says.
  at = _last_line(lines, before[-1]) if before else 0
  new[at] = [f'{_head(name)}\n']


def _merged(
  lines: Sequence[str], new: Mapping[int, Sequence[str]]
) -> tuple[str, tuple[int, ...], dict[int, int]]:
  """(text, its new lines, line of the program -> line of the text)."""
  text, added, moved = [], [], {}
  for old in range(len(lines) + 1):
    if old:
      text.append(lines[old - 1])
      moved[old] = len(text)
    for line in new.get(old, ()):
      text.append(line)
      added.append(len(text))
  return ''.join(text), tuple(added), moved


def _compare(
  text: str, tree: ast.Module, places: Sequence[Place], name: str
) -> None:
  """Raises ValueError where `text` is not the program and its marks.

  In a program of unusual layout a mark can land in another block or within a
  string.
  """
  behind: dict[int, list[str]] = {}
  for place in places:
    behind.setdefault(id(place.statement), []).append(_call(name, place))
  first = _first(tree)

  def compare(own: list[ast.stmt], made: list[ast.stmt]) -> None:
    wanted: list[ast.stmt | str] = []
    for statement in own:
      wanted += [_head(name)] if statement is first else []
      wanted += [statement, *behind.get(id(statement), ())]
    for one, other in itertools.zip_longest(wanted, made):
      if isinstance(one, str):
        same = other is not None and ast.unparse(other) == one
      else:
        same = type(one) is type(other)
      if not same:
        raise ValueError('a mark would not stand where it belongs.')
      if isinstance(one, ast.stmt):
        none: list[ast.stmt] = []
        pairs = itertools.zip_longest(
          blocks(one), blocks(other), fillvalue=none
        )
        for of_one, of_other in pairs:
          compare(of_one, of_other)

  compare(tree.body, compiled(text).body)


def _head(name: str) -> str:
  return f'from {name} import mark as _{name}'


def _call(name: str, place: Place) -> str:
  value = f', {place.value}' if place.value else ''
  return f'_{name}({place.number}{value})'


def _end(statement: ast.stmt) -> tuple[int, int]:
  """(line, column) behind a statement that was parsed."""
  line, column = statement.end_lineno, statement.end_col_offset
  assert line is not None and column is not None
  return line, column


def _last_line(lines: Sequence[str], statement: ast.stmt) -> int:
  """The line that it ends, with those that a backslash only leads on to."""
  line, column = _end(statement)
  rest = lines[line - 1].encode()[column:]
  while _LEADS_ON.fullmatch(rest) and line < len(lines):
    line += 1
    rest = lines[line - 1].encode()
  return line


def _before(tree: ast.Module) -> list[ast.stmt]:
  """The statements that nothing may come before: its text, and futures."""
  body, at = tree.body, 0
  if body and _is_text(body[0]):
    at = 1
  while at < len(body) and _is_future(body[at]):
    at += 1
  return body[:at]


def _first(tree: ast.Module) -> ast.stmt | None:
  """The first statement that something may come before."""
  return next(iter(tree.body[len(_before(tree)) :]), None)


def _is_text(statement: ast.stmt) -> bool:
  return (
    isinstance(statement, ast.Expr)
    and isinstance(statement.value, ast.Constant)
    and isinstance(statement.value.value, str)
  )


def _is_future(statement: ast.stmt) -> bool:
  return (
    isinstance(statement, ast.ImportFrom)
    and statement.module == '__future__'
    and not statement.level
  )


def _edited(line: str, edits: Sequence[tuple[int, str]]) -> str:
  """columns: in bytes of UTF-8, as the tree counts."""
  data, parts, at = line.encode(), [], 0
  for column, text in sorted(edits, key=lambda edit: edit[0]):
    parts += [data[at:column], text.encode()]
    at = column
  return b''.join([*parts, data[at:]]).decode()


def _indent(line: str, column: int) -> str:
  return line.encode()[:column].decode()
