"""Files that a task's prepared data depends on."""

from __future__ import annotations

import ast
import pathlib

from jaxagent.files import syntax

_SHARED = pathlib.Path(__file__).resolve().parents[2] / 'tasks'
_PACKAGE = 'jaxagent.tasks'


def files_behind(script: pathlib.Path) -> tuple[pathlib.Path, ...]:
  """Lists a script and the modules of `jaxagent.tasks` that it comes to import.

  The script stands first, then the modules by name. Imports anywhere in a file
  count, within functions too.

  Raises:
    ValueError: a file is no Python text.
  """
  found: dict[str, pathlib.Path] = {}
  waiting = [script]
  while waiting:
    for name in sorted(_shared_modules(waiting.pop()) - set(found)):
      found[name] = _SHARED / f'{name}.py'
      waiting.append(found[name])
  return (script, *(found[name] for name in sorted(found)))


def _shared_modules(path: pathlib.Path) -> set[str]:
  try:
    tree = syntax.parse(path.read_bytes())
  except SyntaxError as error:
    raise ValueError(f'{path} is no Python text: {error}.') from error
  names = []
  for node in ast.walk(tree):
    if isinstance(node, ast.Import):
      names += [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
      names += [f'{node.module}.{alias.name}' for alias in node.names]
  inside = [
    name.split('.') for name in names if name.startswith(_PACKAGE + '.')
  ]
  return {
    parts[2] for parts in inside if (_SHARED / f'{parts[2]}.py').is_file()
  }
