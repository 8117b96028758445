"""Whether two programs are the same but for their seeds."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from jaxagent.files import syntax

MOST_CHARACTERS = 50_000  # of a program that is parsed
_SEED = re.compile(r'(?:.*_)?seed(?:_value|_)?|random_state', re.I | re.S)
_SEEDED = frozenset(
  'seed manual_seed manual_seed_all set_seed set_random_seed seed_everything '
  'default_rng RandomState Random SeedSequence PRNGKey'.split()
)
_CALLED_FOR_SEED = _SEEDED - {
  'default_rng', 'RandomState', 'Random', 'SeedSequence', 'PRNGKey'
}  # fmt: skip


def same_program(a: str, b: str) -> bool:
  """Whether two programs have one syntax tree, seeds left out; never raises.

  Comments, layout and texts that stand alone do not count. Seeds are arguments,
  defaults, keys and variables of a seed's name that hold a plain value, the plain
  arguments of what makes generators, and calls that do nothing but seed; an import
  that nothing uses goes with them. Programs of which one does not parse, or has
  more than MOST_CHARACTERS, are compared as texts.
  """
  if a.strip() == b.strip():
    return True
  if max(len(a), len(b)) > MOST_CHARACTERS:
    return False
  try:
    trees = [syntax.parse(a), syntax.parse(b)]
  except syntax.PARSE_ERRORS:
    return False
  first, second = (_Reader(tree).parts() for tree in trees)
  # A part is never None: it ends the shorter one.
  while (part := next(first, None)) == next(second, None):
    if part is None:
      return True
  return False


class _Reader:
  """Yields a tree as a flat series of parts, without what is left out."""

  def __init__(self, tree: ast.AST):
    self._tree = tree
    self._used = {
      part[1] for part in self.parts(False) if part[0] == 'name'
    }  # fmt: skip

  def parts(self, with_imports: bool = True) -> Iterator[tuple]:
    """Each part is a tuple whose first item says what it is.

    No recursion: a program may be nested as deep as the parser allows.
    """
    open_parts: list[Any] = [self._tree]
    while open_parts:
      value = open_parts.pop()
      if isinstance(value, tuple):
        yield value
      elif isinstance(value, list):
        open_parts.append(('end',))
        kept = [v for v in value if not self._is_left_out(v, with_imports)]
        open_parts.extend(reversed(kept))
      elif isinstance(value, ast.AST):
        yield from self._open(value, open_parts)
      else:
        # 1, 1.0 and True are equal, and -0.0 is 0.0: types and digits count.
        yield 'value', type(value).__name__, repr(value)

  def _open(self, node: ast.AST, open_parts: list[Any]) -> Iterator[tuple]:
    yield 'node', type(node).__name__
    if isinstance(node, ast.Name):
      yield 'name', node.id
      return
    fields = [
      (name, value)
      for name, value in ast.iter_fields(node)
      if name not in ('ctx', 'type_comment', 'kind', 'type_ignores')
    ]
    seedless = _without_seeds(node, dict(fields))
    for name, _ in reversed(fields):
      open_parts.append(seedless[name])

  def _is_left_out(self, node: Any, with_imports: bool) -> bool:
    if isinstance(node, ast.Import | ast.ImportFrom):
      return not with_imports or not any(
        (alias.asname or alias.name.partition('.')[0]) in self._used
        or alias.name == '*'
        for alias in node.names
      )
    return _says_nothing(node)


def _says_nothing(node: Any) -> bool:
  """Whether a part of a list is a seed, or a text that stands alone."""
  if isinstance(node, ast.keyword):
    return _is_seed_name(node.arg) and _is_plain(node.value)
  if isinstance(node, ast.Pass):
    return True
  if isinstance(node, ast.Expr):
    value = node.value
    if isinstance(value, ast.Constant):
      return True
    return (
      isinstance(value, ast.Call)
      and _name_of(value.func) in _CALLED_FOR_SEED
      and all(map(_is_plain, value.args))
      and all(_is_plain(keyword.value) for keyword in value.keywords)
    )
  if isinstance(node, ast.Assign):
    return all(map(_is_seed, node.targets)) and _is_plain(node.value)
  if isinstance(node, ast.AnnAssign):
    return _is_seed(node.target) and _is_plain(node.value)
  return False


def _without_seeds(node: ast.AST, fields: dict[str, Any]) -> dict[str, Any]:
  """The fields of a node, without its seeds."""
  if isinstance(node, ast.Call) and _name_of(node.func) in _SEEDED:
    fields['args'] = [a for a in node.args if not _is_plain(a)]
  elif isinstance(node, ast.Dict):
    pairs = [
      (key, value)
      for key, value in zip(node.keys, node.values)
      if not (_is_seed_key(key) and _is_plain(value))
    ]
    fields['keys'] = [key for key, _ in pairs]
    fields['values'] = [value for _, value in pairs]
  elif isinstance(node, ast.arguments):
    fields['defaults'] = _defaults(
      [*node.posonlyargs, *node.args][-len(node.defaults) or None :],
      node.defaults,
    )
    fields['kw_defaults'] = _defaults(node.kwonlyargs, node.kw_defaults)
  return fields


def _defaults(names: list[ast.arg], values: list[Any]) -> list[Any]:
  """Defaults of parameters, with None for those of seeds."""
  return [
    None if _is_seed_name(name.arg) and _is_plain(value) else value
    for name, value in zip(names, values)
  ]


def _is_seed(target: ast.AST) -> bool:
  if isinstance(target, ast.Subscript):
    return _is_seed_key(target.slice)
  return _is_seed_name(_name_of(target))


def _is_seed_key(key: ast.AST | None) -> bool:
  if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
    return False
  return _is_seed_name(key.value) or key.value == 'PYTHONHASHSEED'


def _is_seed_name(name: str | None) -> bool:
  return name is not None and _SEED.fullmatch(name) is not None


def _name_of(node: ast.AST) -> str | None:
  if isinstance(node, ast.Name):
    return node.id
  return node.attr if isinstance(node, ast.Attribute) else None


def _is_plain(node: ast.AST | None) -> bool:
  """Whether it is a number, a text, a name or a short sum of such."""
  for _ in range(3):
    if isinstance(node, ast.BinOp):
      if not isinstance(node.right, ast.Constant | ast.Name):
        return False
      node = node.left
    elif isinstance(node, ast.UnaryOp):
      node = node.operand
    elif isinstance(node, ast.Attribute):
      node = node.value
    else:
      break
  return node is None or isinstance(node, ast.Constant | ast.Name)
