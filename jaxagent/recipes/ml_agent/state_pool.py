"""The states that step-wise RL starts from: the experts' (paper 000, equation 4)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from jaxagent import types
from jaxagent.data import records as record_data
from jaxagent.envs.snapshots import Snapshots
from jaxagent.errors import UserError
from jaxagent.records import Collected, TakenStep

if TYPE_CHECKING:
  from jaxagent.runtime.context import RunContext


class StatePool(Mapping[str, types.State]):
  """Name -> state, which is read from disk when it is asked for.

  keys: name -> the state's key in the store.
  """

  def __init__(self, keys: Mapping[str, str], store: Snapshots):
    self._keys, self._store = dict(keys), store

  def __getitem__(self, name: str) -> types.State:
    return self._store.get(self._keys[name])

  def __iter__(self) -> Iterator[str]:
    return iter(self._keys)

  def __len__(self) -> int:
    return len(self._keys)

  def of(self, records: Sequence[Collected]) -> list[Collected]:
    """The records with those of their steps alone that begin in the pool."""
    own = set(self._keys.values())
    return [
      dataclasses.replace(
        record,
        steps=tuple(s for s in record.steps if _key(s, self._store) in own),
      )
      for record in records
    ]


def make(context: RunContext, records: Sequence[Collected]) -> StatePool:
  """Samples `rl.states` of the states in which an expert acted; 0: all of them.

  Failed actions count as well. Each state of RL's tasks counts once, with its history
  and its ideas. Raises UserError where they are too few.
  """
  config, store = context.config.rl, context.env.store
  tasks = config.tasks or context.heldin
  first: dict[str, str] = {}
  for record in records:
    for number, step in enumerate(record.steps):
      if record.task in tasks:
        name = f'{record.task}-{record.index}-{number}'
        first.setdefault(_key(step, store), name)
  keys = {name: key for key, name in first.items()}
  wanted = config.states or len(keys)
  if wanted > len(keys) or wanted * config.group_size < config.batch_size:
    raise UserError(
      f'config.rl.tasks={tuple(config.tasks)!r}, rl.states={config.states}: the '
      f'experts left {len(keys)} states of these tasks. RL takes rl.states of them '
      f'(0: all), of which rl.group_size={config.group_size} samples each are to '
      f'fill rl.batch_size={config.batch_size}: change one of these, or raise '
      'config.collect.trajectories_per_task.'
    )
  rng = np.random.default_rng([context.config.seed, 13])
  names = sorted(keys)
  chosen = [names[i] for i in rng.permutation(len(names))[:wanted]]
  return StatePool({name: keys[name] for name in chosen}, store)


def _key(step: TakenStep, store: Snapshots) -> str:
  """The step's state in the store; older records hold it whole."""
  state = step.state
  if isinstance(state, str):
    return state
  return store.put(record_data.state_from_json(state))
