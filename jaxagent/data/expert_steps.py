"""Which of the experts' steps are learned from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from jaxagent.data.records import state_of
from jaxagent.types import Outcome, State


def training_steps(
  records: Sequence[Mapping[str, Any]],
  get: Callable[[str], State],
  *,
  improved: bool = False,
) -> Iterator[dict]:
  """Steps fit to imitate, with their states: a valid action that succeeded.

  get: the state of a key, of the run's `envs.snapshots`.
  improved: of trajectories alone that were once better than their start.
  """
  for record in records:
    if improved and not _improved(record['steps'], get):
      continue
    for step in record['steps']:
      if step['valid_action'] and step['outcome'] == Outcome.OK.value:
        yield {**step, 'state': state_of(step, get)}


def _improved(steps: Sequence[Mapping[str, Any]], get) -> bool:
  """Whether one ever was; all have the same start score."""
  start = state_of(steps[0], get).start_score if steps else None
  return start is not None and any(_better(step, start) for step in steps)


def _better(step: Mapping[str, Any], start: float) -> bool:
  """alpha has the sign of what is better (paper 000, equation 6)."""
  score = step['score_after']
  if score is None or step['alpha'] is None:
    return False
  return step['alpha'] * (score - start) > 0
