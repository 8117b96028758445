"""A whole run: the first steps of every experiment, then its own stages.

Each stage's result is kept in the work directory and reused.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from jaxagent.config import settings
from jaxagent.devices import sharding
from jaxagent.errors import UserError
from jaxagent.recipes.agents import recipe as run_agent
from jaxagent.recipes.ml_agent import recipe as stepwise
from jaxagent.recipes.solutions import recipe as rl_for_mle
from jaxagent.runtime.host import Host, open_host
from jaxagent.training import crew, device

if TYPE_CHECKING:
  from ml_collections import ConfigDict

# Loop -> its stages; every other one is a part of stepwise's.
_EXPERIMENTS = {
  'rl_for_mle': rl_for_mle,
  'tree_search': rl_for_mle,
  'agent': run_agent,
}


def run(config: ConfigDict) -> None:
  """Runs the stages of `config.loop` whose results are not there yet.

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
  work = settings.open_work_dir(config)
  if config.loop == 'evaluate' or (
    config.loop == 'tree_search' and config.writer.kind == 'policy'
  ):
    device.check_trained(work)
  with open_host(config, work) as host, contextlib.ExitStack() as stack:
    _say(host)
    _EXPERIMENTS.get(config.loop, stepwise).run(host, stack)


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
