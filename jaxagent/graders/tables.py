"""Reading submissions and answers, the same under pandas 2 and 3."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
  import pandas as pd

MAX_BYTES = 2 * 1024**3


class InvalidSubmission(ValueError):
  """The submission cannot be graded; the message says why."""


def read_table(path: str | pathlib.Path) -> pd.DataFrame:
  """A CSV (or JSON-lines) file as mle-bench reads it.

  Text columns are object columns with NaN for empty cells, as in pandas 2.

  Raises: FileNotFoundError; InvalidSubmission where it is no such table.
  """
  import pandas as pd

  path = pathlib.Path(path)
  if not path.is_file():
    raise FileNotFoundError(f'{path} does not exist or is not a file')
  if path.stat().st_size > MAX_BYTES:
    raise InvalidSubmission(f'{path} is larger than {MAX_BYTES} bytes')
  try:
    if path.suffix.lower() == '.jsonl':
      table = pd.read_json(path, lines=True)
    else:
      table = pd.read_csv(path, float_precision='round_trip')
  except (ValueError, UnicodeDecodeError, pd.errors.ParserError) as error:
    raise InvalidSubmission(
      f'{path} is not a readable table: {error}'
    ) from error
  return as_pandas2(table)


def as_pandas2(table: pd.DataFrame) -> pd.DataFrame:
  """A copy whose string columns are objects with NaN where empty."""
  import pandas as pd

  table = table.copy()
  for name in table.columns:
    column = table[name]
    if isinstance(column.dtype, pd.StringDtype):
      values = column.astype(object)
      table[name] = values.where(values.notna(), float('nan'))
  table.columns = pd.Index([str(c) for c in table.columns], dtype=object)
  return table
