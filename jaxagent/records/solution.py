"""One whole solution: a plan and a program (paper 003)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from jaxagent.records.codec import register
from jaxagent.rewards import mle
from jaxagent.types import NoReward, Record, optional

# Of an operator, in the name of what its solutions' scores are compared with.
_WORDS = {
  'draft': '',
  'improve': 'improved',
  'debug': 'debugged',
  'crossover': 'crossed',
}


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class SolutionRecord(Record):
  """One program of `envs.solution_env`; its reward is section 3.2 of paper 003.

  solution_id: of its content; '' where the response held no program.
  improves: the id of the solution that it was to improve upon, to debug or to join with
    another; '' from scratch.
  operator: what its prompt asked for, 'draft', 'improve', 'debug' or 'crossover'; '' in
    older files. asked: the operator that was drawn, where another had to be taken.
  joins: the id of the other solution of a crossover.
  parent_score: of the better of the solutions that its prompt showed, on the validation
    split; None where none had one.
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
  operator: str = optional('')
  asked: str = optional('')
  joins: str = optional('')
  parent_score: float | None = optional(None)
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
    """Solutions of a task that one operator asked for."""
    word = _WORDS.get(self.kind, self.kind)
    return f'{self.task}, {word}' if word else self.task

  @property
  def kind(self) -> str:
    """The operator that asked for it."""
    return self.operator or ('improve' if self.improves else 'draft')

  @property
  def merit(self) -> float | None:
    """Returns the score, turned so that more is better; None where there is none."""
    score = self.score_after
    return -score if score is not None and not self.higher_is_better else score

  def gain(self) -> float | None:
    """Returns what it earned more than the better of its parents would have.

    None where one of the two has no score.
    """
    if self.parent_score is None or self.score_after is None:
      return None
    parent = dataclasses.replace(self, score_after=self.parent_score).derive()
    own = self.derive()
    if isinstance(own, NoReward) or isinstance(parent, NoReward):
      return None
    return own - parent

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
