"""Reward of paper 003, section 3.2: partial credit by milestones."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

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
_CREDIT = 0.01  # of a failure's pay, for each milestone
SCALES = ('bounded', 'task', 'raw')
# In tenths of a failure's pay: above all that one can earn, and where the score ends.
_FLOOR, _BEND = 9.2, 8.0
_MOST = 1e12  # of a raw score, either way


def marker_hits(output: str, markers: Sequence[str] = MARKERS) -> int:
  """Counts the different markers in the output, each at a line's start.

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
  milestones: int | None = None,
  scale: str = 'bounded',
  start: float | None = None,
  best: float | None = None,
  failure: float = FAILURE,
) -> float | None:
  """Score of a valid solution, sign flipped where lower wins; else -10 + 0.1n.

  Args:
    outcome: what became of the program.
    score: of its submission; None where there is none.
    output: of the instrumented program; n is the number of its markers.
    milestones: n, where something else than its output tells it.
    instrumented: False: n is 0.
    scale: how a valid score is paid. 'raw' as it is (the paper), up to 1e12:
      whitening squares it in float32. 'bounded' as it is down to -8 and compressed
      below it, so that a worse score always pays less, and none as little as a
      failure (a log loss of 11.48 does, in the paper). 'task': 0 for `start` and 1 for `best`, bounded; for metrics
      whose unit is large, and for several tasks at once.
    start, best: for 'task': scores of the task's starter and of the best known
      solution.
    failure: pay of a program that reached nothing, below 0. A hundredth of it is the
      credit for a milestone, and 'bounded' ends above it in proportion: with -1 at
      -0.92, bent from -0.8 on.

  Returns:
    A finite float, or None (infrastructure: retried, never charged).
  """
  if scale not in SCALES:
    raise ValueError(f'scale={scale!r}; choose one of {", ".join(SCALES)}.')
  if not (math.isfinite(failure) and failure < 0):
    raise ValueError(f'failure={failure!r} must be a number below 0.')
  if outcome.is_infrastructure:
    return None
  if outcome is types.Outcome.OK and score is not None and math.isfinite(score):
    if scale == 'task':
      return _bounded(_of_task(score, start, best), failure)
    signed = score if higher_is_better else -score
    if scale == 'raw':
      return max(-_MOST, min(_MOST, signed))
    return _bounded(signed, failure)
  if milestones is None:
    milestones = marker_hits(output, markers)
  return failure - _CREDIT * failure * (milestones if instrumented else 0)


def _of_task(score: float, start: float | None, best: float | None) -> float:
  if (
    start is None
    or best is None
    or not (math.isfinite(start) and math.isfinite(best))
    or start == best
  ):
    raise ValueError(
      f'start={start!r} and best={best!r} must be two different numbers for '
      "scale='task'."
    )
  value = (score - start) / (best - start)
  return value if math.isfinite(value) else math.copysign(1e300, value)


def _bounded(value: float, failure: float) -> float:
  """The identity from -8 on; below it a hyperbola that ends at -9.2, smooth."""
  floor, bend = _FLOOR * failure / 10, _BEND * failure / 10
  if value >= bend:
    return value
  width = bend - floor
  return floor + width / (1 + (bend - value) / width)
