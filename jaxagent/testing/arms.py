"""Record of a bandit's arm, which interactions of tests keep."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from jaxagent.records import register
from jaxagent.types import NoReward, Record


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class ArmRecord(Record):
  """paid: the reward; None: not credited."""

  KIND: ClassVar[str] = 'arm'
  DERIVED_FROM: ClassVar[tuple[str, ...]] = ('outcome', 'paid')

  paid: float | None = None

  def derive(self, switches: Mapping[str, bool] = {}) -> float | NoReward:
    """Returns the reward that was paid."""
    if self.outcome.is_infrastructure:
      return NoReward.of(self.outcome)
    return NoReward.NOT_CREDITED if self.paid is None else self.paid
