"""The pool: states that end with a question, split by run, with their noise.

Paper 001, 3.2 and 4.1: runs are made once, and the states in which the Implementer
asked become the prompts of training and validation. A state's present program is run
again before it is taken: one whose score does not come back is left out.
"""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
import random
from collections.abc import Mapping, Sequence
from typing import Any

from jaxagent.envs.agents.implementer import Turn
from jaxagent.envs.implementer_state import Effect, ImplementerState
from jaxagent.interactions import Call, Execute, Transition
from jaxagent.recipes.ideator.interaction import Action, HelpState, Ideas


class PoolError(ValueError):
  """A pool that cannot be used; the message names task or file, and the remedy."""


def states_of(run: str, asked: Sequence[ImplementerState]) -> list[HelpState]:
  """Returns the states of a run in which its questions were answered.

  run: its name, unique within the pool. asked: `At.asked` at its end.
  """
  return [
    HelpState(f'{run}/{number}', run, state)
    for number, state in enumerate(asked)
  ]


# Noise --------------------------------------------------------------------------


class Remeasured:
  """Runs the present program of a state again, `times` times; a pure reducer.

  Its last state is the scores, None for a run without a valid submission; there are
  none where the state has no p_t.

  Args:
    interaction: says which program is the present one.
    times: 1 or more.
  """

  def __init__(self, interaction: Ideas, *, times: int = 1):
    if times < 1:
      raise ValueError(f'times={times!r} must be 1 or more.')
    self._interaction, self._times = interaction, times

  def start(self, payload: HelpState) -> Transition:
    return self._next((payload, ()))

  def advance(
    self,
    state: tuple[HelpState, tuple[float | None, ...]],
    call: Call,
    result: Any,
  ) -> Transition:
    score = Effect.from_json(result.state).step.score
    return self._next((state[0], (*state[1], score)))

  def _next(
    self, state: tuple[HelpState, tuple[float | None, ...]]
  ) -> Transition:
    item, scores = state
    present = self._interaction.scored(item.state)
    if present is None or len(scores) == self._times:
      return Transition(scores, credits={})
    program = present.program
    turn = Turn(program.kind, code=program.code)
    action = Action(item.state, turn, program.code)
    return Transition(state, (Execute(len(scores), action),))


def with_noise(
  item: HelpState, present: float | None, scores: Sequence[float | None]
) -> HelpState | None:
  """Returns the state with its noise; None where its score does not come back.

  The noise is the spread, largest less smallest, of p_t and the scores that its
  program has now. A state without p_t has none and is kept.
  """
  if present is None:
    return item
  again = [s for s in scores if s is not None and math.isfinite(s)]
  if len(again) < len(scores) or not again:
    return None
  every = [present, *again]
  return dataclasses.replace(item, noise=max(every) - min(every))


# Splits -------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Pool:
  """States to train on and to validate on; no run is in both."""

  train: tuple[HelpState, ...]
  valid: tuple[HelpState, ...]

  def __post_init__(self):
    both = {i.run for i in self.train} & {i.run for i in self.valid}
    if both:
      raise PoolError(
        f'run {min(both)} is in both splits of the pool; split it by run.'
      )
    keys = [i.key for i in (*self.train, *self.valid)]
    if len(set(keys)) < len(keys):
      twice = next(key for key in keys if keys.count(key) > 1)
      raise PoolError(f'state {twice} is in the pool twice.')


def split(
  items: Sequence[HelpState],
  *,
  train_per_task: int,
  valid_per_task: int,
  seed: int,
) -> Pool:
  """Splits states by run, and draws so many of each task.

  Whole runs are drawn for validation until they have `valid_per_task` states; the
  others are for training. It depends on seed and content alone.

  Raises PoolError, naming the task, where there are too few states.
  """
  train: list[HelpState] = []
  valid: list[HelpState] = []
  for task in sorted({item.state.task for item in items}):
    runs: dict[str, list[HelpState]] = {}
    for item in sorted(items, key=lambda i: i.key):
      if item.state.task == task:
        runs.setdefault(item.run, []).append(item)
    rng = random.Random(f'{seed} {task}')
    names = sorted(runs)
    rng.shuffle(names)
    held: list[HelpState] = []
    while names and len(held) < valid_per_task:
      held += runs[names.pop()]
    rest = [item for name in names for item in runs[name]]
    for kept, there, wanted in (
      (valid, held, valid_per_task),
      (train, rest, train_per_task),
    ):
      if len(there) < wanted:
        raise PoolError(
          f'task {task}: {len(held)} states for validation and {len(rest)} to '
          f'train on, of {len(runs)} runs, where {valid_per_task} and '
          f'{train_per_task} are asked for; make more runs, or ask for fewer.'
        )
      kept += rng.sample(there, wanted)
  return Pool(tuple(train), tuple(valid))


# Files --------------------------------------------------------------------------


def to_json(item: HelpState) -> dict[str, Any]:
  """Returns a state of the pool as JSON values."""
  return {
    'key': item.key,
    'run': item.run,
    'noise': item.noise,
    'state': item.state.to_json(),
  }


def from_json(value: Mapping[str, Any]) -> HelpState:
  """Returns what `to_json` gave; raises ValueError for anything else."""
  try:
    return HelpState(
      value['key'],
      value['run'],
      ImplementerState.from_json(value['state']),
      value['noise'],
    )
  except (KeyError, TypeError) as error:
    raise ValueError(
      f'state of a pool is damaged ({type(error).__name__}: {error}).'
    ) from error


def write(path: pathlib.Path, pool: Pool) -> None:
  """Writes a pool, a state a line; the file is there whole or not at all."""
  path.parent.mkdir(parents=True, exist_ok=True)
  scratch = path.with_suffix('.tmp')
  with scratch.open('w', encoding='utf-8') as file:
    for name in ('train', 'valid'):
      for item in getattr(pool, name):
        file.write(json.dumps({'split': name, **to_json(item)}) + '\n')
  scratch.replace(path)


def read(path: pathlib.Path) -> Pool:
  """Reads what `write` wrote.

  Raises PoolError, naming file and line, where it is damaged or a split is empty;
  OSError where it is not there.
  """
  found: dict[str, list[HelpState]] = {'train': [], 'valid': []}
  with path.open(encoding='utf-8') as file:
    for number, line in enumerate(file, 1):
      try:
        value = json.loads(line)
        found[value['split']].append(from_json(value))
      except (ValueError, KeyError, TypeError) as error:
        raise PoolError(
          f'{path}:{number} is damaged ({error}); put back a copy, or remove the '
          'file: the pool is then made again.'
        ) from error
  if empty := next((name for name in found if not found[name]), ''):
    raise PoolError(
      f'{path} holds no state of the split {empty!r}; put back a copy, or remove the '
      'file: the pool is then made again.'
    )
  return Pool(tuple(found['train']), tuple(found['valid']))
