"""Scores on a leaderboard: 0 to 100 between its worst and best, and ranks.

Paper 001, section 4.1, normalises a run's score to the human leaderboard. On a metric
without bound, one hopeless entry makes it blind: with a log loss of 0.033 at best and
19.5 at worst, the median of 0.122 has 99.5. So the rank percentile stands beside it.
"""

from __future__ import annotations

import bisect
import dataclasses
import math
import pathlib
from collections.abc import Sequence

from jaxagent.graders import report

HUMAN, REFERENCE = 'human', 'reference'


@dataclasses.dataclass(frozen=True)
class Board:
  """Scores that a task's runs are measured by.

  kind: HUMAN, of a competition's leaderboard; REFERENCE, of recorded candidates.
  scores: of all entries, finite, from the best to the worst.
  source: file or words that they come from.

  Raises ValueError, naming task and source, where there is no spread to measure by.
  """

  task: str
  kind: str
  scores: tuple[float, ...]
  higher_is_better: bool
  source: str

  def __post_init__(self):
    if self.kind not in (HUMAN, REFERENCE):
      raise ValueError(f'kind={self.kind!r}; choose {HUMAN} or {REFERENCE}.')
    where = f'task {self.task}: the {self.kind} board {self.source}'
    if not self.scores:
      raise ValueError(f'{where} has no scores; measure or fetch it again.')
    if bad := [s for s in self.scores if not math.isfinite(s)]:
      raise ValueError(f'{where} holds {bad[0]}; each score must be finite.')
    ranked = sorted(self.scores, reverse=self.higher_is_better)
    if ranked[0] == ranked[-1]:
      raise ValueError(
        f'{where}: best and worst are both {ranked[0]:g}; nothing can be measured '
        'by it.'
      )
    object.__setattr__(self, 'scores', tuple(ranked))

  @property
  def best(self) -> float:
    """Score of the first entry."""
    return self.scores[0]

  @property
  def worst(self) -> float:
    """Score of the last entry."""
    return self.scores[-1]

  def normalised(self, score: float | None) -> float | None:
    """Returns max(0, 100 (s - worst) / (best - worst)); above 100 beyond the best.

    None where there is no score, or no finite one.
    """
    if score is None or not math.isfinite(score):
      return None
    return max(0.0, 100 * ((score - self.worst) / (self.best - self.worst)))

  def percentile(self, score: float | None) -> float | None:
    """Returns the share of entries, in percent, that a score is better than.

    Of equal ones the half counts. None where there is no finite score.
    """
    if score is None or not math.isfinite(score):
      return None
    sign = 1.0 if self.higher_is_better else -1.0
    rising = [sign * s for s in reversed(self.scores)]
    below = bisect.bisect_left(rising, sign * score)
    not_above = bisect.bisect_right(rising, sign * score)
    return 100 * (below + not_above) / (2 * len(rising))


def human_board(
  path: str | pathlib.Path,
  *,
  task: str,
  higher_is_better: bool,
  faults: Sequence[str] = (),
) -> Board:
  """Reads the leaderboard of a competition, a CSV with a `score` column, best first.

  Entries marked by a sentinel such as 999999 have no score and are left out, which the
  board's source says, as it does what is known to be wrong with the board (`faults`).

  Raises ValueError, naming task and file, where the file is not there, is a Git-LFS
  pointer or no readable CSV, has no header, rows without a score, no spread, or an
  order that contradicts `higher_is_better`.
  """
  try:
    scores = report.read_leaderboard(path)
  except (OSError, ValueError) as error:
    raise ValueError(f'task {task}: board {path}: {error}') from error
  marks = [s for s in report.sentinels(scores) if math.isfinite(s)]
  notes = [f'without {len(marks)} entries of {marks[0]:g}'] if marks else []
  notes += [f'known of it: {fault}' for fault in faults]
  source = '; '.join([str(path), *notes])
  scores = [score for score in scores if score not in marks]
  board = Board(task, HUMAN, tuple(scores), higher_is_better, source)
  if report.is_lower_better(scores) == higher_is_better and (
    scores[0] != scores[-1]
  ):
    better = 'higher' if higher_is_better else 'lower'
    raise ValueError(
      f'task {task}: board {path} begins with {scores[0]:g} and ends with '
      f'{scores[-1]:g}, but {better} is better in the task; one of them is wrong.'
    )
  return board


def reference_board(
  candidates: Sequence[float],
  *,
  task: str,
  higher_is_better: bool,
  starter: float | None = None,
) -> Board:
  """Makes a board of recorded candidates, for a task that has no human one.

  starter: score of the task's starter; with it, candidates that are worse are left
    out, so that the starter has 0.

  Raises ValueError as `Board` does.
  """
  scores = [float(score) for score in candidates]
  if starter is not None:
    sign = 1.0 if higher_is_better else -1.0
    better = [s for s in scores if not sign * s <= sign * starter]
    scores = [*better, float(starter)]
  return Board(
    task,
    REFERENCE,
    tuple(scores),
    higher_is_better,
    f'of {len(candidates)} recorded candidates',
  )
