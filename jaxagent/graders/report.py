"""Medals and reports in mle-bench's format."""

from __future__ import annotations

import datetime
import json
import math
import pathlib
import re
from collections.abc import Sequence
from typing import Any

from jaxagent.graders import Grade

_LFS_POINTER = b'version https://git-lfs'
_NINES = re.compile('9{4,}')


class LeaderboardError(ValueError):
  """The leaderboard cannot be used; the message says why and what to do."""


def read_leaderboard(path: str | pathlib.Path) -> list[float]:
  """The `score` column, in rank order.

  Raises: FileNotFoundError; LeaderboardError for a Git-LFS pointer, a
  missing column or a board without scores.
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
  scores = [float(v) for v in table['score']]
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


def rank(score: float | None, scores: Sequence[float]) -> dict[str, Any]:
  """Thresholds and medals of a score; medals exclude each other."""
  import statistics

  lower = is_lower_better(scores)
  gold, silver, bronze = (scores[p - 1] for p in medal_positions(len(scores)))
  median = statistics.median(scores)

  def reaches(threshold: float) -> bool:
    if score is None:
      return False
    return score <= threshold if lower else score >= threshold

  has_gold = reaches(gold)
  has_silver = reaches(silver) and not has_gold
  has_bronze = reaches(bronze) and not has_gold and not has_silver
  above = score is not None and (score < median if lower else score > median)
  return {
    'gold_threshold': gold,
    'silver_threshold': silver,
    'bronze_threshold': bronze,
    'median_threshold': median,
    'any_medal': has_gold or has_silver or has_bronze,
    'gold_medal': has_gold,
    'silver_medal': has_silver,
    'bronze_medal': has_bronze,
    'above_median': above,
    'is_lower_better': lower,
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
