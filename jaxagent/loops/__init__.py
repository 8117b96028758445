"""The loops: each stage of a run, readable from top to bottom.

Only this room and `jaxagent.main` see the config object; every other room
takes plain arguments or small frozen dataclasses.
"""

from __future__ import annotations

from jaxagent.loops.errors import Interrupted, UserError

__all__ = ['Interrupted', 'UserError', 'run']


def run(config) -> None:
  """Checks the config, then runs the loop that `config.loop` names."""
  from jaxagent.loops import settings

  settings.validate(config)
  if config.dry_run:
    from jaxagent.loops import dry_run

    dry_run.print_plan(config)
    return
  from jaxagent.loops import pipeline

  pipeline.run(config)
