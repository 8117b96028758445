"""The loops: each stage of a run, readable from top to bottom.

Only this room and `jaxagent.main` see the config object; every other room
takes plain arguments or small frozen dataclasses.
"""

from __future__ import annotations

from jaxagent import disk
from jaxagent.loops.errors import (
  DiskFull,
  Interrupted,
  MachineryError,
  UserError,
)

__all__ = ['DiskFull', 'Interrupted', 'MachineryError', 'UserError', 'run']


def run(config) -> None:
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
        f'no space left on the disk of {disk.where(error) or config.work_dir}; '
        'free some and give the same command: it goes on from what is saved in '
        f'{config.work_dir}.'
      ) from error
    if isinstance(error, CheckpointError):
      raise UserError(str(error)) from error
    # A fault of the native engine is ours: it keeps its whole trace.
    if isinstance(error, EngineError) and config.rollout.engine != 'native':
      raise MachineryError(
        f'config.rollout.engine={config.rollout.engine!r}: {error} Once it is '
        'mended, the same command goes on from what is saved in '
        f'{config.work_dir}.'
      ) from error
    raise
