"""A whole run: the first steps of every experiment, then its own stages.

Each stage's result is kept in the work directory and reused.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING

from jaxagent import records
from jaxagent.config import recipe, settings
from jaxagent.devices import compile_cache, presence, sharding
from jaxagent.errors import UserError
from jaxagent.files import owner
from jaxagent.runtime.context import RunContext, open_context
from jaxagent.runtime.stop import StopFlag
from jaxagent.trackers.start import following
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
    index, count = _meet()
    stop.take_signals()
    work = pathlib.Path(config.work_dir).resolve()
    named = f'{config.work_dir} (config {settings.config_sha(config)})'
    with presence.among(index, count, work / 'logs', named) as watch:
      stop.farewells.append(watch.end_others)
      watch.on_stop = stop.ask
      # Devices can be counted only once the processes have met.
      settings.validate_devices(config)
      if not index:
        print(_opening(config, watch.peers, count, work), flush=True)
      with compile_cache.using(config.compile_cache):
        if index:
          # Process 0 decides when to stop, and what is saved before.
          stop.within_s = None
          with stop.telling(lambda: watch.ask_stop(stop.signal)):
            return multi_process.follow()
        with multi_process.leading():
          _lead(config, stop, watch)
  finally:
    stop.restore()


def _meet() -> tuple[int, int]:
  """Meets the other processes of the run; returns this one's index, and how many."""
  try:
    return sharding.initialize_distributed()
  except ValueError as error:
    raise UserError(str(error)) from error


def _opening(
  config: ConfigDict,
  peers: Mapping[int, presence.Process],
  count: int,
  work: pathlib.Path,
) -> str:
  """Returns the first line of a run: who takes part, and where it is.

  peers: those of its `count` processes whose host is known.
  """
  hosts = list(dict.fromkeys(peers[index].host for index in sorted(peers)))
  more = ', others unknown' if len(peers) < count else ''
  devices, platform = sharding.devices()
  mesh = ' x '.join(f'{axis} {size}' for axis, size in config.mesh.items())
  named = ((n, os.environ.get(n)) for n in ('SLURM_JOB_ID', 'JOBSET_NAME'))
  job = ''.join(f'; {name} {value}' for name, value in named if value)
  return (
    f'jaxagent: {_number(count, "process", "es")} on '
    f'{_number(len(hosts), "host")} ({", ".join(hosts)}{more}), '
    f'{_number(devices, "device")} ({platform}), mesh {mesh}{job}; '
    f'work directory {work}'
  )


def _number(count: int, what: str, plural: str = 's') -> str:
  return f'{count} {what}{plural if count > 1 else ""}'


def _lead(config: ConfigDict, stop: StopFlag, watch: presence.Watch) -> None:
  own = recipe.find(config)
  with contextlib.ExitStack() as stack:

    def claim(work: pathlib.Path) -> None:
      held = stack.enter_context(owner.holding(work, stop.fail))
      # Where the process ends as it is, the next one is not to wait.
      stop.farewells.append(held.release)
      watch.farewells.append(held.release)

    work = settings.open_work_dir(config, claim=claim)
    stop.saved = f'finished stages are saved in {work}'
    own.check_work_dir(work)
    if own.record_type is not None:
      try:
        records.note(work, own.record_type)
      except ValueError as error:
        raise UserError(str(error)) from error
    stack.enter_context(following(work, config.trackers))
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
  print(f'watch        jaxagent live {shlex.quote(str(context.work))}')
