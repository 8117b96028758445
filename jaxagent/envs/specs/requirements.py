"""What a task's scripts need of a machine and its sandbox, checked before a run."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import pathlib
import sys
from collections.abc import Sequence

from jaxagent.types import TaskSpec


def complaint(
  spec: TaskSpec, *, gpus: Sequence[str], image: str, memory_mb: int
) -> str:
  """Says what a task needs that is not here, in one sentence; '' if all is.

  Args:
    spec: the task.
    gpus: those of the sandbox.
    image: that of the sandbox's containers; '' where it has none.
    memory_mb: limit of one execution that replaces the task's own; 0 for none.
  """
  details = spec.details
  if details is None:
    return ''
  if details.gpus > len(gpus):
    return (
      f'task {spec.name} asks for {details.gpus} GPUs an execution (limits.gpus), '
      f'and the sandbox has {len(gpus)}: give their numbers with '
      '--config.sandbox.gpus, or leave the task out.'
    )
  here = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') >> 20
  if not memory_mb and spec.limits.memory_mb > here:
    return (
      f'task {spec.name} asks for {spec.limits.memory_mb:,} MB of memory, and '
      f'this machine has {here:,}: leave it out, or set the limit of one '
      'execution with --config.sandbox.memory_mb.'
    )
  return _environment(spec, image)


def _environment(spec: TaskSpec, image: str) -> str:
  assert spec.details is not None  # `complaint`
  need = spec.details.environment
  if need.image and need.image != image:
    return (
      f'task {spec.name} runs in the image {need.image!r}: give '
      f'--config.sandbox.backend=docker --config.sandbox.docker_image={need.image}.'
    )
  if need.interpreter and not os.access(need.interpreter, os.X_OK):
    return (
      f'task {spec.name}: its interpreter {need.interpreter!r} is no program '
      'here; install it, or change environment.interpreter.'
    )
  if need.interpreter and not _same_packages(need.interpreter):
    return (
      f'task {spec.name} runs with {need.interpreter}, and the sandbox with '
      f'{sys.executable}: start jaxagent with the first.'
    )
  missing = [name for name in need.packages if not image and not _found(name)]
  if missing:
    return (
      f'task {spec.name} needs {", ".join(missing)}, not installed beside '
      f'jaxagent: `pip install` it into {sys.prefix}, or leave the task out.'
    )
  return ''


def _same_packages(interpreter: str) -> bool:
  """Whether an interpreter is the sandbox's, in the same virtual environment.

  The interpreters of all environments may be links to one file.
  """
  homes = [_environment_of(p) for p in (interpreter, sys.executable)]
  same = os.path.samefile(interpreter, sys.executable)
  return same and homes[0] == homes[1]


def _environment_of(interpreter: str) -> pathlib.Path | None:
  home = pathlib.Path(interpreter).absolute().parents[1]
  return home.resolve() if (home / 'pyvenv.cfg').is_file() else None


def _found(name: str) -> bool:
  """Whether a package is here, by the name it is installed or imported by."""
  try:
    importlib.metadata.version(name)
    return True
  except (importlib.metadata.PackageNotFoundError, ValueError):
    pass
  try:
    return importlib.util.find_spec(name) is not None
  except (ImportError, ValueError):
    return False
