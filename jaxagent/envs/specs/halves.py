"""Division of hidden rows into the half of rewards and the half of evaluation.

Prepared data has these halves: a change here is a change of every task's data.
"""

from __future__ import annotations

import collections
import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

SPLITS = ('valid', 'private')
# Salts tried until both halves have every class; each fails with a probability
# of about a half for a class of two groups.
_SALTS = 200


def halves(
  groups: Sequence[Any],
  classes: Sequence[Any] | None = None,
  secret: str = '',
) -> np.ndarray:
  """Divides groups into 'valid' and 'private' by a hash of their name, [N].

  A group is in the same half whatever other groups there are, unless a class
  would be missing from a half or a half had less than 40 % of the rows: then
  another salt is hashed with the name.

  secret: hashed, too, so that who knows the names alone cannot tell the halves.

  Raises:
    ValueError: no salt gives two such halves.
  """
  names = [str(group) for group in groups]
  kinds = None if classes is None else np.array([str(c) for c in classes])
  for salt in range(_SALTS):
    first = {
      name: _first_half(f'{secret}:{salt}:{name}')
      for name in dict.fromkeys(names)
    }
    valid = np.array([first[name] for name in names], dtype=bool)
    if not 0.4 <= valid.mean() <= 0.6:
      continue
    if kinds is None or set(kinds[valid]) == set(kinds[~valid]) == set(kinds):
      return np.where(valid, *SPLITS)
  raise ValueError(
    f'{len(set(names))} groups of {len(names)} rows cannot be divided so that '
    'both halves have every class and at least 40 % of the rows; each class '
    'needs rows in two groups or more.'
  )


def _first_half(name: str) -> bool:
  return hashlib.sha256(name.encode()).digest()[0] % 2 == 0


def frequent(values: Sequence[Any], least: int = 4) -> list[str]:
  """Gives each value as text, those of fewer than `least` rows as the commonest.

  As classes of `halves` they ask for no half of their own.
  """
  names = [str(value) for value in values]
  counts = collections.Counter(names)
  common = counts.most_common(1)[0][0] if names else ''
  return [name if counts[name] >= least else common for name in names]
