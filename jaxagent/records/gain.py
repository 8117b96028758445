"""A program whose reward is what it gains over the task's starter."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from jaxagent.records.codec import register
from jaxagent.rewards.gain import gain_reward
from jaxagent.types import NoReward, Record


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class GainRecord(Record):
  """One program of `recipes.one_program`.

  start, best: scores of the task's starter and of the best known solution.
  """

  KIND: ClassVar[str] = 'gain'
  DERIVED_FROM: ClassVar[tuple[str, ...]] = (
    'outcome',
    'score_after',
    'start',
    'best',
  )

  start: float | None = None
  best: float | None = None

  def derive(self, switches: Mapping[str, bool] = {}) -> float | NoReward:
    """Returns `rewards.gain.gain_reward`, or why there is none; no switches."""
    reward = gain_reward(
      self.outcome, score=self.score_after, start=self.start, best=self.best
    )
    if reward is not None:
      return reward
    if self.outcome.is_infrastructure:
      return NoReward.of(self.outcome)
    return NoReward.NO_SCALE
