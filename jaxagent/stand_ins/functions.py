"""Scripts without a model line, as the scripted editor changes them.

What it knows of them is `ways.WAYS`: a function by name, a way to compute it in plain
English, and the code of that way. It also sets constants.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import libcst as cst

from jaxagent.envs.interfaces import EditRefused
from jaxagent.envs.model_line import model_line, step_names
from jaxagent.stand_ins import pipeline
from jaxagent.stand_ins.ways import WAYS

_COMPUTE = re.compile(
  r'(?:now )?(?:compute|rewrite|let)\s+(\w+)\s+(?:with|by|use)\s+(.+)', re.I
)
_SET = re.compile(r'(?:set|change)\s+([A-Z][A-Z_]*)\s+to\s+(\S+)', re.I)
_MOST = 10_000  # of a number in an instruction


def knows(script: str) -> bool:
  """Whether a script has no model line, but a function that the table has."""
  return not model_line(script) and any(n in WAYS for n in step_names(script))


def edited(script: str, clauses: Sequence[str]) -> str:
  """Returns the script after these instructions; raises EditRefused."""
  module = pipeline.parse_module(script)
  for clause in clauses:
    text = clause.strip().rstrip('.')
    if found := _COMPUTE.fullmatch(text):
      module = _computed(module, found[1], found[2])
    elif found := _SET.fullmatch(text):
      module = _constant_set(module, found[1], found[2])
    else:
      raise EditRefused(f'do not know how to do: {text[:80]}')
  return module.code


def _code_of(name: str, way: str) -> str:
  """The code of a way to compute a function. Raises EditRefused."""
  for one in WAYS.get(name, ()):
    pattern = re.escape(one.words).replace(r'\{n\}', r'(\d+)')
    found = re.fullmatch(pattern, way.strip(), re.I)
    if found is None:
      continue
    number = found[1] if found.groups() else '1'
    if len(number) > 5 or not 0 < int(number) <= _MOST:
      raise EditRefused(f'{number[:20]} is no sensible number')
    return one.code.replace('{n}', str(int(number)))
  raise EditRefused(f'do not know how to compute {name[:40]} so')


def _computed(module: cst.Module, name: str, way: str) -> cst.Module:
  code = cst.parse_module(_code_of(name, way).strip() + '\n').body[0]
  body = list(module.body)
  for index, node in enumerate(body):
    if isinstance(node, cst.FunctionDef) and node.name.value == name:
      assert isinstance(code, cst.FunctionDef)  # the table has no other
      body[index] = code.with_changes(leading_lines=node.leading_lines)
      return module.with_changes(body=body)
  raise EditRefused(f'the script has no function {name}')


def _constants(module: cst.Module, name: str) -> list[int]:
  """Places of the top-level lines `name = ...`."""
  return [
    index
    for index, line in enumerate(module.body)
    if isinstance(line, cst.SimpleStatementLine)
    and isinstance(line.body[0], cst.Assign)
    and pipeline.is_name(line.body[0].targets[0].target, name)
  ]


def _constant_set(module: cst.Module, name: str, value: str) -> cst.Module:
  places = _constants(module, name)
  if not places or not name.isupper():
    raise EditRefused(f'the script has no constant {name[:40]}')
  body = list(module.body)
  line = cst.ensure_type(body[places[-1]], cst.SimpleStatementLine)
  assign = cst.ensure_type(line.body[0], cst.Assign)
  new = assign.with_changes(value=pipeline.parse_expression(value))
  body[places[-1]] = line.with_changes(body=[new, *line.body[1:]])
  return module.with_changes(body=body)
