"""The stages of a run, each readable from top to bottom.

Only this package and `jaxagent.main` see the config object; every other package
takes plain arguments or small frozen dataclasses. Start with `loops/train.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxagent import disk
from jaxagent.loops.errors import (
  DiskFull,
  Interrupted,
  MachineryError,
  UserError,
)

if TYPE_CHECKING:
  from ml_collections import ConfigDict

__all__ = ['DiskFull', 'Interrupted', 'MachineryError', 'UserError', 'run']


def run(config: ConfigDict) -> None:
  """Checks the config, then runs the loop that `config.loop` names."""
  from jaxagent.loops import settings

  settings.validate(config)
  if config.dry_run:
    from jaxagent.loops import dry_run

    dry_run.print_plan(config)
    return
  from jaxagent.checkpoint import CheckpointError
  from jaxagent.loops import pipeline
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
