"""The model line of a script as data: read it, change it, write it back.

Works on the syntax tree (libcst), so comments and layout of everything that
is not touched stay as they are. The convention of the bundled tasks: one
top-level `model = make_pipeline(step, ..., estimator)`; a bare estimator is
a pipeline of one.
"""

from __future__ import annotations

import ast
import keyword as keywords
from collections.abc import Sequence

import libcst as cst

from jaxagent.envs.interfaces import EditRefused
from jaxagent.files import syntax
from jaxagent.stand_ins import catalogue

# The code below walks syntax trees by recursion, a few frames a level.
MAX_DEPTH = 40  # levels of the syntax tree; about a dozen nested calls
MAX_EXPRESSION_NODES = 2000
MAX_SCRIPT_NODES = 20_000


def _check_size(tree: ast.AST, max_nodes: int) -> None:
  """Raises EditRefused for a tree that is too deep or too large."""
  level, depth, nodes = [tree], 0, 0
  while level:
    depth, nodes = depth + 1, nodes + len(level)
    if depth > MAX_DEPTH or nodes > max_nodes:
      raise EditRefused('the code is nested too deep or too long')
    level = [c for node in level for c in ast.iter_child_nodes(node)]


def parse_module(script: str) -> cst.Module:
  """Raises EditRefused where the script is not Python, or is too large."""
  try:
    _check_size(syntax.parse(script), MAX_SCRIPT_NODES)
    return cst.parse_module(script)
  except (cst.ParserSyntaxError, *syntax.PARSE_ERRORS) as error:
    raise EditRefused('the script is not valid Python') from error


def parse_expression(text: str) -> cst.BaseExpression:
  """Raises EditRefused where the text is not an expression, or is too large.

  Python itself reads it first: libcst takes more (`f(in=1)`), and has no
  bound on depth. It must also survive being written by `ast.unparse`, which
  a number of 5,000 digits or a keyword in full-width letters does not.
  """
  try:
    tree = syntax.parse(text.strip(), 'eval')
    _check_size(tree, MAX_EXPRESSION_NODES)
    syntax.parse(ast.unparse(tree), 'eval')
    return cst.parse_expression(text)
  except (cst.ParserSyntaxError, *syntax.PARSE_ERRORS) as error:
    raise EditRefused(f'cannot read the expression {text[:60]!r}') from error


def check_parameter(name: str) -> None:
  """Raises EditRefused for what cannot stand before `=` in a call."""
  if not (
    name.isascii() and name.isidentifier() and not keywords.iskeyword(name)
  ):
    raise EditRefused(f'{name[:60]!r} is no name of a parameter')


def code(node: cst.CSTNode) -> str:
  """Source of one node."""
  return cst.Module([]).code_for_node(node)


def is_name(expression: cst.BaseExpression, name: str) -> bool:
  return isinstance(expression, cst.Name) and expression.value == name


def parse_call(text: str) -> cst.Call:
  """Parses a call; raises EditRefused where the text is none."""
  call = parse_expression(text)
  if not isinstance(call, cst.Call):
    raise EditRefused(f'cannot read {text[:60]!r}')
  return call


def call_name(expression: cst.BaseExpression) -> str:
  """Class name of a call, '' for anything else."""
  if isinstance(expression, cst.Call):
    func = expression.func
    if isinstance(func, cst.Attribute):
      func = func.attr
    if isinstance(func, cst.Name):
      return func.value
  return ''


def names_in(node: cst.CSTNode) -> list[str]:
  """All bare names of a node, in order, with repetition."""
  found: list[str] = []

  class Visitor(cst.CSTVisitor):
    def visit_Name(self, node: cst.Name) -> None:
      found.append(node.value)

    def visit_Attribute_attr(self, node: cst.Attribute) -> None:
      pass

  node.visit(Visitor())
  return found


def set_keyword(
  call: cst.Call, name: str, value: cst.BaseExpression
) -> cst.Call:
  """The call with keyword `name` set or replaced.

  Raises EditRefused where `name` cannot be a keyword argument.
  """
  check_parameter(name)
  new = cst.Arg(
    keyword=cst.Name(name),
    value=value,
    equal=cst.AssignEqual(
      whitespace_before=cst.SimpleWhitespace(''),
      whitespace_after=cst.SimpleWhitespace(''),
    ),
  )
  args = [a for a in call.args]
  for index, arg in enumerate(args):
    if arg.keyword is not None and arg.keyword.value == name:
      args[index] = arg.with_changes(value=value)
      return call.with_changes(args=args)
  if args:
    comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(' '))
    last = args[-1]
    if not isinstance(last.comma, cst.Comma):
      args[-1] = last.with_changes(comma=comma)
  return call.with_changes(args=args + [new])


