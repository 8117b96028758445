"""The text of a program as Python reads it: parsed, and walked."""

from __future__ import annotations

import ast
import codecs
import io
import tokenize
import warnings
from collections.abc import Iterator

from jaxagent.files import syntax

MOST_CHARACTERS = 200_000  # a longer program is run as it is
# All that reading a text can raise.
FAULTS = syntax.PARSE_ERRORS
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def parse(code: str) -> ast.Module:
  """Raises one of FAULTS; says nothing.

  A file is run as bytes and may declare their encoding. In another than UTF-8
  it is not the program that its text shows, and what is put into it could be
  read otherwise: that is refused.
  """
  if len(code) > MOST_CHARACTERS:
    raise ValueError(f'{len(code)} characters are more than {MOST_CHARACTERS}.')
  data = code.encode()
  # Python looks for the declaration in the first two lines as it counts them;
  # `detect_encoding` alone would not part them at a lone carriage return.
  plain = data.replace(b'\r\n', b'\n').replace(b'\r', b'\n')
  encoding, _ = tokenize.detect_encoding(io.BytesIO(plain).readline)
  if codecs.lookup(encoding).name != 'utf-8':
    raise ValueError(f'encoded as {encoding}, not as UTF-8.')
  return syntax.parse(data)


def compiled(code: str) -> ast.Module:
  """The tree of a program that is run; raises what `parse` does.

  What compiles is less than what parses: `return` outside of a function.
  """
  data = code.encode()
  with warnings.catch_warnings():
    warnings.simplefilter('ignore')
    compile(data, 'program', 'exec', dont_inherit=True)
  return syntax.parse(data)


def blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
  """Yields the blocks indented below a statement, in the order of the text."""
  for _, value in ast.iter_fields(node):
    if not isinstance(value, list) or not value:
      continue
    if isinstance(value[0], ast.stmt):
      yield value
    for part in value:
      if isinstance(part, (ast.ExceptHandler, ast.match_case)):
        yield part.body


def statements(
  body: list[ast.stmt], in_class: bool = False
) -> Iterator[ast.stmt]:
  """All that may be marked: in the order of the text, those inside of others
  after them.

  Not those that run in the body of a class: names are looked up in a mapping
  there, which a metaclass may make to say anything of the mark's.
  """
  for statement in body:
    if not in_class:
      yield statement
    inside = isinstance(statement, ast.ClassDef) or (
      in_class and not isinstance(statement, _FUNCTIONS)
    )
    for block in blocks(statement):
      yield from statements(block, inside)
