"""Optimizer steps skipped because a gradient was not finite."""

from __future__ import annotations

import logging

log = logging.getLogger(__name__)


class NonFiniteGradientError(RuntimeError):
  """Too many updates in a row had a gradient that is not finite."""


class Skips:
  """Counts skipped steps by role; raises where there are too many in a row.

  total: skipped so far. in_a_row: since the last good step, by role.
  """

  def __init__(self, most: int):
    self.most, self.total = most, 0
    self.in_a_row = {'actor': 0, 'critic': 0}

  def note(self, role: str, finite: bool, name: str) -> None:
    """One step of `role`; name: what it was, for people."""
    if finite:
      self.in_a_row[role] = 0
      return
    self.total += 1
    self.in_a_row[role] += 1
    log.warning('gradient of %s is not finite: step skipped.', name)
    if self.in_a_row[role] >= self.most:
      raise NonFiniteGradientError(
        f'{self.in_a_row[role]} {role} steps in a row had a gradient that is '
        f'not finite; the last was {name}. The parameters are those of before. '
        'Lower the learning rate, or look at these samples.'
      )
