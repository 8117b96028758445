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
from jaxagent.runtime.host import Host, open_host
from jaxagent.training import crew

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
    return crew.follow()
  with crew.leading():
    _lead(config)


def _lead(config: ConfigDict) -> None:
  work, own = settings.open_work_dir(config), recipe.find(config)
  own.check_work_dir(work)
  if own.record_type is not None:
    records.note(work, own.record_type)
  with open_host(config, work) as host, contextlib.ExitStack() as stack:
    _say(host)
    own.run(host, stack)


def _say(host: Host) -> None:
  print(
    f'jaxagent: {len(host.heldin)} held-in and {len(host.heldout)} held-out '
    f'tasks; sandbox tier {host.pool.tier}, {host.config.sandbox.slots} '
    f'slots; work directory {host.work}'
  )
  if host.stand_ins:
    print(
      'scripted stand-ins for language models: ' + ', '.join(host.stand_ins)
    )
