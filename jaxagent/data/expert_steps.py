"""Choice of the experts' steps that SFT learns from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jaxagent.data.records import state_of
from jaxagent.records import Collected, TakenStep
from jaxagent.types import Outcome, Record, State


def training_steps(
  trajectories: Sequence[Collected],
  get: Callable[[str], State],
  *,
  improved: bool = False,
) -> Iterator[tuple[State, Record]]:
  """Records fit to imitate, with their states: a valid action that succeeded.

  get: the state of a key, of the run's `envs.snapshots`.
  improved: of trajectories alone that were once better than their start.
  """
  for trajectory in trajectories:
    if improved and not _improved(trajectory.steps, get):
      continue
    for step in trajectory.steps:
      if step.record.valid_action and step.record.outcome is Outcome.OK:
        yield state_of(step, get), step.record


def _improved(steps: Sequence[TakenStep], get: Callable[[str], Any]) -> bool:
  """Whether one ever was; all have the same start score."""
  start = state_of(steps[0], get).start_score if steps else None
  return start is not None and any(
    _better(step.record, start) for step in steps
  )


def _better(record: Record, start: float) -> bool:
  """alpha has the sign of what is better (paper 000, equation 6)."""
  score, alpha = record.score_after, getattr(record, 'alpha', None)
  if score is None or alpha is None:
    return False
  return alpha * (score - start) > 0
