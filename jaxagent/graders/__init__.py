"""Graders of mle-bench's and MLAgentBench's tasks: `compat` and `strict`.

compat: equal to the source, quirks included, rounded to 5 decimals.
strict: for rewards; every malformed submission is refused with a reason.
Nothing of a submission is unpickled, imported or run.
No jax here; pandas, SciPy and scikit-learn load when something is graded.

One way leads from a file to a score (`loaded.Loaded`): training takes it with bytes
of the sandbox, `python -m jaxagent.grade` with files.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
  import numpy as np
  import pandas as pd

  from jaxagent.graders.competitions import Competition
  from jaxagent.graders.loaded import Loaded

MODES = ('compat', 'strict')
# Metrics that are no competition's, graded for any columns (`plain`), and whether a
# higher value is better.
METRICS: Mapping[str, bool] = {
  'accuracy': True,
  'f1_macro': True,
  'roc_auc': True,
  'log_loss': False,
  'rmse': False,
  'mae': False,
}
# Endings of the submissions that the sources, and so compat, read.
SOURCE_SUFFIXES = ('.csv', '.npy', '.npz')
# The metric of programs that were measured in the sandbox (`speed`).
SPEED = 'speed'

__all__ = [
  'METRICS',
  'MODES',
  'SPEED',
  'Grade',
  'Scope',
  'grade_arrays',
  'grade_files',
  'grade_tables',
  'grader',
  'higher_is_better',
  'load',
  'names',
  'source_mode',
]


@dataclasses.dataclass(frozen=True)
class Grade:
  """A score, or None and the reason. In compat a score may be NaN.

  failed: which of `tables.CHECKS` a refused submission did not pass; '' where it
    passed all, or where that is not known (the file is missing, the metric failed).
  """

  score: float | None
  reason: str = ''
  higher_is_better: bool = True
  submission_exists: bool = True
  failed: str = ''


@dataclasses.dataclass(frozen=True)
class Scope:
  """Rows and columns that are graded.

  split: the hidden rows whose column `split` of the answers has this value; all
    hidden rows where ''. A submission has predictions for all of them.
  id_column, targets: columns of one of METRICS; a competition has its own.
  """

  split: str = ''
  id_column: str = ''
  targets: tuple[str, ...] = ()


def names() -> list[str]:
  """The competitions that can be graded."""
  from jaxagent.graders.competitions import COMPETITIONS

  return sorted(COMPETITIONS)


def grader(name: str, scope: Scope = Scope()) -> Competition:
  """Returns a competition's grader, or that of one of METRICS for these columns.

  Raises: ValueError for an unknown name, or columns that a metric cannot have.
  """
  from jaxagent.graders import plain
  from jaxagent.graders.competitions import COMPETITIONS

  if name in METRICS:
    return plain.competition(name, scope.id_column, scope.targets)
  if name == SPEED:
    from jaxagent.graders import speed

    return speed.COMPETITION
  if name not in COMPETITIONS:
    raise ValueError(
      f'Unknown competition {name!r}; choose one of: {", ".join(names())}.'
    )
  return COMPETITIONS[name]


def _entry(name: str, mode: str, scope: Scope) -> Competition:
  if mode not in MODES:
    raise ValueError(f'Unknown mode {mode!r}; choose one of: {MODES}.')
  if name in (*METRICS, SPEED) and mode != 'strict':
    raise ValueError(
      f'{name} is the metric of no competition that {mode} could be equal to; '
      'choose the mode strict.'
    )
  return grader(name, scope)


def higher_is_better(competition: str, mode: str) -> bool:
  """The metric's direction; ValueError as for grade_tables."""
  if competition in METRICS:
    return METRICS[competition]
  return _entry(competition, mode, Scope()).higher_is_better


def source_mode(competition: str, suffix: str) -> str:
  """Returns the mode that gives the source's own number: compat, where there is one.

  suffix: of the submission's name. What no source reads, lines of JSON and several
    files, is graded in strict.
  """
  is_ours = competition in (*METRICS, SPEED)
  return 'compat' if suffix in SOURCE_SUFFIXES and not is_ours else 'strict'


def grade_tables(
  competition: str,
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  mode: str = 'strict',
  scope: Scope = Scope(),
) -> Grade:
  """Grades data frames; neither is changed.

  Raises: ValueError for an unknown competition, mode or split. A submission that
  cannot be graded raises nothing: score None and the reason.
  """
  from jaxagent.graders import loaded, tables

  entry = _entry(competition, mode, scope)
  if entry.arrays:
    raise ValueError(f'{competition} is graded by arrays: see grade_arrays.')
  given = tables.as_pandas2(submission)
  return loaded.Loaded(entry, answers, mode).grade(given, scope.split)


def grade_arrays(
  competition: str,
  submission: Mapping[str, np.ndarray],
  answers: Mapping[str, np.ndarray],
  mode: str = 'strict',
  scope: Scope = Scope(),
) -> Grade:
  """Grades arrays by name, as grade_tables does tables; see `arrays`."""
  from jaxagent.graders import loaded

  entry = _entry(competition, mode, scope)
  if not entry.arrays:
    raise ValueError(f'{competition} is graded by tables: see grade_tables.')
  return loaded.Loaded(entry, answers, mode).grade(submission, scope.split)


def load(
  competition: str,
  answers: str | pathlib.Path,
  mode: str = 'strict',
  scope: Scope = Scope(),
) -> Loaded:
  """Reads the answers' file once, to grade many submissions.

  Raises: ValueError for an unknown competition or mode, or unreadable
  answers; FileNotFoundError where the answers are missing.
  """
  from jaxagent.graders import loaded

  return loaded.from_file(_entry(competition, mode, scope), answers, mode)


def grade_files(
  competition: str,
  submission: str | pathlib.Path,
  answers: str | pathlib.Path,
  mode: str = 'strict',
  scope: Scope = Scope(),
) -> Grade:
  """Grades a file against the answers' file.

  Tables are `.csv`, in strict also `.jsonl`; arrays `.npy` or `.npz`. strict takes a
  folder of such files, or a `.zip` of one (`folders`), and no symbolic link, for it may
  lead to the answers.

  Raises: ValueError for an unknown competition, mode or split, or unreadable
  answers; FileNotFoundError where the answers are missing.
  """
  return load(competition, answers, mode, scope).grade_file(
    pathlib.Path(submission), scope.split
  )