def keyword(call: cst.Call, name: str) -> cst.BaseExpression | None:
  for arg in call.args:
    if arg.keyword is not None and arg.keyword.value == name:
      return arg.value
  return None


def named_values(call: cst.Call) -> list[cst.BaseExpression]:
  """Returns the values that a call's first argument names.

  [('a', X), ('b', Y)] -> [X, Y]."""
  first = call.args[0].value if call.args else None
  values: list[cst.BaseExpression] = []
  for element in getattr(first, 'elements', ()):
    pair: Sequence[cst.Element] = getattr(element.value, 'elements', ())
    if len(pair) != 2:
      raise EditRefused('cannot read the steps of the pipeline')
    values.append(pair[1].value)
  return values


class Pipeline:
  """Steps of `model = ...`; a mutable view, written back by `Script`."""

  def __init__(self, expression: cst.BaseExpression):
    self.steps: list[cst.BaseExpression]
    self.bare = call_name(expression) not in ('make_pipeline', 'Pipeline')
    if self.bare or not isinstance(expression, cst.Call):
      self.steps = [expression]
    elif call_name(expression) == 'make_pipeline':
      self.steps = [a.value for a in expression.args if a.keyword is None]
    else:
      self.steps = named_values(expression)
    if not self.steps:
      raise EditRefused('the pipeline has no step')

  @property
  def names(self) -> list[str]:
    return [call_name(s) for s in self.steps]

  @property
  def estimator(self) -> cst.BaseExpression:
    return self.steps[-1]

  def index_of_role(self, role: str) -> int | None:
    """First step (the estimator aside) of a role."""
    for index, name in enumerate(self.names[:-1]):
      entry = catalogue.ENTRIES.get(name)
      if entry is not None and entry.role == role:
        return index
    return None

  def expression(self) -> cst.BaseExpression:
    """The call to stand on the right of `model =`, on one line."""
    if len(self.steps) == 1 and self.bare:
      return self.steps[0]
    text = ', '.join(one_line(s) for s in self.steps)
    return parse_expression(f'make_pipeline({text})')


def one_line(node: cst.CSTNode) -> str:
  """Source of an expression on one line, spacing normalised.

  Raises EditRefused where the tree is no Python or too large.
  """
  text = code(node).strip()
  try:
    tree = syntax.parse(text, 'eval')
    _check_size(tree, MAX_EXPRESSION_NODES)
    return ast.unparse(tree)
  except syntax.PARSE_ERRORS as error:
    raise EditRefused(f'cannot read the expression {text[:60]!r}') from error


