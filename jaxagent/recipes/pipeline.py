"""A whole run: the first steps of every experiment, then its own stages.

Each stage's result is kept in the work directory and reused.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from jaxagent import records
from jaxagent.config import recipe, settings
from jaxagent.devices import sharding
from jaxagent.errors import UserError
from jaxagent.files import owner
from jaxagent.runtime.context import RunContext, open_context
from jaxagent.runtime.stop import StopFlag
from jaxagent.training import multi_process

if TYPE_CHECKING:
  from ml_collections import ConfigDict


def run(config: ConfigDict) -> None:
  """Runs the stages of `config.recipe` whose results are not there yet.

  Of several processes the first does; the others take part in its learner.
  """
  stop = StopFlag()
  stop.install()
  try:
    index = _index()
    stop.take_signals()
    # Devices can be counted only once the processes have met.
    settings.validate_devices(config)
    if index:
      # Process 0 decides when to stop, and what is saved before.
      stop.within_s = None
      return multi_process.follow()
    with multi_process.leading():
      _lead(config, stop)
  finally:
    stop.restore()


def _index() -> int:
  """Meets the other processes of the run; returns this one's number."""
  try:
    return sharding.initialize_distributed()[0]
  except ValueError as error:
    raise UserError(str(error)) from error


def _lead(config: ConfigDict, stop: StopFlag) -> None:
  work, own = settings.open_work_dir(config), recipe.find(config)
  with contextlib.ExitStack() as stack:
    # Before anything of it is read: another run may be writing it.
    stack.enter_context(owner.holding(work, stop.fail))
    stop.saved = f'finished stages are saved in {work}'
    own.check_work_dir(work)
    if own.record_type is not None:
      try:
        records.note(work, own.record_type)
      except ValueError as error:
        raise UserError(str(error)) from error
    context = stack.enter_context(open_context(config, work, stop))
    _say(context)
    with contextlib.ExitStack() as stages:
      own.run(context, stages)


def _say(context: RunContext) -> None:
  print(
    f'jaxagent: {len(context.heldin)} held-in and {len(context.heldout)} held-out '
    f'tasks; sandbox tier {context.pool.tier}, {context.config.sandbox.slots} '
    f'slots; work directory {context.work}'
  )
  if context.stand_ins:
    print(
      'scripted stand-ins for language models: ' + ', '.join(context.stand_ins)
    )
  if context.standin_data:
    print(
      'data made by code in place of the published: '
      + ', '.join(context.standin_data)
    )
