"""Graders of mle-bench's competitions: `compat` and `strict`.

compat: equal to mle-bench, quirks included, rounded to 5 decimals.
strict: for rewards; every malformed submission is refused with a reason.
No jax here; pandas, SciPy and scikit-learn load when something is graded.
"""

from __future__ import annotations

import dataclasses
import pathlib
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
  import pandas as pd

MODES = ('compat', 'strict')

__all__ = [
  'MODES',
  'Grade',
  'grade_files',
  'grade_tables',
  'higher_is_better',
  'names',
]


@dataclasses.dataclass(frozen=True)
class Grade:
  """A score, or None and the reason. In compat a score may be NaN."""

  score: float | None
  reason: str = ''
  higher_is_better: bool = True
  submission_exists: bool = True


def names() -> list[str]:
  """The competitions that can be graded."""
  from jaxagent.graders.competitions import COMPETITIONS

  return sorted(COMPETITIONS)


def _competition(name: str, mode: str):
  from jaxagent.graders.competitions import COMPETITIONS

  if mode not in MODES:
    raise ValueError(f'Unknown mode {mode!r}; choose one of: {MODES}.')
  if name not in COMPETITIONS:
    raise ValueError(
      f'Unknown competition {name!r}; choose one of: {", ".join(names())}.'
    )
  return COMPETITIONS[name]


def higher_is_better(competition: str, mode: str) -> bool:
  """The metric's direction; ValueError as for grade_tables."""
  return _competition(competition, mode).higher_is_better


def grade_tables(
  competition: str,
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  mode: str = 'strict',
) -> Grade:
  """Grades data frames; neither is changed.

  Raises: ValueError for an unknown competition or mode. A submission that
  cannot be graded raises nothing: score None and the reason.
  """
  from jaxagent.graders import strict, tables

  entry = _competition(competition, mode)
  submission = tables.as_pandas2(submission)
  answers = tables.as_pandas2(answers)
  targets = entry.columns(answers)
  score_fn = entry.score
  try:
    with warnings.catch_warnings():
      warnings.simplefilter('ignore')
      if mode == 'strict':
        score_fn = entry.strict_score or entry.score
        submission = strict.check_and_align(
          submission,
          answers,
          entry.id_column,
          targets,
          entry.cells,
          entry.optional,
        )
      score = score_fn(submission, answers, entry.id_column, targets)
    score = round(float(score), 5)
  except tables.InvalidSubmission as error:
    return Grade(None, str(error), entry.higher_is_better)
  except Exception as error:  # a submission can break a metric in any way
    reason = f'the metric refused it: {type(error).__name__}: {error}'
    return Grade(None, reason, entry.higher_is_better)
  if mode == 'strict' and not abs(score) < float('inf'):
    return Grade(
      None,
      f'the score is {score}: the predictions may all be equal',
      entry.higher_is_better,
    )
  return Grade(score, '', entry.higher_is_better)


def grade_files(
  competition: str,
  submission: str | pathlib.Path,
  answers: str | pathlib.Path,
  mode: str = 'strict',
) -> Grade:
  """Grades a CSV file against the answers' file.

  Raises: ValueError for an unknown competition or mode, or unreadable
  answers; FileNotFoundError where the answers are missing.
  """
  from jaxagent.graders import tables

  entry = _competition(competition, mode)
  how = {'literal': mode == 'strict', 'id_column': entry.id_column}
  truth = tables.read_table(answers, **how)
  path = pathlib.Path(submission)
  if not path.is_file() or path.suffix.lower() != '.csv':
    reason = f'{path} does not exist or is not a .csv file'
    return Grade(None, reason, entry.higher_is_better, submission_exists=False)
  try:
    table = tables.read_table(path, **how)
  except tables.InvalidSubmission as error:
    return Grade(None, str(error), entry.higher_is_better)
  return grade_tables(competition, table, truth, mode)
