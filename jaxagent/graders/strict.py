"""Checks of a submission before its score may become a reward.

Exactly the expected columns (in any order), exactly the test ids, each as
often as in the answers, and in every cell a finite value of the right kind.
Then rows and columns are put in the answers' order, so that no grader can be
misled by theirs. Columns are handled whole: a table may have millions of rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from jaxagent.graders import compat, metrics
from jaxagent.graders.tables import InvalidSubmission

if TYPE_CHECKING:
  import pandas as pd

_CHANCES = (
  'probability',
  'distribution',
)  # True is 1 there, and no number else
# Of a sequence of signs: its distance from the true one takes time by its length.
MAX_SIGNS = 10_000
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

  id_column: empty: no ids, the rows stand in the answers' order already.

  Raises: InvalidSubmission with the reason; ValueError for an unknown
    `cells`.
  """
  if cells not in CELLS:
    raise ValueError(f'cells={cells!r}; choose one of {", ".join(CELLS)}.')
  submission = submission.drop(columns=list(optional), errors='ignore')
  names = [id_column, *targets] if id_column else list(targets)
  _check_columns(submission, names)
  if not len(submission):
    raise InvalidSubmission('the submission has no rows', 'ids')
  aligned = submission[names]
  if id_column:
    order = _order(submission[id_column], answers[id_column])
    if order is not None:
      aligned = aligned.iloc[order]
    aligned = aligned.assign(**{id_column: answers[id_column].to_numpy()})
  elif len(submission) != len(answers):
    raise InvalidSubmission(
      f'{len(submission)} rows, expected {len(answers)} in the order of the '
      'test set',
      'ids',
    )
  aligned = aligned.reset_index(drop=True)
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
    raise InvalidSubmission(f'columns are missing: {missing[:5]}', 'columns')
  if extra:
    raise InvalidSubmission(f'unexpected columns: {extra[:5]}', 'columns')
  if len(columns) != len(expected):
    raise InvalidSubmission('a column occurs twice', 'columns')


def _text_ids(ids: pd.Series) -> np.ndarray:
  """The ids as text, [N] of str."""
  import pandas as pd

  values = ids.to_numpy()
  if pd.api.types.infer_dtype(values, skipna=False) == 'string':
    return values
  return np.array([str(value) for value in values.tolist()], dtype=object)


def _order(ours: pd.Series, theirs: pd.Series) -> np.ndarray | None:
  """Row numbers of the submission in the answers' order; None: it is that.

  Ids are equal as text. Of an id that the answers have several times, rows
  are taken in the order in which they stand.
  """
  import pandas as pd

  if ours.isna().any():
    raise InvalidSubmission(f'{int(ours.isna().sum())} ids are empty', 'ids')
  mine, true = _text_ids(ours), _text_ids(theirs)
  if len(mine) == len(true) and bool((mine == true).all()):
    return None
  order = _order_by_hash(mine, true)
  if order is not None:
    return order
  codes, known = pd.factorize(true)
  places = pd.Index(known).get_indexer(mine)
  if (places < 0).any():
    raise InvalidSubmission(_unknown(mine[places < 0], true), 'ids')
  have = np.bincount(places, minlength=len(known))
  want = np.bincount(codes, minlength=len(known))
  if (have > want).any():
    value = known[int(np.argmax(have > want))]
    often = int(want[int(np.argmax(have > want))])
    times = 'once' if often == 1 else f'{often} times'
    raise InvalidSubmission(f'the id {value!r} occurs more than {times}', 'ids')
  missing = int((want - have).sum())
  if missing:
    raise InvalidSubmission(
      f'{missing} of {len(true)} test ids are missing', 'ids'
    )
  order = np.empty(len(true), dtype=np.intp)
  order[np.argsort(codes, kind='stable')] = np.argsort(places, kind='stable')
  return order


def _order_by_hash(mine: np.ndarray, true: np.ndarray) -> np.ndarray | None:
  """The same for the same ids, each once, in any order; None if it is not so.

  A third of the time of a table of strings, whose lookups miss every cache.
  """
  import pandas as pd

  if len(mine) != len(true):
    return None
  mine_hash, true_hash = (
    pd.util.hash_array(ids, categorize=False) for ids in (mine, true)
  )
  by_mine, by_true = np.argsort(mine_hash), np.argsort(true_hash)
  in_order = true_hash[by_true]
  repeats = in_order[1:] == in_order[:-1]
  if repeats.any() or (mine_hash[by_mine] != in_order).any():
    return None
  order = np.empty(len(true), dtype=np.intp)
  order[by_true] = by_mine
  return order if bool((mine[order] == true).all()) else None


