"""Modules by name, or by the path of their file."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import pathlib
import sys
import types

_PREFIX = 'jaxagent_file_'


def imported(name: str) -> types.ModuleType:
  """Returns a module by its name, or by the path of its file (`*.py`).

  The same file gives the same module; what lies beside it can be imported from it.
  Raises whatever the import does.
  """
  if not name.endswith('.py'):
    return importlib.import_module(name)
  file = pathlib.Path(name).expanduser().resolve()
  if not file.is_file():
    raise FileNotFoundError(f'no such file (looked from {pathlib.Path.cwd()})')
  digest = hashlib.sha256(str(file).encode()).hexdigest()[:12]
  own = f'{_PREFIX}{digest}'
  if own in sys.modules:
    return sys.modules[own]
  spec = importlib.util.spec_from_file_location(own, file)
  if spec is None or spec.loader is None:
    raise ImportError(f'{file} is not a Python file')
  module = importlib.util.module_from_spec(spec)
  sys.modules[own] = module
  sys.path.append(str(file.parent))
  try:
    spec.loader.exec_module(module)
  except BaseException:
    del sys.modules[own]
    raise
  return module


def place_of(cls: type) -> str:
  """Returns a class by name and file, for a message."""
  file = getattr(sys.modules.get(cls.__module__), '__file__', None)
  return f'{cls.__qualname__} in {file or cls.__module__}'


def file_of(module: types.ModuleType) -> str:
  """Returns the file of a module that was imported by its path, '' of others."""
  if not module.__name__.startswith(_PREFIX):
    return ''
  return str(module.__file__)
