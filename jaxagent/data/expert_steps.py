"""Which of the experts' steps are learned from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jaxagent.data.records import state_from_json
from jaxagent.types import Outcome


def training_steps(
  records: Sequence[Mapping[str, Any]], *, improved: bool = False
) -> list[dict]:
  """Steps fit to imitate: a valid action that succeeded.

  improved: of trajectories alone that were once better than their start.
  """
  return [
    {**step, 'state': state_from_json(step['state'])}
    for record in records
    if not improved or _improved(record)
    for step in record['steps']
    if step['valid_action'] and step['outcome'] == Outcome.OK.value
  ]


def _improved(record: Mapping[str, Any]) -> bool:
  return any(map(_better_than_start, record['steps']))


def _better_than_start(step: Mapping[str, Any]) -> bool:
  """alpha has the sign of what is better (paper 000, equation 6)."""
  start, score = step['state']['start_score'], step['score_after']
  if start is None or score is None or step['alpha'] is None:
    return False
  return step['alpha'] * (score - start) > 0
