"""Stored steps, turns and trajectories of a run: typed, to and from JSON.

A recipe defines one subclass of `types.Record` and registers it; `codec` writes and
reads it by its kind and version. `TrainedTurn`, `TakenStep` and the two kinds of
trajectories say what the stages add to a record.
"""

from jaxagent.records.codec import (
  DamagedRecord,
  UnknownRecord,
  from_json,
  kinds,
  load,
  register,
  to_json,
)
from jaxagent.records.gain import GainRecord
from jaxagent.records.places import load_noted, note
from jaxagent.records.rewarded import reward_of
from jaxagent.records.solution import SolutionRecord
from jaxagent.records.step import StepRecord
from jaxagent.records.trajectory import (
  Collected,
  Evaluated,
  SearchStep,
  TakenStep,
  TrainedTurn,
  Trajectory,
)

__all__ = [
  'Collected',
  'DamagedRecord',
  'Evaluated',
  'GainRecord',
  'SearchStep',
  'SolutionRecord',
  'StepRecord',
  'TakenStep',
  'TrainedTurn',
  'Trajectory',
  'UnknownRecord',
  'from_json',
  'kinds',
  'load',
  'load_noted',
  'note',
  'register',
  'reward_of',
  'to_json',
]