class Script:
  """A script whose model line, constants and imports can be changed."""

  def __init__(self, text: str):
    self.module = parse_module(text)
    self._before = set(names_in(self.module))
    line = self._find('model')
    if line is None:
      raise EditRefused('the script has no top-level `model = ...` line')
    self.pipeline = Pipeline(self._assign(line).value)

  @staticmethod
  def _assign(line: cst.SimpleStatementLine) -> cst.Assign:
    (assign,) = line.body
    assert isinstance(assign, cst.Assign)  # `_find` gives no other
    return assign

  def _find(self, target: str) -> cst.SimpleStatementLine | None:
    """Last top-level `target = ...`."""
    found = None
    for line in self.module.body:
      if (
        isinstance(line, cst.SimpleStatementLine)
        and isinstance(line.body[0], cst.Assign)
        and len(line.body[0].targets) == 1
        and is_name(line.body[0].targets[0].target, target)
      ):
        found = line
    return found

  def _assign_to(self, target: str, value: cst.BaseExpression) -> None:
    """Replaces the value of a line that is known to be there."""
    old = self._line(target)
    assign = self._assign(old).with_changes(value=value)
    new = old.with_changes(body=[assign])
    body = [new if line is old else line for line in self.module.body]
    self.module = self.module.with_changes(body=body)

  def _line(self, target: str) -> cst.SimpleStatementLine:
    line = self._find(target)
    if line is None:
      raise EditRefused(f'the script has no line `{target} = ...`')
    return line

  def has_constant(self, name: str) -> bool:
    return name.isupper() and self._find(name) is not None

  def set_constant(self, name: str, value: str) -> None:
    self._assign_to(name, parse_expression(value))

  def _index(self, test) -> int | None:
    for index, line in enumerate(self.module.body):
      if isinstance(line, cst.SimpleStatementLine) and test(code(line)):
        return index
    return None

  def insert_before_fit(self, statement: str) -> None:
    """Adds a line before `model.fit(...)`; EditRefused without one."""
    self._insert(lambda t: t.strip().startswith('model.fit('), statement, 0)

  def insert_after_prediction(self, statement: str) -> None:
    """Adds a line after `pred = ...`; EditRefused without one."""
    self._insert(lambda t: 'model.predict' in t, statement, 1)

  def _insert(self, test, statement: str, offset: int) -> None:
    index = self._index(test)
    if index is None:
      raise EditRefused('the script has no such line to work at')
    body = list(self.module.body)
    if any(code(line).strip() == statement for line in body):
      return  # it does so already
    line = cst.parse_module(statement + '\n').body[0]
    body.insert(index + offset, line)
    self.module = self.module.with_changes(body=body)

  def target_of_prediction(self) -> str:
    """Name that the prediction is assigned to."""
    index = self._index(lambda t: 'model.predict' in t)
    if index is not None:
      line = self.module.body[index]
      assert isinstance(
        line, cst.SimpleStatementLine
      )  # `_index` gives no other
      statement = line.body[0]
      if isinstance(statement, cst.Assign) and isinstance(
        statement.targets[0].target, cst.Name
      ):
        return statement.targets[0].target.value
    raise EditRefused('the script has no line `pred = model.predict(...)`')

  def render(self) -> str:
    """Writes the pipeline back, corrects the imports, returns the text.

    Raises EditRefused where the result would not be Python.
    """
    self._assign_to('model', self.pipeline.expression())
    self._mend_imports()
    text = self.module.code
    try:
      _check_size(syntax.parse(text), MAX_SCRIPT_NODES)
    except syntax.PARSE_ERRORS as error:
      raise EditRefused('the edit would break the syntax') from error
    return text

  def _imported(self) -> dict[str, str]:
    """Bound name -> module, of top-level imports."""
    bound: dict[str, str] = {}
    for line in self.module.body:
      if not isinstance(line, cst.SimpleStatementLine):
        continue
      for part in line.body:
        if isinstance(part, cst.ImportFrom) and part.module is not None:
          if isinstance(part.names, cst.ImportStar):
            continue
          for alias in part.names:
            name = alias.asname.name if alias.asname else alias.name
            bound[code(name).strip()] = code(part.module)
        elif isinstance(part, cst.Import):
          for alias in part.names:
            name = alias.asname.name if alias.asname else alias.name
            bound[code(name).strip().split('.')[0]] = ''
    return bound

  def _mend_imports(self) -> None:
    used = set(names_in(self._line('model')))
    bound = self._imported()
    for name in sorted(used):
      if name in bound:
        continue
      module = catalogue.FUNCTIONS.get(name)
      if name in catalogue.ENTRIES:
        module = catalogue.ENTRIES[name].module
      if module is not None:
        self._add_import(f'from {module} import {name}')
    everywhere = set(names_in(self.module))
    if 'np' in everywhere and 'np' not in bound:
      self._add_import('import numpy as np')
    self._drop_unused_imports()

  def _add_import(self, statement: str) -> None:
    """Adds it after the last top-level import above the model's line, or first."""
    where, model = 0, self._line('model')
    for index, line in enumerate(self.module.body):
      if line is model:
        break
      if isinstance(line, cst.SimpleStatementLine) and isinstance(
        line.body[0], (cst.Import, cst.ImportFrom)
      ):
        where = index + 1
    body = list(self.module.body)
    body.insert(where, cst.parse_module(statement + '\n').body[0])
    self.module = self.module.with_changes(body=body)

  def _drop_unused_imports(self) -> None:
    """Drops scikit-learn names that this edit left without a use."""
    uses: dict[str, int] = {}
    for name in names_in(self.module):
      uses[name] = uses.get(name, 0) + 1
    body = []
    for line in self.module.body:
      simple = line if isinstance(line, cst.SimpleStatementLine) else None
      part = simple.body[0] if simple else None
      if (
        simple is not None
        and isinstance(part, cst.ImportFrom)
        and part.module is not None
        and code(part.module).startswith('sklearn')
        and not isinstance(part.names, cst.ImportStar)
      ):
        keep = [
          a
          for a in part.names
          if a.asname is not None or uses.get(code(a.name), 0) > 1
        ]
        if not keep:
          continue
        if len(keep) < len(part.names):
          keep[-1] = keep[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
          part = part.with_changes(names=keep)
          line = simple.with_changes(body=[part, *simple.body[1:]])
      body.append(line)
    self.module = self.module.with_changes(body=body)
