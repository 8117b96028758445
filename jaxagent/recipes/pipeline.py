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
from jaxagent.runtime.context import RunContext, open_context
from jaxagent.training import multi_process

if TYPE_CHECKING:
  from ml_collections import ConfigDict


def run(config: ConfigDict) -> None:
  """Runs the stages of `config.recipe` whose results are not there yet.

  Of several processes the first does; the others take part in its learner.
  """
  try:
    index, _ = sharding.initialize_distributed()
  except ValueError as error:
    raise UserError(str(error)) from error
  # Devices can be counted only once the processes have met.
  settings.validate_devices(config)
  if index:
    return multi_process.follow()
  with multi_process.leading():
    _lead(config)


def _lead(config: ConfigDict) -> None:
  work, own = settings.open_work_dir(config), recipe.find(config)
  own.check_work_dir(work)
  if own.record_type is not None:
    try:
      records.note(work, own.record_type)
    except ValueError as error:
      raise UserError(str(error)) from error
  with open_context(config, work) as context, contextlib.ExitStack() as stack:
    _say(context)
    own.run(context, stack)


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
