"""Operators: what a prompt for a whole solution asks for, and how often.

A draft from scratch, the improvement of a solution, the debugging of one that failed,
or a crossover of two. Training, search and the scripted demonstrations draw them alike.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from jaxagent.options import as_dict, is_finite
from jaxagent.types import OPERATORS

__all__ = ['OPERATORS', 'Shares', 'complaint']
# Of a number in [0, 1): improve is below its share, and draft has what is left.
_ORDER = ('improve', 'debug', 'crossover', 'draft')
_MOST = 1_000_000  # of a share
EXAMPLE = "{'draft': 4, 'improve': 3, 'debug': 2, 'crossover': 1}"


def complaint(key: str, shares: Mapping[str, Any]) -> str:
  """Returns what is wrong with `solution.operators` in one sentence, '' if nothing is."""
  give = f'give --{key}="{EXAMPLE}"'
  for name, share in shares.items():
    if name not in OPERATORS:
      return (
        f'{key}: {name!r} is no operator; choose from: {", ".join(OPERATORS)}.'
      )
    if not is_finite(share) or not 0 <= share <= _MOST:
      return (
        f'{key}: the share of {name!r} is {share!r}, and must be a finite number '
        f'from 0 to {_MOST:,}; {give}.'
      )
  if shares and not any(shares.values()):
    return (
      f'{key}={dict(shares)!r} has no share above 0, so nothing is asked for; {give}, '
      'or {} for config.solution.improve.'
    )
  return ''


class Shares:
  """How often each operator is asked for.

  Args:
    operators: operator -> its share of all together; those left out have none.
    improve: where `operators` is empty, the share of 'improve'; 'draft' has the rest.

  Raises ValueError for an unknown operator, or shares that are none.
  """

  def __init__(self, operators: Mapping[str, float], improve: float = 0.5):
    if why := complaint('operators', operators):
      raise ValueError(why)
    if not 0 <= improve <= 1:
      raise ValueError(f'improve={improve} must be in [0, 1].')
    given = dict(operators) or {'draft': 1 - improve, 'improve': improve}
    self._shares = {name: float(given.get(name, 0)) for name in _ORDER}

  @classmethod
  def of(cls, options: Any) -> Shares:
    """Returns those of `config.solution`."""
    return cls(as_dict(options.operators), options.improve)

  def __getitem__(self, operator: str) -> float:
    return self._shares[operator]

  def drawn(self, number: float) -> str:
    """Returns the operator that a number in [0, 1) stands for."""
    ends = list(itertools.accumulate(self._shares.values()))
    return next(n for n, end in zip(_ORDER, ends) if number * ends[-1] < end)

  def taken(self, asked: str, programs: int, failures: int) -> str:
    """Returns the operator that can be had in place of the one that is asked for.

    programs: different ones that may be improved upon. failures: that may be debugged.
    What lacks them is an improvement, where that has a share, and else a draft.
    """
    needed = {'draft': 0, 'improve': 1, 'debug': 0, 'crossover': 2}
    if programs >= needed[asked] and (asked != 'debug' or failures):
      return asked
    return 'improve' if programs and self['improve'] else 'draft'
