"""Reading submissions and answers, the same under pandas 2 and 3."""

from __future__ import annotations

import csv
import io
import json
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
  import pandas as pd

MAX_BYTES = 2 * 1024**3
MAX_COLUMNS = 1000  # of a submission, whose time grows with their square
_MAX_BLANK = 1000  # lines before the first row
_SPARSE = 4  # cells of a table of JSON lines for each that they name
# What is asked of a submission, in this order: that it is text, a table (or arrays),
# has the right columns, each id as often as the answers, and values of the right kind.
CHECKS = ('text', 'table', 'columns', 'ids', 'values')


class InvalidSubmission(ValueError):
  """The submission cannot be graded; the message says why.

  check: which of CHECKS it failed.
  """

  def __init__(self, message: str, check: str = 'values'):
    super().__init__(message)
    self.check = check


def opened(
  source: str | pathlib.Path | bytes, max_bytes: int
) -> tuple[BinaryIO, int, str]:
  """Opens a file, or its bytes: the stream, its size in bytes, its name.

  Raises: FileNotFoundError; InvalidSubmission where it is too large.
  """
  if isinstance(source, bytes):
    name, size = 'the submission', len(source)
  else:
    path = pathlib.Path(source)
    if not path.is_file():
      raise FileNotFoundError(f'{path} does not exist or is not a file')
    name, size = str(path), path.stat().st_size
  if size > max_bytes:
    raise InvalidSubmission(f'{name} is larger than {max_bytes} bytes', 'text')
  stream = io.BytesIO(source) if isinstance(source, bytes) else path.open('rb')
  return stream, size, name


def read_table(
  source: str | pathlib.Path | bytes,
  *,
  suffix: str = '',
  literal: bool = False,
  texts: Sequence[str] = (),
  max_bytes: int = MAX_BYTES,
  max_columns: int = 0,
) -> pd.DataFrame:
  """A CSV (or JSON-lines) file, or its bytes, as mle-bench reads it.

  Text columns are object columns with NaN for empty cells, as in pandas 2.
  suffix: that of the file's name, which bytes do not have.
  literal: in a text column, and in `texts`, only an empty cell is missing: `NA`,
    `null` and their like are names as any other. pandas, and so mle-bench, takes
    them for missing values. A row with more cells than the header is refused,
    where pandas takes the first cells for an index.
  texts: columns that are text whatever they hold, so that `0300` is not 300
    and an id of 19 digits keeps all of them; literal only.
  max_columns: of a submission, more are refused before the table is built, and
    so are NUL bytes in a CSV file; 0 of answers. Literal only, as is the refusal of
    a JSON object with a key twice and of JSON escapes that are half a character.

  Raises: FileNotFoundError; InvalidSubmission where it is no such table.
  """
  import pandas as pd

  stream, _, name = opened(source, max_bytes)
  if not isinstance(source, bytes):
    suffix = pathlib.Path(source).suffix.lower()
  try:
    with stream:
      if suffix == '.jsonl':
        table = _read_lines(stream, texts, literal, max_columns)
      elif literal:
        if max_columns:
          _check_bytes(stream, max_columns)
        table = _read_literal(stream, texts)
      else:
        table = pd.read_csv(stream, float_precision='round_trip')
  except (MemoryError, InvalidSubmission):
    raise
  except Exception as error:  # any text at all may stand in a file
    is_text = not isinstance(error, UnicodeDecodeError)
    raise InvalidSubmission(
      f'{name} is not a readable table: {error}',
      'table' if is_text else 'text',
    ) from error
  return as_pandas2(table)


def _check_bytes(stream: BinaryIO, max_columns: int) -> None:
  """Refuses NUL bytes, and a head or a first row that is too wide."""
  if any(b'\0' in part for part in iter(lambda: stream.read(1 << 20), b'')):
    raise InvalidSubmission('the submission holds a NUL byte', 'text')
  stream.seek(0)
  # Undecodable bytes are the reader's matter, which names their place.
  text = io.TextIOWrapper(stream, 'utf-8', 'replace', newline='')
  try:
    filled = 0
    for number, row in enumerate(csv.reader(text)):
      _check_width(len(row), max_columns)
      filled += len(row) > 1 or bool(''.join(row).strip())
      if filled == 2:
        break
      if number == _MAX_BLANK:
        raise ValueError(f'it begins with {_MAX_BLANK} blank lines')
  finally:
    text.detach()
  stream.seek(0)


def _check_width(columns: int, max_columns: int) -> None:
  if max_columns and columns > max_columns:
    raise ValueError(f'it has {columns} columns; at most {max_columns}')


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
  """A JSON object whose keys differ."""
  row = dict(pairs)
  if len(row) < len(pairs):
    raise ValueError('a JSON object has a key twice')
  return row


def _read_lines(
  stream: BinaryIO, texts: Sequence[str], literal: bool, max_columns: int
) -> pd.DataFrame:
  """JSON lines by Python's json, as mle-bench reads them.

  pandas' own reader moves floats by an ulp and makes numbers and dates of texts.
  """
  import pandas as pd

  rows = []
  names: set[str] = set()
  # Not splitlines: a text may hold other ends of lines than "\n".
  text = io.TextIOWrapper(stream, encoding='utf-8-sig').read()
  for number, line in enumerate(text.split('\n'), 1):
    if line.strip():
      row = json.loads(line, object_pairs_hook=_unique if literal else None)
      if not isinstance(row, dict):
        raise ValueError(f'line {number} is no JSON object')
      if literal and '\\u' in line:
        json.dumps(row, ensure_ascii=False).encode()  # no half characters
      rows.append(row)
      names.update(row)
      _check_width(len(names), max_columns)
  if max_columns:
    given = sum(map(len, rows))
    if len(names) * len(rows) > _SPARSE * given + MAX_COLUMNS**2:
      raise ValueError('its lines have different keys')
  table = pd.DataFrame(rows)
  for name in {*(texts if literal else ())} & {*table.columns}:
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


def _read_literal(stream: BinaryIO, texts: Sequence[str]) -> pd.DataFrame:
  """A CSV file in which only empty cells of text columns are missing."""
  import pandas as pd

  dtypes = dict.fromkeys(texts, object)
  table = pd.read_csv(stream, float_precision='round_trip', dtype=dtypes)
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
  stream.seek(0)
  again = pd.read_csv(
    stream,
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
