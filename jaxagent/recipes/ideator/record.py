"""One idea of an Ideator: what came of it in a single step (paper 001, 3.2)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import ClassVar

from jaxagent.records.codec import register
from jaxagent.rewards import ideator
from jaxagent.rewards.ideator import IdeaResult
from jaxagent.types import NoReward, Outcome, Record, optional


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class IdeaRecord(Record):
  """One answer of an Ideator; its reward is equation 1 of paper 001.

  `response` is the answer, `valid_action` that it is an idea, `entries` its items.

  state_id: of the state of the pool that it was given in.
  format_error: why the answer is no idea; '' where it is one.
  message: the Implementer's message that carries it out; '' where none was asked.
  message_error: why that message is no single action; '' where it is one.
  no_op: the message's program equals the present one but for seeds.
  score_before: p_t; None where nothing was graded.
  higher_is_better: of the task's metric.
  noise: spread of the present program's score over repeated runs, in the metric's
    unit; None where it is not known.
  margin: units of that noise which a score must rise by more than.
  first_score: of `rewards.ideator.FIRST_SCORES`.
  behind_best: the last valid submission was not the best.
  idea_type: of `types_of.TYPES`; '' where it was not classified.
  family: of a scripted idea; '' of a model's.
  thoughts, implementer_thoughts: what the models thought in front of their texts.
  """

  KIND: ClassVar[str] = 'idea'
  DERIVED_FROM: ClassVar[tuple[str, ...]] = (
    'outcome',
    'valid_action',
    'message_error',
    'no_op',
    'score_before',
    'score_after',
    'higher_is_better',
    'noise',
    'margin',
    'first_score',
  )

  score_before: float | None = None
  state_id: str = ''
  format_error: str = ''
  message: str = ''
  message_error: str = ''
  no_op: bool = False
  higher_is_better: bool = True
  noise: float | None = None
  margin: float = 0.0
  first_score: str = '1'
  behind_best: bool = optional(False)
  idea_type: str = optional('')
  family: str = optional('')
  thoughts: str = optional('')
  implementer_thoughts: str = optional('')

  @property
  def is_edit(self) -> bool:
    """Every idea is to change the program."""
    return self.valid_action

  @property
  def result(self) -> IdeaResult:
    """The name of what became of it.

    Raises ValueError where margin or noise is below 0 or no finite number.
    """
    outcome = self.outcome
    if self.message_error and not outcome.is_infrastructure:
      outcome = Outcome.INVALID_ACTION
    return ideator.idea_result(
      outcome,
      valid_format=self.valid_action,
      score_before=self.score_before,
      score_after=self.score_after,
      higher_is_better=self.higher_is_better,
      is_no_op=self.no_op,
      least_gain=self._least_gain(),
    )

  def derive(self, switches: Mapping[str, bool] = {}) -> float | NoReward:
    """Equation 1, or why there is none; it has no switches."""
    reward = ideator.reward_of(self.result, first_score=self.first_score)
    if reward is not None:
      return reward
    if self.outcome.is_infrastructure:
      return NoReward.of(self.outcome)
    return NoReward.NOT_CREDITED

  def _least_gain(self) -> float:
    for name in ('margin', 'noise'):
      value = getattr(self, name)
      if value is not None and not (math.isfinite(value) and value >= 0):
        raise ValueError(f'{name}={value!r} must be 0 or more and finite.')
    return self.margin * (self.noise or 0.0)


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class ImplementerStepRecord(Record):
  """One message of an Implementer in an evaluated run; it is frozen and earns nothing.

  `action` is its kind: ipython, bash, seek_help or invalid; `response` its text,
  `observation` what it was answered. `score_after` is on the validation rows.

  idea_type, family: of the answer to a question; '' else. The family is a scripted
    idea's, the type by it or by a model.
  format_error: why a model's answer to a question is no idea; '' else.
  advice_prompt_tokens, advice_tokens, advice_answer_s: what that answer took, where it was
    counted.
  """

  KIND: ClassVar[str] = 'implementer_step'
  DERIVED_FROM: ClassVar[tuple[str, ...]] = ('outcome',)

  idea_type: str = optional('')
  family: str = optional('')
  format_error: str = optional('')
  advice_prompt_tokens: int | None = optional(None)
  advice_tokens: int | None = optional(None)
  advice_answer_s: float | None = optional(None)

  @property
  def is_edit(self) -> bool:
    """Whether it ran a program."""
    return self.action in ('ipython', 'bash')
