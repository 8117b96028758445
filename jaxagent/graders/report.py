"""Medals and reports in mle-bench's format."""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

from jaxagent.graders import Grade

MEDALS = ('gold', 'silver', 'bronze')
_LFS_POINTER = b'version https://git-lfs'
_NINES = re.compile('9{4,}')


class LeaderboardError(ValueError):
  """The leaderboard cannot be used; the message says why and what to do."""


def read_leaderboard(path: str | pathlib.Path) -> list[float]:
  """The `score` column, in rank order.

  Raises: FileNotFoundError; LeaderboardError for a Git-LFS pointer, a
  missing column, a board without scores or scores that are no numbers.
  """
  import pandas as pd

  path = pathlib.Path(path)
  with path.open('rb') as file:
    if file.read(len(_LFS_POINTER)) == _LFS_POINTER:
      raise LeaderboardError(
        f'{path} is a Git-LFS pointer, not the leaderboard; run `git lfs pull` '
        'in that checkout.'
      )
  try:
    table = pd.read_csv(path)
  except ValueError as error:
    raise LeaderboardError(f'{path} is not a readable CSV: {error}') from error
  if 'score' not in table.columns:
    raise LeaderboardError(
      f'{path} has no `score` column; columns: {list(table.columns)}.'
    )
  try:
    scores = [float(v) for v in table['score']]
  except (ValueError, TypeError) as error:
    raise LeaderboardError(
      f'{path} has a score that is no number: {error}.'
    ) from error
  if not scores or any(v != v for v in scores):
    raise LeaderboardError(f'{path} is empty or has rows without a score.')
  return scores


def sentinels(scores: Sequence[float]) -> list[float]:
  """Returns the scores that mark an entry without one, such as 999999 or -9999.

  A number of nines alone, four or more, or one that is not finite.
  """
  return [
    score
    for score in scores
    if not math.isfinite(score)
    or (float(score).is_integer() and _NINES.fullmatch(f'{abs(score):.0f}'))
  ]


def is_lower_better(scores: Sequence[float]) -> bool:
  """True where the first of the board is below the last."""
  return bool(scores[0] < scores[-1])


def medal_positions(n_teams: int) -> tuple[int, int, int]:
  """1-based last positions for gold, silver and bronze (Kaggle's rules).

  100 teams: (10, 20, 40). 1000 teams: (12, 50, 100).
  """
  if n_teams < 1:
    raise ValueError(f'n_teams={n_teams} must be 1 or more.')
  if n_teams >= 250:
    gold = 10 + int(n_teams * 0.002)
    if n_teams < 1000:
      return gold, 50, 100
    return gold, max(1, int(n_teams * 0.05)), max(1, int(n_teams * 0.1))
  gold = max(1, int(n_teams * 0.1)) if n_teams < 100 else 10
  return gold, max(1, int(n_teams * 0.2)), max(1, int(n_teams * 0.4))


@dataclasses.dataclass(frozen=True)
class Thresholds:
  """Scores that earn a medal on a leaderboard, and its median.

  teams: how many entries it has. lower_is_better: whether its first is below its last.
  """

  gold: float
  silver: float
  bronze: float
  median: float
  lower_is_better: bool
  teams: int

  @classmethod
  def of(cls, scores: Sequence[float]) -> Thresholds:
    """Returns those of a leaderboard's scores, in rank order."""
    import statistics

    gold, silver, bronze = (
      scores[place - 1] for place in medal_positions(len(scores))
    )
    return cls(
      gold,
      silver,
      bronze,
      statistics.median(scores),
      is_lower_better(scores),
      len(scores),
    )

  def medal(self, score: float | None) -> str:
    """Returns the highest of MEDALS that a score reaches; '' for none."""
    for medal in MEDALS:
      if score is not None and self._reaches(score, getattr(self, medal)):
        return medal
    return ''

  def above_median(self, score: float | None) -> bool:
    """Returns whether a score is better than the median; equal is not."""
    if score is None:
      return False
    return score < self.median if self.lower_is_better else score > self.median

  def counts(self, scores: Iterable[float | None]) -> dict[str, int]:
    """Returns how many scores earn each medal, and how many are above the median."""
    given = list(scores)
    won = [self.medal(score) for score in given]
    return {
      **{medal: won.count(medal) for medal in MEDALS},
      'above_median': sum(map(self.above_median, given)),
    }

  def _reaches(self, score: float, threshold: float) -> bool:
    return score <= threshold if self.lower_is_better else score >= threshold


def marked(marks: Sequence[float], teams: int) -> str:
  """Returns a note on a leaderboard with entries that have no score (`sentinels`)."""
  return (
    f'{len(marks)} of {teams} scores of the leaderboard, such as {marks[0]:g}, '
    'mark entries without one; they count as teams, as in mle-bench: leave '
    'them out of any mean of that board'
  )


def rank(score: float | None, scores: Sequence[float]) -> dict[str, Any]:
  """Thresholds and medals of a score; medals exclude each other."""
  board = Thresholds.of(scores)
  won = board.medal(score)
  return {
    'gold_threshold': board.gold,
    'silver_threshold': board.silver,
    'bronze_threshold': board.bronze,
    'median_threshold': board.median,
    'any_medal': bool(won),
    **{f'{medal}_medal': won == medal for medal in MEDALS},
    'above_median': board.above_median(score),
    'is_lower_better': board.lower_is_better,
  }


_NO_BOARD = {
  'gold_threshold': None,
  'silver_threshold': None,
  'bronze_threshold': None,
  'median_threshold': None,
  'any_medal': False,
  'gold_medal': False,
  'silver_medal': False,
  'bronze_medal': False,
  'above_median': False,
}


def competition_report(
  competition: str,
  submission_path: str,
  grade: Grade,
  leaderboard: Sequence[float] | None,
) -> dict[str, Any]:
  """One report, keys in mle-bench's order.

  Without a leaderboard the thresholds are None, there is no medal, and the
  direction is the metric's.
  """
  ranked = dict(_NO_BOARD, is_lower_better=not grade.higher_is_better)
  if leaderboard is not None:
    ranked = rank(grade.score, leaderboard)
  direction = ranked.pop('is_lower_better')
  return {
    'competition_id': competition,
    'score': grade.score,
    **ranked,
    'submission_exists': grade.submission_exists,
    'valid_submission': grade.score is not None,
    'is_lower_better': direction,
    'created_at': datetime.datetime.now().isoformat(),
    'submission_path': submission_path,
  }


def overall_report(reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
  """mle-bench's summary over several reports."""

  def total(key: str) -> int:
    return sum(bool(report[key]) for report in reports)

  return {
    'total_runs': len(reports),
    'total_runs_with_submissions': total('submission_exists'),
    'total_valid_submissions': total('valid_submission'),
    'total_medals': total('any_medal'),
    'total_gold_medals': total('gold_medal'),
    'total_silver_medals': total('silver_medal'),
    'total_bronze_medals': total('bronze_medal'),
    'total_above_median': total('above_median'),
    'competition_reports': list(reports),
  }


def write_report(
  path: str | pathlib.Path, reports: Sequence[dict[str, Any]]
) -> pathlib.Path:
  """Writes the summary as JSON, whole or not at all."""
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  partial = path.with_name(path.name + '.partial')
  partial.write_text(json.dumps(overall_report(reports), indent=2) + '\n')
  partial.replace(path)
  return path
