"""Runs a config: checks it, plans or runs its stages, and names what ended it."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

from jaxagent.errors import DiskFull, MachineryError, UserError
from jaxagent.files import disk, owner

if TYPE_CHECKING:
  from ml_collections import ConfigDict


def check(config: ConfigDict) -> None:
  """Checks config and files as `run` does before its devices, and prints the plan.

  For a machine that starts runs on others, such as a cluster's login node. Raises
  UserError for what a run would refuse, a work directory that another holds included.
  """
  from jaxagent.config import settings
  from jaxagent.recipes import dry_run

  with config.unlocked():
    config.dry_run = False
  settings.validate(config)
  owner.check(pathlib.Path(config.work_dir))
  dry_run.print_plan(config)


def run(config: ConfigDict) -> None:
  """Checks the config, then runs the recipe that it names."""
  from jaxagent.config import settings

  settings.validate(config)
  if config.dry_run:
    from jaxagent.recipes import dry_run

    dry_run.print_plan(config)
    return
  from jaxagent.checkpoint import CheckpointError
  from jaxagent.recipes import pipeline
  from jaxagent.rollout.engine import EngineError

  try:
    pipeline.run(config)
  except Exception as error:
    if disk.is_full(error):
      raise DiskFull(
        f'no space left on the disk of {disk.where(error) or config.work_dir}. Free '
        'some and rerun the same command; it resumes from what is saved in '
        f'{config.work_dir}.'
      ) from error
    if isinstance(error, CheckpointError):
      raise UserError(str(error)) from error
    # An error of the native engine is a bug of jaxagent: it keeps its traceback.
    if isinstance(error, EngineError) and config.rollout.engine != 'native':
      raise MachineryError(
        f'config.rollout.engine={config.rollout.engine!r}: {error} Fix the cause and '
        f'rerun the same command; it resumes from what is saved in {config.work_dir}.'
      ) from error
    raise
