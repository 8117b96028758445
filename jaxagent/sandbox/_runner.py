"""Runs the job's script as __main__, inside the sandbox. Trusts nothing.

Used twice: called after the fork by the zygote, and executed as a file by a
cold interpreter (`python -I _runner.py SCRIPT ARGS...`).
"""

from __future__ import annotations

import os
import sys


def run(script: str, argv: list[str]) -> int:
  """Returns the exit code that `python script argv...` would have."""
  import traceback

  sys.argv = [script, *argv]
  sys.path[:0] = [os.path.dirname(os.path.abspath(script))]
  code = 0
  try:
    with open(script, 'rb') as f:
      program = compile(f.read(), script, 'exec', dont_inherit=True)
    module = type(sys)('__main__')
    module.__file__ = script
    module.__builtins__ = __builtins__
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

  for step in (threading._shutdown, atexit._run_exitfuncs):
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


if __name__ == '__main__':
  if sys.path and not sys.flags.safe_path:
    del sys.path[0]
  finish(run(sys.argv[1], sys.argv[2:]))
