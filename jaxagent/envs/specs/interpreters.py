"""A task's own interpreter: another Python beside the one that trains.

Its scripts run with that one's packages, in the sandbox of this machine, whose
launcher is started with it. Trusted: the folder of a task names it.
"""

from __future__ import annotations

import functools
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

from jaxagent.types import TaskSpec

OLDEST = (3, 11)  # jobs are started with `python -P`
_ASK = """
import importlib.metadata, importlib.util, json, sys
def found(name):
  try:
    importlib.metadata.version(name)
    return True
  except Exception:
    pass
  try:
    return importlib.util.find_spec(name) is not None
  except Exception:
    return False
print(json.dumps({
  'version': sys.version_info[:2], 'prefix': sys.prefix,
  'base_prefix': sys.base_prefix, 'path': [p for p in sys.path if p],
  'missing': [name for name in json.loads(sys.argv[1]) if not found(name)],
}))
"""


def own(spec: TaskSpec) -> str:
  """Returns the absolute path of a task's interpreter; '' for the trainer's own.

  '' too where the task names the trainer's: the same file in the same virtual
  environment, for the interpreters of all environments may be links to one file.
  """
  named = spec.details.environment.interpreter if spec.details else ''
  if not named:
    return ''
  path = os.path.abspath(named)
  try:
    same = os.path.samefile(path, sys.executable)
  except OSError:  # it is not there, which `requirements` says
    same = False
  here = _environment_of(path) == _environment_of(sys.executable)
  return '' if same and here else path


def of_all(specs: Iterable[TaskSpec]) -> list[str]:
  """Returns the interpreters of tasks beside the trainer's, sorted."""
  return sorted({own(spec) for spec in specs} - {''})


def complaint(python: str, packages: tuple[str, ...]) -> str:
  """Says why scripts cannot run with an interpreter, in half a sentence; '' if they can."""
  if not os.access(python, os.X_OK) or os.path.isdir(python):
    return (
      f'its interpreter {python!r} is no program here; install it, or change '
      'environment.interpreter.'
    )
  found = _asked(python, packages)
  if isinstance(found, str):
    return f'its interpreter {python!r} is no Python that runs: {found}'
  version = tuple(found['version'])
  if version < OLDEST:
    return (
      f'its interpreter {python!r} is Python {version[0]}.{version[1]}; the sandbox '
      f'needs {OLDEST[0]}.{OLDEST[1]} or newer.'
    )
  if found['missing']:
    missing = ' '.join(found['missing'])
    return (
      f'its interpreter lacks {missing}: `{python} -m pip install {missing}`, or leave '
      'the task out.'
    )
  return ''


def package_folders(python: str) -> set[pathlib.Path]:
  """Returns where an interpreter finds packages; nothing where it does not run."""
  found = _asked(python, ())
  if isinstance(found, str):
    return set()
  places = [pathlib.Path(p) for p in found['path']]
  for prefix in (found['prefix'], found['base_prefix']):
    places += pathlib.Path(prefix).glob('lib*/python3*/*-packages')
  return {p.resolve() for p in places if p.is_dir()}


@functools.cache
def _asked(python: str, packages: tuple[str, ...]) -> dict[str, Any] | str:
  """Returns what an interpreter says of itself, or the last line of why it does not."""
  try:
    done = subprocess.run(
      [python, '-I', '-c', _ASK, json.dumps(packages)],
      capture_output=True,
      text=True,
      timeout=60,
    )
    return json.loads(done.stdout.splitlines()[-1])
  except (OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
    lines = (getattr(error, 'stderr', '') or str(error)).splitlines()
    return lines[-1] if lines else type(error).__name__


def _environment_of(python: str) -> pathlib.Path | None:
  home = pathlib.Path(python).absolute().parent.parent
  return home.resolve() if (home / 'pyvenv.cfg').is_file() else None
