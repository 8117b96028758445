"""How far a program takes a task from its starter to the best known solution."""

from __future__ import annotations

import math

from jaxagent import types

# Of a program without a score; also the lowest reward of one that has one.
FAILURE = -1.0


def gain_reward(
  outcome: types.Outcome,
  *,
  score: float | None,
  start: float | None,
  best: float | None,
) -> float | None:
  """Returns 0 for the starter's score, 1 for the best known, between -1 and 1.

  For metrics of either direction, since both ends are given. outcome, score: of the
  program. start, best: of the task's starter and of the best known solution.

  Returns None for an infrastructure error, and on a task without a scale (an end that is
  missing or infinite, or two equal ends), whatever the outcome: a failure that is paid
  where a success is not would teach failing less, and nothing else.
  """
  if outcome.is_infrastructure or start is None or best is None:
    return None
  way = best - start
  if way == 0 or not math.isfinite(way):
    return None
  if (
    outcome is not types.Outcome.OK or score is None or not math.isfinite(score)
  ):
    return FAILURE
  done = score - start
  if abs(done) >= abs(way):  # the division may overflow
    return math.copysign(1.0, done) * math.copysign(1.0, way)
  return done / way + 0.0  # no -0.0
