"""Runs the job's script as __main__, inside the sandbox. Trusts nothing.

Used twice: called after the fork by the zygote, and executed as a file by a
cold interpreter (`python FLAGS _runner.py SCRIPT ARGS...`).
"""

from __future__ import annotations

import os
import sys

_ONLY_TREE = 0x400  # ast.PyCF_ONLY_AST, without the import


def run(script: str, argv: list[str]) -> int:
  """Returns the exit code that `python script argv...` would have."""
  import traceback

  sys.argv = [script, *argv]
  home = os.path.dirname(os.path.abspath(script))
  sys.path[:0] = [home]
  code = 0
  try:
    _read_modules_alike(home)
    with open(script, 'rb') as f:
      program = compiled(f.read(), script)
    module = type(sys)('__main__')
    module.__file__ = script
    module.__dict__['__builtins__'] = __builtins__
    sys.modules['__main__'] = module
    exec(program, module.__dict__)
  except SystemExit as stop:
    code = _code_of(stop.code)
  except BaseException as error:  # noqa: BLE001: any end of the job is its own
    code = 1
    tail = error.__traceback__
    error.__traceback__ = tail.tb_next if tail is not None else None
    try:
      traceback.print_exception(error)
    except BaseException:  # noqa: BLE001
      pass
  return code


def compiled(source: bytes, path: str):
  """Compiles a file's text to the same code whatever was imported before.

  A constant set is built once more where one of its strings had been interned,
  which turns its order (CPython, intern_constants of codeobject.c). So all are.
  """
  try:
    tree = compile(source, path, 'exec', _ONLY_TREE, dont_inherit=True)
    left = [tree]
    while left:
      node = left.pop()
      if isinstance(node, list):
        left += node
      elif type(node).__name__ == 'Constant':
        if type(node.value) is str:
          node.value = sys.intern(node.value)
      elif hasattr(node, '_fields'):
        left += [getattr(node, name, None) for name in node._fields]
    return compile(tree, path, 'exec', dont_inherit=True)
  except RecursionError:  # a tree has less depth than a text
    return compile(source, path, 'exec', dont_inherit=True)


def _read_modules_alike(home: str) -> None:
  """Has the modules that lie beside the script compiled as it is."""
  from importlib.machinery import SourceFileLoader

  usual = SourceFileLoader.source_to_code

  def source_to_code(self, data, path, *, _optimize=-1):
    if isinstance(data, bytes) and str(path).startswith(home + os.sep):
      return compiled(data, path)
    return usual(self, data, path, _optimize=_optimize)

  setattr(SourceFileLoader, 'source_to_code', source_to_code)  # noqa: B010


def _code_of(value) -> int:
  if value is None:
    return 0
  if isinstance(value, int):
    return value & 0xFF
  print(value, file=sys.stderr)
  return 1


def finish(code: int) -> None:
  """Leaves as an interpreter would: threads, exit functions, flush."""
  import atexit
  import threading

  # As the interpreter does; typeshed leaves both out.
  shutdown = threading._shutdown  # type: ignore[attr-defined]
  for step in (shutdown, atexit._run_exitfuncs):
    try:
      step()
    except BaseException:  # noqa: BLE001
      pass
  for stream in (sys.stdout, sys.stderr):
    try:
      stream.flush()
    except BaseException:  # noqa: BLE001
      code = code or 120
  os._exit(code)


def main() -> None:
  sys.path_importer_cache.pop(sys.argv[0], None)
  finish(run(sys.argv[1], sys.argv[2:]))


if __name__ == '__main__':
  main()  # on as many frames as a fork of the zygote has
