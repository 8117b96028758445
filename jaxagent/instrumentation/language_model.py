"""Places of marks by a frozen language model (paper 003, appendix C.3).

The model is asked for the program with prints in it. Its text is never run: it
is compared with the program, and where it says nothing else, the places of its
prints get marks. A model that rewrites, shortens or answers nonsense is refused.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from jaxagent.files import fences
from jaxagent.instrumentation import marks
from jaxagent.instrumentation.insert import Place, insert
from jaxagent.instrumentation.program import Instrumented
from jaxagent.instrumentation.source import FAULTS, parse

_PROMPT = """\
Please insert print statements in the given python script. The print statements \
are supposed to reflect the progress of executing a script that solves a Kaggle \
challenge machine learning benchmark. These print statements will be used to \
debug the python script so it needs to capture the progress of execution.

Print Statements:
{statements}

Requirements:
- Only insert print statement AFTER an operation is actually performed (e.g., data \
have actually been loaded).
- Insert print statements for "training loss:" and "testing loss:" if applicable \
(i.e., the code actually computes training or testing losses).
- Output the entire python script after inserting print statements in a single \
markdown code block (wrapped in ```).
- Do not modify the original python code, other than inserting print statements.

Now please insert print statements for this python script:
{code}
"""


def prompt(code: str) -> str:
  """Returns the prompt of the instrumenter."""
  statements = '\n'.join(f'print("{name}")' for name in marks.NAMES)
  return _PROMPT.format(statements=statements, code=code)


def instrument(code: str, answer: str, key: bytes) -> Instrumented:
  """Returns the program with marks where the model's answer prints; never raises.

  answer: without the model's thoughts. Of several blocks the last one counts that is
    the program with prints in it.
  `refused` says why there are none: the answer has no code, or another program.
  """
  try:
    own = parse(code)
  except FAULTS as error:
    return Instrumented(code, refused=f'the program: {error}')
  refused = ''
  for told in _programs(answer):
    try:
      places = _places(own, parse(told))
    except FAULTS as error:
      refused = refused or f'the answer: {error}'
      continue
    if places:
      break
    refused = refused or 'the answer: it prints no milestone.'
  else:
    return Instrumented(code, refused=refused)
  try:
    return insert(code, own, places, key)
  except FAULTS as error:
    return Instrumented(code, refused=f'the marks: {error}')


def _programs(answer: str) -> list[str]:
  """Returns candidates for the program, the likeliest first: the last block."""
  found = fences.blocks(answer, _parses)
  return [block.code for block in reversed(found)] or [answer]


def _parses(code: str) -> bool:
  try:
    parse(code)
    return True
  except FAULTS:
    return False


def _places(own: ast.Module, told: ast.Module) -> list[Place]:
  """Raises ValueError where the two differ in more than prints."""
  places: list[Place] = []
  for of_own, of_told in _blocks(own, told):
    kept = [s for s in of_own if not _is_print(s)]
    at = -1
    for statement in of_told:
      if not _is_print(statement):
        at += 1
      elif at >= 0 and (number := _number(statement)) is not None:
        places.append(Place(number, kept[at]))
  return places


def _blocks(
  own: ast.AST, told: ast.AST
) -> Iterator[tuple[list[ast.stmt], list[ast.stmt]]]:
  """Blocks of statements in both, side by side."""
  if type(own) is not type(told):
    raise ValueError(
      f'line {getattr(own, "lineno", 0)}: another {type(told).__name__}.'
    )
  for name, of_own in ast.iter_fields(own):
    of_told = getattr(told, name, None)
    if isinstance(of_own, list) and isinstance(of_told, list):
      yield from _side_by_side(own, name, of_own, of_told)
    elif isinstance(of_own, ast.AST) and isinstance(of_told, ast.AST):
      yield from _blocks(of_own, of_told)
    elif of_own != of_told or type(of_own) is not type(of_told):
      raise ValueError(
        f'line {getattr(own, "lineno", 0)}: {of_told!r}, not {of_own!r}.'
      )


def _side_by_side(parent: Any, name: str, of_own: Any, of_told: Any):
  block = of_own, of_told
  of_statements = any(isinstance(s, ast.stmt) for s in (*of_own, *of_told))
  if of_statements:
    of_own = [s for s in of_own if not _is_print(s)]
    of_told = [s for s in of_told if not _is_print(s)]
  if len(of_own) != len(of_told):
    raise ValueError(
      f'line {getattr(parent, "lineno", 1)}: {len(of_told)} parts of '
      f'{type(parent).__name__}.{name}, not {len(of_own)}.'
    )
  if of_statements:  # only now: a place is found by counting statements
    yield block
  for one, other in zip(of_own, of_told):
    if isinstance(one, ast.AST):
      yield from _blocks(one, other)
    elif one != other:
      raise ValueError(
        f'line {getattr(parent, "lineno", 1)}: {other!r}, not {one!r}.'
      )


def _is_print(node: ast.AST) -> bool:
  return (
    isinstance(node, ast.Expr)
    and isinstance(node.value, ast.Call)
    and isinstance(node.value.func, ast.Name)
    and node.value.func.id == 'print'
  )


def _number(statement: ast.stmt) -> int | None:
  """Returns the milestone that a print reports; None for any other print."""
  assert isinstance(statement, ast.Expr)  # `_is_print`
  assert isinstance(statement.value, ast.Call)
  arguments = statement.value.args
  text = _beginning(arguments[0]).strip().lower() if arguments else ''
  for number, name in enumerate(marks.NAMES):
    if text.startswith(name.rstrip(':')):
      return number
  return None


def _beginning(node: ast.expr) -> str:
  if isinstance(node, ast.Constant) and isinstance(node.value, str):
    return node.value
  if isinstance(node, ast.JoinedStr) and node.values:
    return _beginning(node.values[0])
  return _beginning(node.left) if isinstance(node, ast.BinOp) else ''