def _unknown(unknown: np.ndarray, known: np.ndarray) -> str:
  """The reason for unknown ids, with the id that one may have stood for."""

  def bare(text: str) -> str:
    return text.strip().removesuffix('.0').lstrip('0')

  first = unknown[0]
  plain = bare(first)  # once: it may be millions of characters long
  meant = next((v for v in known if bare(v) == plain), None)
  hint = '' if meant is None else f'; ids are text, and one is {meant!r}'
  count = len(unknown)
  return f'{count} ids are not of the test set, such as {first!r}{hint}'


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
    raise InvalidSubmission(f'{name!r} holds {str(bad)!r}, not True or False')
  return values.astype(bool)


def _has_booleans(column: pd.Series) -> bool:
  if column.dtype != object:
    return column.dtype == bool
  return any(isinstance(value, (bool, np.bool_)) for value in column)


def _numbers(column: pd.Series, name: str, cells: str) -> pd.Series:
  import pandas as pd

  if cells not in _CHANCES and _has_booleans(column):
    raise InvalidSubmission(f'{name!r} must be numeric: it holds True or False')
  try:
    values = pd.to_numeric(column).astype(float)
  except (ValueError, TypeError, OverflowError) as error:
    raise InvalidSubmission(f'{name!r} must be numeric: {error}') from error
  array = values.to_numpy()
  if not np.isfinite(array).all():
    raise InvalidSubmission(f'{name!r} holds values that are not finite')
  if cells in _CHANCES:
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


# Checks of the one column of text that a task has, after `check_and_align`.


def check_cell_orders(texts: pd.Series, answers: pd.DataFrame) -> None:
  """Refuses an order that does not hold exactly the notebook's cells."""
  for mine, true in zip(texts, answers[texts.name]):
    if sorted(mine.split()) != sorted(str(true).split()):
      raise InvalidSubmission(
        'an order does not hold each of its cells exactly once'
      )


def check_categories(texts: pd.Series, answers: pd.DataFrame) -> None:
  """Refuses what is no list of whole numbers separated by blanks."""
  for text in texts:
    if not all(v.isdecimal() for v in text.split()):
      raise InvalidSubmission('categories must be numbers separated by blanks')


def check_signs(texts: pd.Series, answers: pd.DataFrame) -> None:
  """Refuses what is no list of whole numbers."""
  for text in texts:
    if len(text) > MAX_SIGNS:
      raise InvalidSubmission(
        f'{texts.name!r} holds {len(text)} characters; at most {MAX_SIGNS}'
      )
    try:
      _ = [int(part) for part in text.split()]
    except ValueError as error:
      raise InvalidSubmission(
        f'{texts.name!r} must hold whole numbers separated by blanks: {error}'
      ) from error


def check_salt_masks(texts: pd.Series, answers: pd.DataFrame) -> None:
  """Refuses what is no mask of a salt image; an empty cell is an empty mask."""
  for text in texts:
    _mask(text, compat.SALT_SHAPE)


def check_contrail_masks(texts: pd.Series, answers: pd.DataFrame) -> None:
  """Refuses what is no mask of its image; `-` is an empty mask."""
  for text, size in zip(texts, compat.contrail_sizes(answers)):
    _mask('' if text.strip() == '-' else text, size)


def _mask(text: str, shape: tuple[int, int]) -> np.ndarray:
  """Decodes a mask [height, width], or refuses it."""
  try:
    _check_runs(text, shape[0] * shape[1])
    return metrics.decode_rle(text, *shape)
  except InvalidSubmission:
    raise
  except ValueError as error:
    raise InvalidSubmission(f'a mask is refused: {error}') from error


# Scores that differ from the source's. What they are given has been checked.


