"""Checks of a submission before its score may become a reward.

Exactly the expected columns (in any order), exactly the test ids, each once,
and in every cell a finite value of the right kind. Then rows and columns are
put in the answers' order, so that no grader can be misled by theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from jaxagent.graders import compat, metrics
from jaxagent.graders.tables import InvalidSubmission

if TYPE_CHECKING:
  import pandas as pd

CELLS = (
  'number',
  'probability',
  'distribution',
  'non_negative',
  'integer',
  'boolean',
  'text',
  'optional_text',
)


def check_and_align(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
  cells: str,
  optional: Sequence[str] = (),
) -> pd.DataFrame:
  """The submission in the answers' row order, columns (id, *targets).

  Raises: InvalidSubmission with the reason; ValueError for an unknown
    `cells`.
  """
  if cells not in CELLS:
    raise ValueError(f'cells={cells!r}; choose one of {", ".join(CELLS)}.')
  submission = submission.drop(columns=list(optional), errors='ignore')
  _check_columns(submission, [id_column, *targets])
  if not len(submission):
    raise InvalidSubmission('the submission has no rows')
  order = _check_ids(submission[id_column], answers[id_column])
  aligned = submission[[id_column, *targets]].iloc[order]
  aligned = aligned.reset_index(drop=True)
  aligned[id_column] = answers[id_column].to_numpy()
  for target in targets:
    aligned[target] = _check_cells(aligned[target], target, cells)
  if cells == 'distribution':
    sums = aligned[list(targets)].sum(axis=1).to_numpy()
    worst = int(np.argmax(np.abs(sums - 1)))
    if abs(sums[worst] - 1) > 1e-6:
      raise InvalidSubmission(
        f'the probabilities of a row sum to {sums[worst]:.6g}, not to 1'
      )
  return aligned


def _check_columns(submission: pd.DataFrame, expected: list[str]) -> None:
  columns = list(submission.columns)
  missing = [name for name in expected if name not in columns]
  extra = [name for name in columns if name not in expected]
  if missing:
    raise InvalidSubmission(f'columns are missing: {missing[:5]}')
  if extra:
    raise InvalidSubmission(f'unexpected columns: {extra[:5]}')
  if len(columns) != len(expected):
    raise InvalidSubmission('a column occurs twice')


def _check_ids(ours: pd.Series, theirs: pd.Series) -> list[int]:
  """Row numbers of the submission in the answers' order."""
  if ours.isna().any():
    raise InvalidSubmission(f'{int(ours.isna().sum())} ids are empty')
  ours, theirs = ours.tolist(), theirs.tolist()
  if not all(isinstance(v, (int, float)) for v in (*ours, *theirs)):
    ours, theirs = [str(v) for v in ours], [str(v) for v in theirs]
  rows = {}
  for row, value in enumerate(ours):
    if value in rows:
      raise InvalidSubmission(f'the id {value!r} occurs more than once')
    rows[value] = row
  known = set(theirs)
  unknown = [value for value in ours if value not in known]
  if unknown:
    raise InvalidSubmission(
      f'{len(unknown)} ids are not of the test set, such as {unknown[0]!r}'
    )
  if len(rows) != len(known):
    raise InvalidSubmission(
      f'{len(known) - len(rows)} of {len(known)} test ids are missing'
    )
  return [rows[value] for value in theirs]


def _check_cells(column: pd.Series, name: str, cells: str) -> pd.Series:
  """The column with values of the right type, or a refusal."""
  if cells == 'optional_text':
    return column.fillna('').astype(str).astype(object)
  empty = int(column.isna().sum())
  if empty:
    raise InvalidSubmission(f'{empty} cells of {name!r} are empty or NaN')
  if cells == 'text':
    text = column.astype(str).astype(object)
    blank = int((text.str.strip() == '').sum())
    if blank:
      raise InvalidSubmission(f'{blank} cells of {name!r} are blank')
    return text
  if cells == 'boolean':
    return _booleans(column, name)
  return _numbers(column, name, cells)


def _booleans(column: pd.Series, name: str) -> pd.Series:
  words = {'true': True, 'false': False, '1': True, '0': False}
  words |= {'1.0': True, '0.0': False}
  values = column.astype(str).str.lower().map(words)
  if values.isna().any():
    bad = column[values.isna()].iloc[0]
    raise InvalidSubmission(f'{name!r} holds {bad!r}, not True or False')
  return values.astype(bool)


def _numbers(column: pd.Series, name: str, cells: str) -> pd.Series:
  import pandas as pd

  try:
    values = pd.to_numeric(column).astype(float)
  except (ValueError, TypeError) as error:
    raise InvalidSubmission(f'{name!r} must be numeric: {error}') from error
  array = values.to_numpy()
  if not np.isfinite(array).all():
    raise InvalidSubmission(f'{name!r} holds values that are not finite')
  if cells in ('probability', 'distribution'):
    if (array < 0).any() or (array > 1).any():
      raise InvalidSubmission(f'{name!r} must lie between 0 and 1')
  if cells == 'non_negative' and (array < 0).any():
    raise InvalidSubmission(f'{name!r} must be zero or more')
  if cells == 'integer':
    if (array != np.round(array)).any():
      raise InvalidSubmission(f'{name!r} must hold whole numbers')
    if (np.abs(array) > 2**53).any():
      raise InvalidSubmission(f'{name!r} holds numbers out of range')
    return values.astype('int64')
  return values


def cell_order_tau(submission, answers, id_column, targets):
  """Kendall's tau, where every order holds exactly the notebook's cells."""
  (target,) = targets
  for mine, true in zip(submission[target], answers[target]):
    if sorted(mine.split()) != sorted(str(true).split()):
      raise InvalidSubmission(
        'an order does not hold each of its cells exactly once'
      )
  return compat.cell_order_tau(submission, answers, id_column, targets)


def essay_kappa(submission, answers, id_column, targets):
  """Quadratic kappa by the grades' own distance."""
  (target,) = targets
  return metrics.grade_kappa(answers[target], submission[target])


def salt_precision(submission, answers, id_column, targets):
  """Mean precision over IoU thresholds; an empty prediction is empty."""
  (target,) = targets
  size = compat.SALT_SHAPE[0] * compat.SALT_SHAPE[1]
  for text in submission[target]:
    numbers = text.split()
    if len(numbers) % 2 or not all(n.isdecimal() for n in numbers):
      raise InvalidSubmission('a mask is not a list of (start, length) pairs')
    pairs = zip(numbers[0::2], numbers[1::2])
    if any(int(start) + int(length) - 1 > size for start, length in pairs):
      raise InvalidSubmission(f'a run ends beyond the last pixel, {size}')
  masks = compat.salt_masks(submission, answers, id_column, targets)
  return float(np.mean([metrics.mask_precision(t, m) for t, m in zip(*masks)]))
