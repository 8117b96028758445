"""Stored objects that contain records: trained turns, steps and trajectories.

On disk a record's fields and those of what holds it are one flat object.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from jaxagent.records import codec
from jaxagent.types import Record, optional


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainedTurn:
  """One turn that an update learned from: a line of `rl/traces/*.jsonl`.

  Or one that a validation drew: an item of `rl/validation/*.json`.

  record: what was done; its outcome and seconds are the turn's.
  update: that learned from it; of a validation, how many there were before.
  version: of the policy that wrote it.
  reward: that was learned from; None where a validation's turn has none.
  prompt_tokens, tokens: that stood before it in its row, and its own.
  finish_reason: of its completion; '' where that is not known.
  """

  record: Record
  prompt_id: str = ''
  update: int = 0
  version: int = 0
  reward: float | None = None
  prompt_tokens: int = 0
  tokens: int = 0
  finish_reason: str = ''

  def to_json(self) -> dict[str, Any]:
    """Returns the turn's line, without the seal."""
    own = codec.fields_to_json(self, 'trained turn', ('record',))
    return own | codec.to_json(self.record)

  @classmethod
  def from_json(cls, value: Any) -> TrainedTurn:
    """The turn of a line; raises as `codec.from_json`, of a whole record."""
    record = codec.from_json(value, whole=True)
    needed = ('update', 'reward')
    own = codec.fields_from_json(
      cls, value, 'trained turn', needed, ('record',)
    )
    return cls(record=record, **own)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class TakenStep:
  """A step of a trajectory that was evaluated or collected.

  record: what was done.
  reward: without switches, whatever RL is trained on; None where there is none.
  state: key of the state that it was taken in; in older files the state whole.
  workspace_id: key of the state that it left.
  submission, prompt: (digest, bytes) of what it submitted, and of what the model
    was shown.
  prompt_tokens, tokens: of its completion, where they were counted.
  answer_s: seconds until an endpoint's model had answered.
  thoughts: of the model that answered.
  edited: key of the state that a person put in place of the one it left.
  private: its score on the private rows, where it was the best so far.
  whole: beside that, its score on all hidden rows, as the task's source computes it.
  """

  record: Record
  reward: float | None = None
  state: Any = optional(None)
  workspace_id: str | None = optional(None)
  submission: tuple[Any, ...] | None = optional(None)
  prompt: tuple[Any, ...] | None = optional(None)
  prompt_tokens: int | None = optional(None)
  tokens: int | None = optional(None)
  answer_s: float | None = optional(None)
  thoughts: str | None = optional(None)
  edited: str | None = optional(None)
  private: float | None = optional(None)
  whole: float | None = optional(None)

  @classmethod
  def of(cls, record: Record, **kept: Any) -> TakenStep:
    """A step with the reward of its record."""
    return cls(record=record, reward=record.earned(), **kept)

  def to_json(self) -> dict[str, Any]:
    """Its object, as it stands in a trajectory's `steps`."""
    own = codec.fields_to_json(self, 'step', ('record',))
    return codec.to_json(self.record) | own

  @classmethod
  def from_json(cls, value: Any) -> TakenStep:
    """The step of an object; raises as `codec.from_json`.

    It is a SearchStep where the object has a `parent`.
    """
    record = codec.from_json(value)
    cls = SearchStep if 'parent' in value else TakenStep
    # 'thoughts' is a solution's own field.
    skip = {'record', *(f.name for f in dataclasses.fields(record))}
    own = codec.fields_from_json(cls, value, 'step', (), skip)
    return cls(record=record, **own)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchStep(TakenStep):
  """A step of a tree search.

  parent: number of the step that it debugs, improves upon or joins with another; None
    for a draft. second: of a crossover that of the other.
  """

  parent: int | None = None
  second: int | None = optional(None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluated:
  """A trajectory of a policy: an entry of `eval/LABEL.json`.

  split: 'heldin' or 'heldout'.
  score: on the private rows, of what it left behind; None where there is none.
  whole: of the same on all hidden rows, as the task's source computes it; None where
    there is no such number.
  missing, reason: whether an infrastructure error cut it short, and which.
  part: of whole solutions: 'scratch' or 'improved'; else ''. 'from' in files.
  private_by_step: of a tree search: the best private score after each step.
  """

  KIND = 'evaluated'
  VERSION = 1

  task: str
  index: int
  split: str = ''
  score: float | None = None
  whole: float | None = optional(None)
  steps: tuple[TakenStep, ...] = ()
  missing: bool = False
  reason: str = optional('')
  part: str = optional('')
  private_by_step: tuple[float | None, ...] | None = optional(None)

  def to_json(self) -> dict[str, Any]:
    """Its object, without the seal."""
    value = _to_json(self)
    if 'part' in value:
      value['from'] = value.pop('part')
    return value

  @classmethod
  def from_json(cls, value: Any) -> Evaluated:
    """The trajectory of an object.

    Raises as `codec.from_json`, naming the step where it is of one.
    """
    return _from_json(cls, value, ('split', 'score', 'steps'), {'from': 'part'})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Collected:
  """An expert's trajectory: a line of `collect/trajectories.jsonl`.

  ideas: that the expert was given.
  stand_ins: scripted doubles in place of models.
  fault: infrastructure error that cut it short; '' if none did.
  """

  KIND = 'collected'
  VERSION = 1

  task: str
  index: int
  ideas: tuple[str, ...] = ()
  stand_ins: tuple[str, ...] = ()
  steps: tuple[TakenStep, ...] = ()
  fault: str = ''

  @property
  def missing(self) -> bool:
    """False: what there is of a trajectory that was cut short counts."""
    return False

  def to_json(self) -> dict[str, Any]:
    """Its line, without the seal."""
    return _to_json(self)

  @classmethod
  def from_json(cls, value: Any) -> Collected:
    """The trajectory of a line; raises as `Evaluated.from_json`."""
    return _from_json(cls, value, ('steps',), {})


Trajectory = Evaluated | Collected


def name_of(trajectory: Trajectory) -> str:
  """Returns the name of a trajectory in messages."""
  return f'trajectory {trajectory.task}/{trajectory.index}'


def _to_json(trajectory: Trajectory) -> dict[str, Any]:
  what = name_of(trajectory)
  value: dict[str, Any] = {
    codec.KIND: trajectory.KIND,
    codec.FORMAT: trajectory.VERSION,
    **codec.fields_to_json(trajectory, what, ('steps',)),
  }
  value['steps'] = [
    _placed(TakenStep.to_json, step, f'{what}: steps[{number}]')
    for number, step in enumerate(trajectory.steps)
  ]
  return value


def _from_json(
  cls: type[Evaluated] | type[Collected],
  value: Any,
  needed: tuple[str, ...],
  names: dict[str, str],
) -> Any:
  codec.need_object(value, 'trajectory')
  kind, version = value.get(codec.KIND, cls.KIND), value.get(codec.FORMAT, 1)
  if (kind, version) != (cls.KIND, cls.VERSION):
    raise codec.UnknownRecord(
      f'a trajectory of kind {str(kind)[:40]!r}, format {str(version)[:40]}, is not '
      f'known here, but {cls.KIND!r}, {cls.VERSION}; read it with the version of '
      'jaxagent that wrote it'
    )
  value = {names.get(key, key): held for key, held in value.items()}
  what = f'trajectory {value.get("task", "?")}/{value.get("index", "?")}'
  own = codec.fields_from_json(cls, value, what, (), ('steps',))
  if missing := [name for name in needed if name not in value]:
    raise codec.DamagedRecord(
      f'{what}: fields are missing: {", ".join(missing)}'
    )
  steps = value['steps']
  if not isinstance(steps, list):
    raise codec.DamagedRecord(f'{what} has no list of steps')
  own['steps'] = tuple(
    _placed(TakenStep.from_json, step, f'{what}: steps[{number}]')
    for number, step in enumerate(steps)
  )
  return cls(**own)


def _placed(convert: Callable[[Any], Any], value: Any, place: str) -> Any:
  """`convert(value)`, its errors with the place."""
  try:
    return convert(value)
  except codec.UnknownRecord as error:
    raise codec.UnknownRecord(f'{place}: {error}') from error
  except codec.DamagedRecord as error:
    raise codec.DamagedRecord(f'{place}: {error}') from error