def pixel_rmse(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """RMSE of one column."""
  (target,) = targets
  return metrics.rmse(answers[target], submission[target])


def tweet_jaccard(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """Mean word Jaccard; two empty texts are equal."""
  (target,) = targets
  scores = [
    metrics.word_jaccard(mine, true) if mine.split() or true.split() else 1.0
    for mine, true in zip(
      submission[target], answers[target].fillna('').astype(str)
    )
  ]
  return float(np.mean(scores))


def largest_column(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """Accuracy of the class whose column is the largest of its row."""
  return metrics.argmax_accuracy(
    answers['label'].to_numpy(), submission[list(targets)].to_numpy()
  )


def category_precision(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """MAP@20 of whole numbers separated by blanks."""
  (target,) = targets
  scores = []
  for mine, true in zip(submission[target], answers[target]):
    scores.append(
      metrics.average_precision_at(set(str(true).split()), mine.split(), 20)
    )
  return float(np.mean(scores))


def contrail_dice(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """Dice of all images' pixels together."""
  return metrics.dice(*_contrail_masks(submission, answers, targets))


def contrail_image_dice(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """Mean of the images' Dice; two empty masks give 1."""
  masks = _contrail_masks(submission, answers, targets)
  return float(np.mean([metrics.dice([t], [m], 1e-6) for t, m in zip(*masks)]))


def _contrail_masks(
  submission: pd.DataFrame, answers: pd.DataFrame, targets: Sequence[str]
):
  (target,) = targets
  truths, mine = [], []
  for given, true, size in zip(
    submission[target], answers[target], compat.contrail_sizes(answers)
  ):
    mine.append(_mask('' if given.strip() == '-' else given, size))
    truths.append(metrics.decode_rle(true.replace('-', ''), *size))
  return truths, mine


def essay_kappa(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """Quadratic kappa by the grades' own distance."""
  (target,) = targets
  return metrics.grade_kappa(answers[target], submission[target])


def _check_runs(text: str, size: int) -> None:
  """Refuses what is no list of runs within `size` pixels."""
  numbers = text.split()
  if len(numbers) % 2 or not all(n.isdecimal() for n in numbers):
    raise InvalidSubmission('a mask is not a list of (start, length) pairs')
  pairs = zip(numbers[0::2], numbers[1::2])
  if any(int(start) + int(length) - 1 > size for start, length in pairs):
    raise InvalidSubmission(f'a run ends beyond the last pixel, {size}')


def quest_spearman(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """Mean Spearman of the columns whose answers vary in these rows.

  A part of the rows may have a column that is 0 throughout, which has no
  correlation whatever the submission. Rows are aligned already.
  """
  truth = answers[list(targets)].to_numpy(float)
  vary = np.ptp(truth, axis=0) > 0
  given = submission[list(targets)].to_numpy(float)
  return metrics.mean_spearman(truth[:, vary], given[:, vary])


def salt_precision(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """Mean precision over IoU thresholds; an empty prediction is empty."""
  masks = compat.salt_masks(submission, answers, id_column, targets)
  return float(np.mean([metrics.mask_precision(t, m) for t, m in zip(*masks)]))


ARRAY_CELLS = ('pointer', 'weight')


def check_arrays(
  submission: Mapping[str, np.ndarray],
  answers: Mapping[str, np.ndarray],
  cells: str,
) -> dict[str, np.ndarray]:
  """The submission's arrays by the answers' names, each of the right kind.

  pointer: the answers' shape, whole numbers from 0 to below the last axis.
  weight: [N, V] for answers [N] in [0, V); positive rows, scaled to sum to 1.

  Raises: InvalidSubmission with the reason; ValueError for unknown `cells`.
  """
  if cells not in ARRAY_CELLS:
    raise ValueError(
      f'cells={cells!r}; choose one of {", ".join(ARRAY_CELLS)}.'
    )
  if set(submission) != set(answers):
    raise InvalidSubmission(
      f'the arrays are {sorted(submission)[:5]}, expected {sorted(answers)[:5]}',
      'columns',
    )
  check = _pointers if cells == 'pointer' else _weights
  for given in submission.values():
    if not np.isfinite(given).all():
      raise InvalidSubmission('an array holds values that are not finite')
  return {name: check(submission[name], answers[name]) for name in answers}


def _pointers(given: np.ndarray, true: np.ndarray) -> np.ndarray:
  if given.shape != true.shape:
    raise InvalidSubmission(
      f'shape {given.shape}, expected {true.shape}', 'ids'
    )
  size = true.shape[-1] if true.ndim else 0
  if ((given < 0) | (given >= size) | (given != np.floor(given))).any():
    raise InvalidSubmission(
      f'pointers must be whole numbers from 0 to {size - 1}'
    )
  return given.astype(np.int64)


def _weights(given: np.ndarray, true: np.ndarray) -> np.ndarray:
  if given.ndim != 2 or len(given) != len(true):
    raise InvalidSubmission(
      f'shape {given.shape}, expected ({len(true)}, number of symbols)', 'ids'
    )
  if given.shape[1] <= int(true.max()):
    raise InvalidSubmission(
      f'{given.shape[1]} columns are fewer than there are symbols'
    )
  weights = given.astype(float)
  if (weights <= 0).any():
    raise InvalidSubmission('every symbol needs a probability above 0')
  sums = weights.sum(axis=1, keepdims=True)
  worst = sums.flat[int(np.argmax(np.abs(sums - 1)))]
  if abs(worst - 1) > 1e-3:
    raise InvalidSubmission(
      f'the probabilities of a row sum to {worst:.6g}, not to 1'
    )
  return weights / sums
