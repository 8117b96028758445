"""Answers, read once, and all submissions that are graded by them.

The answers of a task in two halves have a last column `split`, or an array of that
name. A submission covers all rows and is checked as a whole; the rows of one half,
or all, give the score.
"""

from __future__ import annotations

import pathlib
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxagent.graders import Grade, arrays, folders, speed, strict, tables
from jaxagent.graders.competitions import Competition
from jaxagent.graders.tables import InvalidSubmission

if TYPE_CHECKING:
  import pandas as pd

SPLIT = 'split'
HALVES = ('valid', 'private')


def from_file(
  entry: Competition, path: str | pathlib.Path, mode: str
) -> Loaded:
  """Reads a file of answers; errors as `graders.load`."""
  path = pathlib.Path(path)
  if not entry.arrays:
    texts = (*entry.text_columns, SPLIT)
    table = tables.read_table(path, literal=mode == 'strict', texts=texts)
    return Loaded(entry, table, mode)
  return Loaded(entry, arrays.read_arrays(path, texts=(SPLIT,)), mode)


class Loaded:
  """Answers of a task and its grader.

  Args:
    entry: the grader.
    answers: a table, or arrays by name; `split` says the half of each row.
    mode: compat or strict.
  """

  def __init__(
    self,
    entry: Competition,
    answers: pd.DataFrame | Mapping[str, Any],
    mode: str = 'strict',
  ):
    self.entry, self.mode = entry, mode
    self.truth: Any
    if entry.arrays:
      self.truth = {k: v for k, v in answers.items() if k != SPLIT}
      self.halves = _halves(answers.get(SPLIT))
      self.targets: tuple[str, ...] = ()
    else:
      table = tables.as_pandas2(answers)
      self.halves = _halves(table.get(SPLIT))
      if self.halves is not None:
        table = table.drop(columns=SPLIT)
      self.truth, self.targets = table, entry.columns(table)

  def read(
    self,
    source: pathlib.Path | bytes,
    suffix: str,
    max_bytes: int = tables.MAX_BYTES,
  ) -> Any:
    """Reads a submission, a file or its bytes: a table, or arrays by name.

    In strict it may be a folder of files, or a zip of one (`folders`).
    max_bytes: of the file, or of all of a folder, and of what an archive unpacks to.

    Raises: InvalidSubmission; OSError where the file cannot be read.
    """
    if self._is_folder(source, suffix):
      if self.entry.arrays:
        return folders.read_arrays(source, max_bytes=max_bytes)
      return folders.read_table(
        source,
        literal=True,
        texts=self.entry.text_columns,
        max_bytes=max_bytes,
        max_columns=self._max_columns(),
      )
    if self.entry.arrays:
      return arrays.read_arrays(source, suffix, max_bytes=max_bytes)
    return tables.read_table(
      source,
      suffix=suffix,
      literal=self.mode == 'strict',
      texts=self.entry.text_columns,
      max_bytes=max_bytes,
      max_columns=self._max_columns(),
    )

  def aligned(self, given: Any) -> Any:
    """Checks a submission as `strict` does; its rows in the answers' order.

    Raises: InvalidSubmission, whose `check` names what it failed.
    """
    entry = self.entry
    if entry.cells == speed.CELLS:
      return speed.aligned(given, self.truth)
    if entry.arrays:
      return strict.check_arrays(given, self._named_alike(given), entry.cells)
    if entry.id_alias and entry.id_column not in given.columns:
      given = given.rename(columns={entry.id_alias: entry.id_column})
    table = strict.check_and_align(
      given,
      self.truth,
      entry.id_column,
      self.targets,
      entry.cells,
      entry.optional,
    )
    if entry.strict_check is not None:
      (target,) = self.targets
      entry.strict_check(table[target], self.truth)
    return table

  def score(self, aligned: Any, split: str = '') -> float:
    """Scores what `aligned` gives, or in compat a submission as it was read.

    Raises: InvalidSubmission for a score that is not finite in strict; anything
      at all from a metric.
    """
    return self.score_rows(aligned, self.rows(split) if split else None)

  def score_rows(self, aligned: Any, keep: np.ndarray | None) -> float:
    """Scores some rows of what `aligned` gives, by a mask or by numbers; all for None.

    Raises: as `score`.
    """
    entry, truth = self.entry, self._truth_for(aligned)
    score_fn = entry.score
    if self.mode == 'strict':
      score_fn = entry.strict_score or entry.score
    if keep is not None:
      aligned, truth = _part(aligned, keep), _part(truth, keep)
    score = score_fn(aligned, truth, entry.id_column, self.targets)
    score = round(float(score), 5)
    if self.mode == 'strict' and not abs(score) < float('inf'):
      raise InvalidSubmission(
        f'the score is {score}: the predictions may all be equal, or too large'
      )
    return score

  def grade(self, given: Any, split: str = '') -> Grade:
    """Grades what `read` gives.

    Raises: ValueError for a split that the answers do not have; MemoryError.
    """
    if split:
      self.rows(split)
    higher = self.entry.higher_is_better
    try:
      with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        checked = self.aligned(given) if self.mode == 'strict' else given
        return Grade(self.score(checked, split), '', higher)
    except InvalidSubmission as error:
      return Grade(None, str(error), higher, failed=error.check)
    except MemoryError:  # a limit of this process, which says so itself
      raise
    except Exception as error:  # a submission can break a metric in any way
      reason = f'the metric refused it: {type(error).__name__}: {error}'
      return Grade(None, reason, higher)

  def grade_file(self, path: pathlib.Path, split: str = '') -> Grade:
    """Grades a file, of which a refusal says why."""
    higher = self.entry.higher_is_better
    if reason := self._no_file(path):
      return Grade(None, reason, higher, submission_exists=False)
    try:
      given = self.read(path, path.suffix.lower())
    except InvalidSubmission as error:
      return Grade(None, str(error), higher, failed=error.check)
    return self.grade(given, split)

  def rows(self, split: str) -> np.ndarray:
    """Whether each row belongs to a half, bool [N].

    Raises: ValueError for an unknown half, or answers that have none.
    """
    if self.mode != 'strict':
      raise ValueError(
        f'split={split!r}: in compat, which pairs rows as the source does, all '
        'rows are graded; choose strict, or no split.'
      )
    if self.halves is None:
      raise ValueError(
        f'split={split!r}: the answers have no column {SPLIT} with '
        f'{" and ".join(HALVES)}.'
      )
    if split not in HALVES:
      raise ValueError(f'split={split!r}; choose one of {", ".join(HALVES)}.')
    if split not in self.halves:
      raise ValueError(f'the answers have no row of split {split!r}.')
    return self.halves[split]

  def _is_folder(self, source: pathlib.Path | bytes, suffix: str) -> bool:
    is_there = isinstance(source, pathlib.Path) and source.is_dir()
    return self.mode == 'strict' and (is_there or suffix == folders.ZIP)

  def _max_columns(self) -> int:
    """How many columns are read of a submission; 0 for any number."""
    if self.mode != 'strict':
      return 0
    return max(tables.MAX_COLUMNS, 2 * len(self.targets))

  def _named_alike(self, given: Mapping[str, Any]) -> dict[str, Any]:
    """The answers; a single array under the name that a `.npy` file has."""
    if set(given) == {''} and len(self.truth) == 1:
      return {'': next(iter(self.truth.values()))}
    return self.truth

  def _truth_for(self, aligned: Any) -> Any:
    return self._named_alike(aligned) if self.entry.arrays else self.truth

  def _no_file(self, path: pathlib.Path) -> str:
    """Why this is no file to be read; empty if it is one."""
    is_strict = self.mode == 'strict'
    suffixes: tuple[str, ...] = ('.csv',)
    if self.entry.arrays:
      suffixes = arrays.SUFFIXES
    elif is_strict:
      suffixes = ('.csv', '.jsonl')
    if is_strict and path.is_symlink():
      return f'{path} is a symbolic link; write the file itself'
    if is_strict and path.is_dir():
      return ''
    if is_strict:
      suffixes += (folders.ZIP,)
    if not path.is_file() or path.suffix.lower() not in suffixes:
      return f'{path} does not exist or is not a {" or ".join(suffixes)} file'
    return ''


def _halves(values: Any) -> dict[str, np.ndarray] | None:
  """Half -> whether each row belongs to it, bool [N]; None where there are none."""
  import pandas as pd

  if values is None:
    return None
  codes, known = pd.factorize(np.asarray(values, dtype=object))
  found = [str(value) for value in known]
  if (codes < 0).any() or not set(found) <= set(HALVES):
    return None  # some column of that name
  return {half: codes == found.index(half) for half in found}


def _part(rows: Any, keep: np.ndarray) -> Any:
  """The kept rows of a table, or of each array."""
  if isinstance(rows, dict):
    return {name: array[keep] for name, array in rows.items()}
  return rows.iloc[keep].reset_index(drop=True)
