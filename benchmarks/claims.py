"""Claims of a paper, each a number of one seed that has to be above zero."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.arms import mean_half

Runs = Mapping[str, Mapping[str, Any]]  # arm -> its run of one seed
Claims = Mapping[str, Callable[[Runs], float]]


def account(
  claims: Claims, rows: Sequence[Mapping[str, Any]]
) -> dict[str, tuple[float, float]]:
  """claim -> (mean over seeds, half the 95 % interval) of what it says.

  rows: `arm` and its `runs`, one a seed; seeds that an arm lacks are left out.
  """
  runs = {row['arm']: row['runs'] for row in rows}
  seeds = min(map(len, runs.values()))
  each = [{arm: of[seed] for arm, of in runs.items()} for seed in range(seeds)]
  return {
    claim: mean_half([of(one) for one in each]) for claim, of in claims.items()
  }


def table(claims: Claims, rows: Sequence[Mapping[str, Any]]) -> list[str]:
  """Lines of Markdown; no claim where an arm has no run yet."""
  lines = ['| claim | measured | shown |', '|---|---|---|']
  if all(row['runs'] for row in rows):
    lines += [_line(c, *found) for c, found in account(claims, rows).items()]
  return lines


def _line(claim: str, mean: float, half: float) -> str:
  if math.isnan(half) or math.isnan(mean):
    shown = 'one seed' if not math.isnan(mean) else 'no'
  else:
    shown = (
      'yes' if mean > half else 'no: the opposite' if mean < -half else 'no'
    )
  return f'| {claim} | {mean:+.3f} ± {half:.3f} | {shown} |'
