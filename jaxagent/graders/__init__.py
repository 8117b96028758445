"""Graders of mle-bench's and MLAgentBench's tasks: `compat` and `strict`.

compat: equal to the source, quirks included, rounded to 5 decimals.
strict: for rewards; every malformed submission is refused with a reason.
Nothing of a submission is unpickled, imported or run.
No jax here; pandas, SciPy and scikit-learn load when something is graded.
"""

from __future__ import annotations

import dataclasses
import pathlib
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
  import numpy as np
  import pandas as pd

MODES = ('compat', 'strict')

__all__ = [
  'MODES',
  'Grade',
  'grade_arrays',
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
  from jaxagent.graders import tables

  entry = _competition(competition, mode)
  if entry.arrays:
    raise ValueError(f'{competition} is graded by arrays: see grade_arrays.')
  submission = tables.as_pandas2(submission)
  return _graded(entry, submission, tables.as_pandas2(answers), mode)


def grade_arrays(
  competition: str,
  submission: Mapping[str, np.ndarray],
  answers: Mapping[str, np.ndarray],
  mode: str = 'strict',
) -> Grade:
  """Grades arrays by name, as grade_tables does tables; see `arrays`."""
  entry = _competition(competition, mode)
  if not entry.arrays:
    raise ValueError(f'{competition} is graded by tables: see grade_tables.')
  return _graded(entry, submission, answers, mode)


def _graded(entry, submission, answers, mode: str) -> Grade:
  from jaxagent.graders import tables

  targets = () if entry.arrays else entry.columns(answers)
  score_fn = entry.score
  try:
    with warnings.catch_warnings():
      warnings.simplefilter('ignore')
      if mode == 'strict':
        score_fn = entry.strict_score or entry.score
        submission = _checked(entry, submission, answers, targets)
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
      f'the score is {score}: the predictions may all be equal, or too large',
      entry.higher_is_better,
    )
  return Grade(score, '', entry.higher_is_better)


def _checked(entry, submission, answers, targets):
  """The submission as `strict` wants it, or InvalidSubmission."""
  from jaxagent.graders import strict

  if entry.arrays:
    return strict.check_arrays(submission, answers, entry.cells)
  if entry.id_alias and entry.id_column not in submission.columns:
    submission = submission.rename(columns={entry.id_alias: entry.id_column})
  return strict.check_and_align(
    submission,
    answers,
    entry.id_column,
    targets,
    entry.cells,
    entry.optional,
  )


def grade_files(
  competition: str,
  submission: str | pathlib.Path,
  answers: str | pathlib.Path,
  mode: str = 'strict',
) -> Grade:
  """Grades a file against the answers' file.

  Tables are `.csv`, in strict also `.jsonl`; arrays `.npy` or `.npz`. strict
  takes no symbolic link, for it may lead to the answers.

  Raises: ValueError for an unknown competition or mode, or unreadable
  answers; FileNotFoundError where the answers are missing.
  """
  from jaxagent.graders import tables

  entry = _competition(competition, mode)
  truth = _read(entry, answers, mode)
  path = pathlib.Path(submission)
  reason = _no_file(entry, path, mode)
  if reason:
    return Grade(None, reason, entry.higher_is_better, submission_exists=False)
  try:
    given = _read(entry, path, mode)
  except tables.InvalidSubmission as error:
    return Grade(None, str(error), entry.higher_is_better)
  return _graded(entry, given, truth, mode)


def _read(entry, path: str | pathlib.Path, mode: str):
  from jaxagent.graders import arrays, tables

  if entry.arrays:
    return arrays.read_arrays(path)
  strict = mode == 'strict'
  return tables.read_table(path, literal=strict, texts=entry.text_columns)


def _no_file(entry, path: pathlib.Path, mode: str) -> str:
  """Why this is no file to be read; empty if it is one."""
  from jaxagent.graders import arrays

  suffixes: tuple[str, ...] = arrays.SUFFIXES if entry.arrays else ('.csv',)
  if mode == 'strict' and not entry.arrays:
    suffixes = ('.csv', '.jsonl')
  if not path.is_file() or path.suffix.lower() not in suffixes:
    return f'{path} does not exist or is not a {" or ".join(suffixes)} file'
  if mode == 'strict' and path.is_symlink():
    return f'{path} is a symbolic link; write the file itself'
  return ''
