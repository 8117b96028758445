"""What a task's scripts need of a machine and its sandbox, checked before a run."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Sequence

from jaxagent.envs.specs import interpreters
from jaxagent.types import TaskSpec


def complaint(
  spec: TaskSpec,
  *,
  gpus: Sequence[str],
  image: str,
  memory_mb: int,
  backend: str = 'local',
) -> str:
  """Says what a task needs that is not here, in one sentence; '' if all is.

  Args:
    spec: the task.
    gpus: those of the sandbox.
    image: that of the sandbox's containers; '' where it has none.
    memory_mb: limit of one execution that replaces the task's own; 0 for none.
    backend: of the sandbox.
  """
  details = spec.details
  if details is None:
    return ''
  if details.gpus > len(gpus):
    return (
      f'task {spec.name} asks for {details.gpus} GPUs an execution (limits.gpus), '
      f'and the sandbox has {len(gpus)}: give their numbers with '
      '--config.sandbox.gpus (of `jaxagent.tasks` --gpus), or leave the task out.'
    )
  here = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') >> 20
  if not memory_mb and spec.limits.memory_mb > here:
    return (
      f'task {spec.name} asks for {spec.limits.memory_mb:,} MB of memory, and '
      f'this machine has {here:,}: leave it out, or set the limit of one '
      'execution with --config.sandbox.memory_mb.'
    )
  return _environment(spec, image, backend)


def _environment(spec: TaskSpec, image: str, backend: str) -> str:
  assert spec.details is not None  # `complaint`
  need = spec.details.environment
  if need.image and need.image != image:
    return (
      f'task {spec.name} runs in the image {need.image!r}: give '
      f'--config.sandbox.backend=docker --config.sandbox.docker_image={need.image}.'
    )
  if python := interpreters.own(spec):
    if backend != 'local':
      return (
        f'task {spec.name} runs with {python}, which the sandbox of this machine alone '
        f'has: give --config.sandbox.backend=local, not {backend}, or an image of its own.'
      )
    why = interpreters.complaint(python, need.packages)
    return f'task {spec.name}: {why}' if why else ''
  missing = [name for name in need.packages if not image and not _found(name)]
  if missing:
    return (
      f'task {spec.name} needs {", ".join(missing)}, not installed beside '
      f'jaxagent: `pip install` it into {sys.prefix}, or leave the task out.'
    )
  return ''


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
