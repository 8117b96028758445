"""Whole programs by script for tasks whose starter has no model line.

The starter, with functions that `ways.WAYS` knows written anew and constants set.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import random

from jaxagent import types
from jaxagent.stand_ins import functions, moves, programmer
from jaxagent.stand_ins.programmer import Failed, Slip

_SLIPS = (
  Slip('import numpy as np\n', '', "NameError: name 'np' is not defined\n"),
  Slip('import pandas as pd\n', '', "NameError: name 'pd' is not defined\n"),
  Slip(
    "'submission.",
    "'submissions.",
    outcome=types.Outcome.NO_SUBMISSION,
    reason='the script wrote no {target}',
  ),
  Slip(
    "'data/",
    "'datas/",
    'FileNotFoundError: [Errno 2] No such file or directory\n',
  ),
  Slip('(pred', '(preds', "NameError: name 'preds' is not defined\n"),
  Slip('return ', 'retrun ', 'SyntaxError: invalid syntax\n'),
)
_PLANS = (
  'Read the data. {what}. Write the answers.',
  'I keep the frame of the program. {what}. Then I save the submission.',
  '{what}. The rest stays simple. Save the submission.',
)


@dataclasses.dataclass(frozen=True)
class Changes:
  """A program: instructions for the starter, one a function or constant.

  by_name: name of the function or constant -> the instruction.
  """

  by_name: tuple[tuple[str, str], ...]


class FunctionProgrammer:
  """Writes responses with whole solutions around a starter's functions.

  Args:
    p_slip: chance of a mistake that keeps the program from running.
  """

  name = programmer.ScriptedProgrammer.name
  is_stand_in = True

  def __init__(self, p_slip: float = 0.3):
    self.p_slip = p_slip

  def design(
    self,
    spec: types.TaskSpec,
    rng: random.Random,
    previous: Changes | None = None,
  ) -> Changes:
    """A new one, or `previous` with one of its instructions changed."""
    stock = _stock(spec.kind, spec.modality, starter_of(spec))
    names = sorted(stock)
    if previous is None:
      chosen = {name: _drawn(stock, name, rng) for name in names}
      return Changes(tuple(chosen.items()))
    made = previous
    while made == previous:
      name = rng.choice(names)
      chosen = {**dict(previous.by_name), name: _drawn(stock, name, rng)}
      made = Changes(tuple(chosen.items()))
    return made

  def crossed(
    self,
    spec: types.TaskSpec,
    first: Changes,
    second: Changes,
    rng: random.Random,
  ) -> Changes | None:
    """Joins some instructions of one with the others of the other."""
    ours, theirs = dict(first.by_name), dict(second.by_name)
    differ = [name for name in ours if ours[name] != theirs[name]]
    if len(differ) < 2:
      return None
    taken = rng.sample(differ, rng.randrange(1, len(differ)))
    made = {**ours, **{name: theirs[name] for name in taken}}
    return Changes(tuple(made.items()))

  def write(
    self,
    spec: types.TaskSpec,
    design: Changes,
    rng: random.Random,
    slips: bool = True,
  ) -> str:
    """One response: a plan and a code block."""
    code = _code(spec, design)
    if slips and rng.random() < self.p_slip:
      slip = _slip_in(code, rng)
      code = code.replace(slip.old, slip.new, 1)
    return _response(design, code, rng)

  def failed(
    self, spec: types.TaskSpec, design: Changes, rng: random.Random
  ) -> Failed:
    """One response with a slip, and how its run ends."""
    code = _code(spec, design)
    slip = _slip_in(code, rng)
    return Failed(
      _response(design, code.replace(slip.old, slip.new, 1), rng),
      slip.outcome,
      slip.reason.format(target=spec.submission),
      slip.error,
    )

  def output(self, design: Changes, rng: random.Random) -> str:
    """Returns output that such a program may print: none."""
    return ''


def _code(spec: types.TaskSpec, design: Changes) -> str:
  clauses = [clause for _, clause in design.by_name]
  return functions.edited(_bare(starter_of(spec)), clauses)


def _slip_in(code: str, rng: random.Random) -> Slip:
  return rng.choice([slip for slip in _SLIPS if slip.old in code])


def _response(design: Changes, code: str, rng: random.Random) -> str:
  clauses = [clause for _, clause in design.by_name]
  plan = rng.choice(_PLANS).format(what=rng.choice(clauses))
  return f'{plan}\n```python\n{code}```'


def can_write(spec: types.TaskSpec) -> bool:
  """Whether a task's starter has a function that can be written anew."""
  return functions.knows(starter_of(spec))


def starter_of(spec: types.TaskSpec) -> str:
  """Returns the text of a task's starter, '' where it has none."""
  path = spec.root / 'env' / 'train.py'
  return path.read_text('utf-8') if path.is_file() else ''


@functools.lru_cache(maxsize=64)
def _stock(
  kind: str, modality: str, starter: str
) -> dict[str, list[tuple[float, str]]]:
  """Function or constant -> (worth, instruction) of what can be done with it."""
  found: dict[str, list[tuple[float, str]]] = {}
  present = set(functions.step_names(starter))
  for move in moves.moves_for(kind, modality):
    if move.family in ('function', 'constant') and present & set(move.needs):
      name = dict(move.values)['f']
      found.setdefault(name, []).append((move.worth, move.say()))
  return found


def _drawn(
  stock: dict[str, list[tuple[float, str]]], name: str, rng: random.Random
) -> str:
  worths, clauses = zip(*stock[name])
  return rng.choices(clauses, worths)[0]


@functools.lru_cache(maxsize=64)
def _bare(script: str) -> str:
  """The script without comments and docstrings, for a small policy to write."""
  module = ast.parse(script)
  for node in ast.walk(module):
    if isinstance(node, (ast.Module, ast.FunctionDef)) and ast.get_docstring(
      node
    ):
      node.body = node.body[1:]
  return ast.unparse(module) + '\n'
