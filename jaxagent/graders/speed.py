"""Grader of programs: right outputs, and CPU time beside a reference's.

What is graded is no file of a program's, but what the sandbox measured of one
(`envs.programs`): arrays `round` [K], `program_s` [K], `reference_s` [K] and, of round
k, `output_k`. The answers are arrays with a row a round: `output` [R, ...],
`tolerance` [R] and `split` [R].
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxagent.graders.competitions import Competition
from jaxagent.graders.tables import InvalidSubmission

CELLS = 'measured'
# Of a score: ratios of 1/64 and of 1,024.
LEAST, MOST = -6.0, 10.0
TIMES = ('program_s', 'reference_s')
_DIGITS = 5  # as every score is rounded


def score_of(program_s: Sequence[float], reference_s: Sequence[float]) -> float:
  """Returns log2 of median over median, clipped to [LEAST, MOST]; 5 decimals.

  0 is as fast as the reference, 1 takes twice its time. A ratio differs less between
  machines than seconds do, and its logarithm is worth the same from 8 times to 4 as
  from 2 to 1.

  Raises ValueError where there is no time, or one that is not above 0.
  """
  times = [*program_s, *reference_s]
  if not program_s or not reference_s:
    raise ValueError('there is no time of the program or of the reference')
  if not all(math.isfinite(t) and t > 0 for t in times):
    raise ValueError(f'times must be above 0, not {min(times)}')
  ratio = float(np.median(program_s) / np.median(reference_s))
  return round(min(MOST, max(LEAST, math.log2(ratio))), _DIGITS)


def aligned(
  given: Mapping[str, np.ndarray], answers: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
  """Checks the outputs of all rounds that ran; returns seconds [R], NaN elsewhere.

  Raises: InvalidSubmission with the reason.
  """
  wanted, tolerance = answers['output'], answers['tolerance']
  rounds = _rounds(given, len(wanted))
  names = {'round', *TIMES, *(f'output_{k}' for k in rounds)}
  if set(given) != names:
    raise InvalidSubmission(
      f'the arrays are {sorted(given)[:5]}, expected {sorted(names)[:5]}',
      'columns',
    )
  for k in rounds:
    _check_output(k, given[f'output_{k}'], wanted[k], float(tolerance[k]))
  found = {}
  for name in TIMES:
    seconds = given[name]
    if seconds.shape != (len(rounds),) or not (seconds > 0).all():
      raise InvalidSubmission(f'{name} must be {len(rounds)} times above 0')
    found[name] = np.full(len(wanted), np.nan)
    found[name][rounds] = seconds
  return found


def _rounds(given: Mapping[str, np.ndarray], count: int) -> list[int]:
  rounds = given.get('round', np.array(None, dtype=float))
  if rounds.ndim != 1 or rounds.dtype.kind != 'i' or not len(rounds):
    raise InvalidSubmission('there is no list of rounds', 'columns')
  found = [int(k) for k in rounds]
  if len(set(found)) < len(found) or not all(0 <= k < count for k in found):
    raise InvalidSubmission(
      f'rounds must be different, from 0 to {count - 1}', 'ids'
    )
  return found


def _check_output(
  number: int, given: np.ndarray, true: np.ndarray, tolerance: float
) -> None:
  """Raises InvalidSubmission where an output is not the reference's."""
  if given.shape != true.shape:
    raise InvalidSubmission(
      f'round {number}: the output has shape {given.shape}, expected {true.shape}'
    )
  if not np.isfinite(given).all():
    raise InvalidSubmission(
      f'round {number}: the output holds values that are not finite'
    )
  # Relative to large numbers, absolute of small ones.
  off = np.abs(given.astype(float) - true) / np.maximum(1.0, np.abs(true))
  worst = float(off.max(initial=0.0))
  if worst > tolerance:
    raise InvalidSubmission(
      f'round {number}: the output differs from the right one by {worst:.3g}; at '
      f'most {tolerance:g}'
    )


def score(
  submission: Mapping[str, np.ndarray],
  answers: Mapping[str, np.ndarray],
  id_column: str,
  targets: Sequence[str],
) -> float:
  """`score_of` the rounds that are among these rows and ran.

  Raises: InvalidSubmission where none did.
  """
  ran = np.isfinite(submission['program_s'])
  if not ran.any():
    raise InvalidSubmission('none of these rounds was run', 'ids')
  return score_of(*(submission[name][ran].tolist() for name in TIMES))


COMPETITION = Competition(
  id_column='',
  targets=(),
  score=score,
  cells=CELLS,
  higher_is_better=False,
  arrays=True,
)


def measured_score(measured: Mapping[str, Any]) -> float:
  """Returns the score of recorded seconds, {program_s, reference_s}.

  Raises ValueError where they are no two lists of times.
  """
  try:
    program_s, reference_s = ([float(t) for t in measured[n]] for n in TIMES)
  except (KeyError, TypeError, OverflowError) as error:
    raise ValueError(f'no two lists of seconds: {error!r}') from error
  return score_of(program_s, reference_s)
