"""Records for tests: what a test does not name has a plain value."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from jaxagent.metrics import MetricWriter
from jaxagent.records import (
  Collected,
  Evaluated,
  SolutionRecord,
  StepRecord,
  TakenStep,
  TrainedTurn,
)
from jaxagent.types import Outcome, Record


class Host(SimpleNamespace):
  """The parts of a run's context that a test names, and its writers of metrics."""

  def metric_writer(
    self, stage: str = '', *, resume_step: int | None = None
  ) -> MetricWriter:
    return MetricWriter(self.work / 'logs' / stage, resume_step=resume_step)


# Of a policy whose texts nobody reads.
TOKENIZER = SimpleNamespace(decode=lambda ids: '')


def step(outcome: str | Outcome = 'ok', **fields: Any) -> StepRecord:
  """A step of the step environment, of the task 'wine'."""
  return StepRecord(outcome=Outcome(outcome), **{'task': 'wine', **fields})


def solution(outcome: str | Outcome = 'ok', **fields: Any) -> SolutionRecord:
  """A whole solution, of the task 'wine'."""
  return SolutionRecord(outcome=Outcome(outcome), **{'task': 'wine', **fields})


def taken(record: Record | TakenStep, **fields: Any) -> TakenStep:
  """A step of a trajectory; one that is given is taken as it is."""
  if isinstance(record, TakenStep):
    return record
  return TakenStep(record=record, **fields)


def turn(record: Record | None = None, **fields: Any) -> TrainedTurn:
  """A trained turn."""
  return TrainedTurn(record=record or step(), **fields)


def evaluated(*steps: Record | TakenStep, **fields: Any) -> Evaluated:
  """The first evaluated trajectory of 'wine'."""
  own = {'task': 'wine', 'index': 0, 'split': 'heldin', **fields}
  return Evaluated(steps=tuple(map(taken, steps)), **own)


def collected(*steps: Record | TakenStep, **fields: Any) -> Collected:
  """The first expert trajectory of 'wine'."""
  own = {'task': 'wine', 'index': 0, **fields}
  return Collected(steps=tuple(map(taken, steps)), **own)
