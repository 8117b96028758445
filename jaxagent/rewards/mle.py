"""Reward of paper 003, section 3.2: partial credit by markers."""

from __future__ import annotations

import math
import re
from typing import Sequence

from jaxagent import types

# Paper 003, appendix C.3: what the instrumented script prints.
MARKERS = (
  'imported packages',
  'loaded data',
  'defined model',
  'training loss:',
  'trained model',
  'testing loss:',
  'predicted test labels',
)
FAILURE = -10.0
CREDIT = 0.1


def marker_hits(output: str, markers: Sequence[str] = MARKERS) -> int:
  """How many different markers the output holds, each at a line's start.

  A marker counts once: printing it in a loop earns nothing more.
  """
  return sum(
    bool(re.search(rf'^{re.escape(m)}', output, re.M)) for m in markers
  )


def mle_reward(
  outcome: types.Outcome,
  *,
  score: float | None,
  output: str = '',
  higher_is_better: bool = True,
  instrumented: bool = True,
  markers: Sequence[str] = MARKERS,
) -> float | None:
  """Score of a valid solution, sign flipped where lower wins; else -10 + 0.1n.

  n is the number of markers found in the output of the instrumented script
  (0 without instrumentation). None for a failure of the infrastructure.
  """
  if outcome.is_infrastructure:
    return None
  if (
    outcome is types.Outcome.OK and score is not None and math.isfinite(score)
  ):
    return score if higher_is_better else -score
  hits = marker_hits(output, markers) if instrumented else 0
  return FAILURE + CREDIT * hits
