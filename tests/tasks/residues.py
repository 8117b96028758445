"""Whether labels follow a public number: a row's place, or its id's, modulo 2 to 12."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pandas as pd
from scipy import stats

MODULI = range(2, 13)
_MOST_CLASSES = 50  # of a column, the commonest
_LEAST_ROWS = 5  # of a class


@dataclasses.dataclass(frozen=True)
class Residue:
  """A residue that labels follow, and how likely that is by chance.

  chance: the least p-value of Kruskal and Wallis (1952), times the number of
    comparisons (Bonferroni).
  """

  chance: float
  column: str = ''
  number: str = ''
  modulus: int = 0


def _values(cells: pd.Series) -> Iterator[np.ndarray]:
  """Numbers [N] that tell something of a column's labels."""
  numbers = pd.to_numeric(cells, errors='coerce')
  if numbers.notna().all() and numbers.nunique() > 20:
    yield numbers.to_numpy()
    return
  counts = cells.value_counts()[:_MOST_CLASSES]
  for label in counts.index[counts >= _LEAST_ROWS]:
    yield (cells == label).to_numpy().astype(float)
  if numbers.isna().any():
    yield cells.str.len().to_numpy().astype(float)


def _numbers(ids: pd.Series) -> Iterator[tuple[str, list[int]]]:
  """(name, whole numbers [N]) of each public number of a row."""
  yield 'row', list(range(len(ids)))
  last = ids.str.extract(r'(\d+)\D*$')[0]
  if last.notna().all():
    yield 'id', [int(digits) for digits in last]  # of 19 digits, too


def most_telling(ids: pd.Series, labels: pd.DataFrame) -> Residue:
  """Finds the residue that labels follow most.

  ids, labels: cells as text, rows in the order of the public files, [N].
  """
  worst, count = Residue(1.0), 0
  for column in labels:
    for values in _values(labels[column]):
      for number, places in _numbers(ids):
        for modulus in MODULI:
          rests = np.array([place % modulus for place in places])
          groups = [values[rests == rest] for rest in np.unique(rests)]
          if len(groups) == 1 or (values == values[0]).all():
            continue
          count += 1
          p = float(stats.kruskal(*groups).pvalue)
          if p < worst.chance:
            worst = Residue(p, str(column), number, modulus)
  return dataclasses.replace(worst, chance=min(1.0, worst.chance * count))
