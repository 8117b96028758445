"""Random changes of submissions, tables and arrays, for tests that fuzz graders."""

from __future__ import annotations

import numpy as np
import pandas as pd

CELLS = (
  float('nan'),
  float('inf'),
  -1.0,
  0,
  1,
  0.5,
  1e308,
  10**19,
  True,
  False,
  '',
  '-',
  '1 2',
  '2 1 1 1',
  '1 99999999',
  '1',
  '0',
  ' ',
  'x',
  '[1, 2]',
  'True',
  None,
)


def _change(rng, table: pd.DataFrame, id_column: str) -> pd.DataFrame:
  """One random change of a table."""
  kind = int(rng.integers(14))
  rows, columns = len(table), list(table.columns)
  if not columns:
    return table
  if kind == 0:
    return table.sample(frac=1, random_state=int(rng.integers(1 << 30)))
  if kind == 1:
    return table.iloc[: int(rng.integers(rows + 1))]
  if kind == 2:
    return pd.concat([table, table.iloc[: int(rng.integers(rows + 1))]])
  if kind == 3:
    return table.drop(columns=columns[int(rng.integers(len(columns)))])
  if kind == 4:
    return table.assign(more=1)
  if kind == 5:
    return table.iloc[:, rng.permutation(len(columns))]
  if kind == 6:
    return table.rename(columns={columns[0]: 'other'})
  if kind == 7 and id_column in columns:
    return table.assign(**{id_column: range(rows)})
  if not rows:
    return table
  name = columns[int(rng.integers(len(columns)))]
  if kind < 10:  # a column of equal cells
    cell = CELLS[int(rng.integers(len(CELLS)))]
    return table.assign(**{name: [cell] * rows})
  if kind == 10:  # random numbers
    return table.assign(**{name: np.round(rng.random(rows), 2)})
  values = table[name].tolist()
  values[int(rng.integers(rows))] = CELLS[int(rng.integers(len(CELLS)))]
  return table.assign(**{name: values})


def changed(rng, table: pd.DataFrame, id_column: str) -> pd.DataFrame:
  for _ in range(int(rng.integers(4))):
    table = _change(rng, table, id_column)
  return table.reset_index(drop=True)


def changed_array(rng, array: np.ndarray) -> np.ndarray:
  """A random change of an array."""
  kind = int(rng.integers(8))
  if kind == 0:
    return array.reshape(-1)
  if kind == 1:
    return array[:, :-1]
  if kind == 2:
    return rng.integers(-1, 4, array.shape)
  if kind == 3:
    return rng.random(array.shape)
  if kind == 4:
    return np.full(array.shape, rng.choice([np.nan, np.inf, -1, 0, 1e308]))
  if kind == 5:
    return np.zeros((0,))
  if kind == 6:
    return array.astype(np.float16)
  return rng.permutation(array.reshape(-1)).reshape(array.shape)
