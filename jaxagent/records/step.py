"""One step of an agent: an action in a workspace (paper 000)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from jaxagent.records.codec import register
from jaxagent.rewards import ml_agent
from jaxagent.types import NoReward, Record, optional


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class StepRecord(Record):
  """One step of `envs.step_env`; its reward is equation 6 of paper 000.

  state_id, step: of the state that it was taken in, and its number.
  action: '' where the response named none.
  is_edit: a_t is in A_edit.
  alpha: the task's scale (TaskSpec.alpha); None where it has none.
  editor_thoughts, reader_thoughts: what the model of that role thought that had a
    part in it; '' where none did.
  """

  KIND: ClassVar[str] = 'step'
  DERIVED_FROM: ClassVar[tuple[str, ...]] = (
    'outcome',
    'valid_action',
    'is_edit',
    'score_before',
    'score_after',
    'alpha',
  )

  is_edit: bool = False
  alpha: float | None = None
  state_id: str = ''
  step: int = 0
  action: str | None = ''
  args: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  entries: Mapping[str, str] = dataclasses.field(default_factory=dict)
  score_before: float | None = None
  undone: bool = False
  editor_thoughts: str = optional('')
  reader_thoughts: str = optional('')

  def derive(self, switches: Mapping[str, bool] = {}) -> float | NoReward:
    """Equation 6, or why there is none; switches: `ml_agent.SWITCHES`."""
    reward = ml_agent.ml_agent_reward(
      self.outcome,
      valid_action=self.valid_action,
      is_edit=self.is_edit,
      score_before=self.score_before,
      score_after=self.score_after,
      alpha=self.alpha,
      **switches,
    )
    if reward is not None:
      return reward
    if self.outcome.is_infrastructure:
      return NoReward.of(self.outcome)
    return NoReward.NO_SCALE
