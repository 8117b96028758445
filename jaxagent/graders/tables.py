"""Reading submissions and answers, the same under pandas 2 and 3."""

from __future__ import annotations

import json
import pathlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
  import pandas as pd

MAX_BYTES = 2 * 1024**3


class InvalidSubmission(ValueError):
  """The submission cannot be graded; the message says why."""


def read_table(
  path: str | pathlib.Path, *, literal: bool = False, id_column: str = ''
) -> pd.DataFrame:
  """A CSV (or JSON-lines) file as mle-bench reads it.

  Text columns are object columns with NaN for empty cells, as in pandas 2.
  literal: in a text column, and in `id_column`, only an empty cell is missing:
    `NA`, `null` and their like are names as any other. pandas, and so mle-bench,
    takes them for missing values.

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
      table = _read_lines(path)
    else:
      table = pd.read_csv(path, float_precision='round_trip')
      if literal:
        table = _with_literals(path, table, id_column)
  except (ValueError, UnicodeDecodeError, pd.errors.ParserError) as error:
    raise InvalidSubmission(
      f'{path} is not a readable table: {error}'
    ) from error
  return as_pandas2(table)


def _read_lines(path: pathlib.Path) -> pd.DataFrame:
  """JSON lines by Python's json, as mle-bench reads them.

  pandas' own reader moves floats by an ulp and makes numbers and dates of texts.
  """
  import pandas as pd

  rows = []
  # Not splitlines: a text may hold other ends of lines than "\n".
  for number, line in enumerate(
    path.read_text(encoding='utf-8').split('\n'), 1
  ):
    if line.strip():
      row = json.loads(line)
      if not isinstance(row, dict):
        raise ValueError(f'line {number} is no JSON object')
      rows.append(row)
  return pd.DataFrame(rows)


def _with_literals(
  path: pathlib.Path, table: pd.DataFrame, id_column: str
) -> pd.DataFrame:
  """`table` with text columns, and ids, in which something is missing read anew."""
  import pandas as pd

  anew = [
    name
    for name in table.columns
    if table[name].isna().any()
    and (
      name == id_column or not pd.api.types.is_numeric_dtype(table[name].dtype)
    )
  ]
  if not anew:
    return table
  options = {'usecols': anew, 'keep_default_na': False, 'na_values': ['']}
  texts = pd.read_csv(path, dtype=dict.fromkeys(anew, object), **options)
  return table.assign(**{name: texts[name] for name in anew})


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
