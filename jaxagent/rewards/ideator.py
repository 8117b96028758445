"""Reward of paper 001, equation 1: three levels for one idea."""

from __future__ import annotations

import math

from jaxagent import types


def ideator_reward(
  outcome: types.Outcome,
  *,
  valid_format: bool,
  score_before: float | None,
  score_after: float | None,
  higher_is_better: bool = True,
) -> float | None:
  """+1 better than before; 0 not better or failed run; -1 format error.

  p_t is the performance before the idea, p_{t+1} after the implementer has
  carried it out in a single step. Without a score before, any graded
  solution counts as better. None for a failure of the infrastructure.
  """
  if outcome.is_infrastructure:
    return None
  if not valid_format or outcome is types.Outcome.INVALID_FORMAT:
    return -1.0
  if outcome is not types.Outcome.OK or score_after is None:
    return 0.0
  if not math.isfinite(score_after):
    return 0.0
  if score_before is None or not math.isfinite(score_before):
    return 1.0
  sign = 1.0 if higher_is_better else -1.0
  return 1.0 if sign * (score_after - score_before) > 0 else 0.0
