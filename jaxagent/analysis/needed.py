"""How many trajectories an interval of `intervals` takes, for those of fewer.

`python -m benchmarks.intervals` simulates how often the intervals hold the true value:
of few trajectories or tasks those of a best of k are too narrow (docs/summary.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

# Tasks -> k -> trajectories of a task from which 93 % of the intervals of best@k hold the
# true value; k = 1 is a mean; None: more than were simulated
# (benchmarks/results/intervals.json).
NEEDED: Mapping[int, Mapping[int, int | None]] = {
  1: {1: 32, 2: 64, 4: 128, 8: None},
  3: {1: 8, 2: 16, 4: 32, 8: 128},
  6: {1: 8, 2: 8, 4: 16, 8: 32},
  10: {1: 8, 2: 8, 4: 8, 8: 8},
}
NEEDED_OF_STEPS = 8  # for a mean over steps, of any number of tasks
SIMULATED = 128  # trajectories of a task, at most


def needs(
  counts: Sequence[int], k: int = 1, *, of_steps: bool = False
) -> dict[str, int | None]:
  """Returns {'needs': N} where an interval is of too few trajectories, else {}.

  counts: trajectories of each task; tasks without any do not count. k: of best@k; 1: a
  mean. of_steps: a mean over steps of trajectories.
  N: trajectories of a task that it takes (NEEDED); None: more than SIMULATED. Between
  numbers that were simulated, that of fewer tasks and of the greater k holds.
  """
  counts = [count for count in counts if count]
  if not counts:
    return {}
  row = NEEDED[max(tasks for tasks in NEEDED if tasks <= len(counts))]
  wanted = next((row[of] for of in sorted(row) if of >= k), None)
  if of_steps:
    wanted = NEEDED_OF_STEPS
  if wanted is not None and min(counts) >= wanted:
    return {}
  return {'needs': wanted}


def text(found: Mapping[str, Any]) -> str:
  """Returns 'needs N' of an interval of too few trajectories, '' of any other."""
  if 'needs' not in found:
    return ''
  return f'needs {found["needs"] or f"more than {SIMULATED}"}'
