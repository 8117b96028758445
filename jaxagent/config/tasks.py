"""Choice of a run's tasks."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jaxagent.config import recipe
from jaxagent.config.stages import RunConfig
from jaxagent.envs.specs import patterns
from jaxagent.envs.specs.descriptions import described
from jaxagent.envs.specs.task_data import DataSource
from jaxagent.envs.tasks import (
  default_folder,
  list_tasks,
  load_task,
  task_names,
)
from jaxagent.errors import UserError

if TYPE_CHECKING:
  from ml_collections import ConfigDict

  from jaxagent.types import TaskSpec


def folder(config: ConfigDict) -> pathlib.Path:
  """Returns the folder of the tasks.

  The bundled one, where `tasks_dir` has its default and the working directory has no
  such folder.
  """
  if config.tasks_dir == RunConfig.defaults()['tasks_dir']:
    return default_folder()
  return pathlib.Path(config.tasks_dir)


def data_source(config: ConfigDict) -> DataSource:
  """Returns which variant of the catalogue's data a run takes, and from where."""
  options = config.tasks
  where = pathlib.Path(options.data_dir) if options.data_dir else None
  return DataSource(options.data, where, options.as_published)


def task_of(config: ConfigDict, name: str) -> TaskSpec:
  """Reads a task, with the problem text that the config asks for.

  Raises ValueError for a task that cannot be used.
  """
  options = config.tasks
  spec = load_task(name, folder(config))
  return described(spec, options.description, options.mlebench_repo)


def without_folder(config: ConfigDict) -> dict[str, str]:
  """Returns the tasks that the config's patterns ask for and that are not there."""
  asked = (*config.tasks.heldin, *config.tasks.heldout)
  return patterns.without_folder(asked, task_names(folder(config)))


def choose_tasks(config: ConfigDict) -> tuple[tuple[str, ...], tuple[str, ...]]:
  """Returns the names of (held-in, held-out) tasks; an empty option means all.

  All but those of version 2 of `task.yaml`, the catalogue: they are named, or
  chosen by patterns (`envs.specs.patterns`).
  An empty `tasks.heldout` means none where the recipe says so (`every_heldout`).
  """
  where, own = folder(config), recipe.find(config)
  known = task_names(where)

  def pick(names: Sequence[str], split: str) -> tuple[str, ...]:
    try:
      names = patterns.expand(names, lambda: list_tasks(where))
    except ValueError as error:
      raise UserError(f'config.tasks.{split}: {error}') from error
    unknown = [n for n in names if n not in known]
    if unknown:
      raise UserError(
        f'config.tasks.{split}: unknown task {unknown[0]!r}; choose from: '
        f'{", ".join(known)}.'
      )
    if names:
      return names
    return tuple(
      s.name
      for s in list_tasks(where, version=1)
      if s.split == split and (s.m_init is not None or not own.trains)
    )

  heldin = pick(config.tasks.heldin, 'heldin')
  heldout: tuple[str, ...] = ()
  if own.every_heldout or config.tasks.heldout:
    heldout = pick(config.tasks.heldout, 'heldout')
  both = sorted(set(heldin) & set(heldout))
  if both:
    rest = [repr(name) for name in heldout if name not in both]
    others = (
      f', as by --config.tasks.heldout="({",".join(rest)},)"' if rest else ''
    )
    raise UserError(
      f'config.tasks: {both} are both held-in and held-out; a task is either trained '
      'on or kept for evaluation. Take them out of config.tasks.heldin or heldout'
      f'{others}.'
    )
  if not own.trains:
    if not heldin + heldout:
      raise UserError(
        f'config.tasks: there is no task in {where}; give another folder with '
        '--config.tasks_dir=DIR.'
      )
  elif not heldin:
    raise UserError(
      f'config.tasks.heldin: no held-in task to train on in {where}; name some with '
      '--config.tasks.heldin.'
    )
  return heldin, heldout
