"""Reading submissions and answers, the same under pandas 2 and 3."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
  import pandas as pd

MAX_BYTES = 2 * 1024**3


class InvalidSubmission(ValueError):
  """The submission cannot be graded; the message says why."""


def read_table(
  path: str | pathlib.Path,
  *,
  literal: bool = False,
  texts: Sequence[str] = (),
) -> pd.DataFrame:
  """A CSV (or JSON-lines) file as mle-bench reads it.

  Text columns are object columns with NaN for empty cells, as in pandas 2.
  literal: in a text column, and in `texts`, only an empty cell is missing: `NA`,
    `null` and their like are names as any other. pandas, and so mle-bench, takes
    them for missing values. A row with more cells than the header is refused,
    where pandas takes the first cells for an index.
  texts: columns that are text whatever they hold, so that `0300` is not 300
    and an id of 19 digits keeps all of them; literal only.

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
      table = _read_lines(path, texts if literal else ())
    elif literal:
      table = _read_literal(path, texts)
    else:
      table = pd.read_csv(path, float_precision='round_trip')
  except MemoryError:
    raise
  except Exception as error:  # any text at all may stand in a file
    raise InvalidSubmission(
      f'{path} is not a readable table: {error}'
    ) from error
  return as_pandas2(table)


def _read_lines(path: pathlib.Path, texts: Sequence[str]) -> pd.DataFrame:
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
  table = pd.DataFrame(rows)
  for name in {*texts} & {*table.columns}:
    values = [_as_text(row.get(name)) for row in rows]
    table[name] = pd.Series(values, dtype=object)
  return table


def _as_text(value):
  """The text of a JSON value, as a CSV cell has it; NaN where it is empty."""
  if value is None or value == '':
    return float('nan')
  if isinstance(value, (list, dict)):
    raise ValueError('a cell holds a list or an object')
  return str(value)


def _read_literal(path: pathlib.Path, texts: Sequence[str]) -> pd.DataFrame:
  """A CSV file in which only empty cells of text columns are missing."""
  import pandas as pd

  dtypes = dict.fromkeys(texts, object)
  table = pd.read_csv(path, float_precision='round_trip', dtype=dtypes)
  if not isinstance(table.index, pd.RangeIndex):
    raise ValueError('rows have more cells than the header')
  anew = [
    name
    for name in table.columns
    if not pd.api.types.is_numeric_dtype(table[name].dtype)
    and table[name].isna().any()
  ]
  if not anew:
    return table
  again = pd.read_csv(
    path,
    usecols=anew,
    dtype=dict.fromkeys(anew, object),
    keep_default_na=False,
    na_values=[''],
  )
  return table.assign(**{name: again[name] for name in anew})


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
