"""One whole solution: a plan and a program (paper 003)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from jaxagent.records.codec import register
from jaxagent.rewards import mle
from jaxagent.types import NoReward, Record, optional


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class SolutionRecord(Record):
  """One program of `envs.solution_env`; its reward is section 3.2 of paper 003.

  solution_id: of its content; '' where the response held no program.
  improves: the id of the solution that it was to improve upon; '' from scratch.
  higher_is_better: of the task's metric.
  scale: of `mle.SCALES`.
  start, best: scores of the task's starter and of the best known solution.
  failure: pay of a program that reached nothing.
  milestones: names of what the program reached.
  placed: number of marks in the program.
  refused: why it could not be marked; '' where it was.
  message: one line for people.
  thoughts, instrumenter_thoughts: what the models that wrote and that marked the
    program thought; '' where none did.
  """

  KIND: ClassVar[str] = 'solution'
  DERIVED_FROM: ClassVar[tuple[str, ...]] = (
    'outcome',
    'score_after',
    'higher_is_better',
    'milestones',
    'scale',
    'start',
    'best',
    'failure',
  )

  solution_id: str = ''
  improves: str = ''
  higher_is_better: bool = True
  scale: str = 'bounded'
  start: float | None = None
  best: float | None = None
  failure: float = optional(mle.FAILURE)
  milestones: tuple[str, ...] = ()
  placed: int = 0
  refused: str = ''
  message: str = ''
  thoughts: str = optional('')
  instrumenter_thoughts: str = optional('')

  @property
  def compared_with(self) -> str:
    """Solutions from scratch, and those that improve upon another one, of a task."""
    return f'{self.task}, improved' if self.improves else self.task

  @property
  def is_edit(self) -> bool:
    """A solution writes the whole program anew."""
    return self.valid_action

  def derive(self, switches: Mapping[str, bool] = {}) -> float | NoReward:
    """Section 3.2, or why there is none; it has no switches."""
    reward = mle.mle_reward(
      self.outcome,
      score=self.score_after,
      higher_is_better=self.higher_is_better,
      milestones=len(self.milestones),
      scale=self.scale,
      start=self.start,
      best=self.best,
      failure=self.failure,
    )
    return NoReward.of(self.outcome) if reward is None else reward
