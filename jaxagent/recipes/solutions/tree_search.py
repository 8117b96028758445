"""Draft, debug, improve: AIDE's tree search around any model that writes programs.

Jiang et al. 2025, "AIDE: AI-driven exploration in the space of code", section 3: a
few drafts; then, with some chance, a failed leaf is debugged, else the best
solution so far is improved upon, or one that is drawn by its rank
(`search.parents`). What a search comes to is its best solution by
the validation rows, with its score on the private ones.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxagent.data.solutions import chances_of
from jaxagent.envs.solution import Previous, Task, parse
from jaxagent.recipes.evaluation import split_of
from jaxagent.recipes.solutions.evaluate import (
  Attempt,
  Ended,
  SolutionEvaluation,
)
from jaxagent.recipes.solutions.workflow import SolutionWorkflow
from jaxagent.records import Evaluated, SearchStep, SolutionRecord

if TYPE_CHECKING:
  from jaxagent.runtime.context import RunContext


@dataclasses.dataclass(frozen=True)
class Node:
  """A solution that was run.

  parent: number of the node that it debugs or improves upon; None of a draft.
  score: on the validation rows; None where it failed. private, whole: likewise, on
    the private rows and on the whole hidden test.
  """

  kind: str  # draft | debug | improve
  parent: int | None
  score: float | None
  private: float | None
  record: SolutionRecord
  whole: float | None = None


class Search:
  """One search; pure but for its random generator.

  Args:
    higher_is_better: of scores.
    drafts: before anything else is done.
    debug_probability: of debugging a failed leaf, where there is one.
    debug_depth: a line of more failures in a row than this is given up.
    parents: 'best', or 'ranked' as of `data.solutions.SolutionSource`.
  """

  def __init__(
    self,
    *,
    higher_is_better: bool,
    drafts: int,
    debug_probability: float,
    debug_depth: int,
    rng: random.Random,
    parents: str = 'best',
  ):
    self.nodes: list[Node] = []
    self._higher, self._drafts = higher_is_better, drafts
    self._chance, self._depth, self._rng = debug_probability, debug_depth, rng
    self._parents = parents

  def choose(self) -> tuple[str, int | None]:
    """Returns (kind, number of the parent node) of the next solution."""
    if sum(n.kind == 'draft' for n in self.nodes) < self._drafts:
      return 'draft', None
    if self._rng.random() < self._chance and (leaves := self._failed_leaves()):
      return 'debug', self._rng.choice(leaves)
    best = self.best()
    if best is None:
      return 'draft', None
    return 'improve', best if self._parents == 'best' else self._by_rank()

  @property
  def exec_s(self) -> float:
    """Seconds that its executions have taken."""
    return sum(node.record.exec_s for node in self.nodes)

  def _by_rank(self) -> int:
    """Draws a valid node by its rank and by how often it was improved upon."""
    sign = -1 if self._higher else 1
    valid = [i for i, n in enumerate(self.nodes) if n.score is not None]
    valid.sort(key=lambda i: (sign * (self.nodes[i].score or 0.0), -i))
    visits = [sum(n.parent == i for n in self.nodes) for i in valid]
    return self._rng.choices(valid, chances_of(visits).tolist())[0]

  def best(self, among: int | None = None) -> int | None:
    """Returns the number of the best of the first `among` nodes; None where none is valid."""
    valid = [i for i, n in enumerate(self.nodes[:among]) if n.score is not None]
    if not valid:
      return None
    sign = 1 if self._higher else -1
    return max(valid, key=lambda i: sign * (self.nodes[i].score or 0.0))

  def _failed_leaves(self) -> list[int]:
    parents = {n.parent for n in self.nodes}
    return [
      i
      for i, n in enumerate(self.nodes)
      if n.score is None
      and i not in parents
      and n.record.valid_action
      and self._failures(i) <= self._depth
    ]

  def _failures(self, number: int | None) -> int:
    """Returns the number of failures in a row, up from a node."""
    count = 0
    while number is not None and self.nodes[number].score is None:
      count, number = count + 1, self.nodes[number].parent
    return count


class _Searches(SolutionEvaluation):
  """`search.runs` searches of each task, side by side."""

  def __init__(
    self, context: RunContext, workflow: SolutionWorkflow, label: str
  ):
    config = context.config.search
    self.searches = {
      (task, index): Search(
        higher_is_better=context.spec(task).higher_is_better,
        drafts=config.drafts,
        debug_probability=config.debug_probability,
        debug_depth=config.debug_depth,
        parents=config.parents,
        rng=random.Random(f'{context.config.seed} {task} {index}'),
      )
      for task in context.heldin + context.heldout
      for index in range(config.runs)
    }
    programs = len(self.searches) * config.steps
    super().__init__(
      context, workflow, f'search_{label}', f'search {label}', programs
    )
    self._parents: dict[str, int | None] = {}

  def begin(self) -> None:
    for task, index in self.searches:
      self._next(task, index, 0)

  def _next(self, task: str, index: int, step: int) -> None:
    """Pushes the next solution of a search, if any is left to make."""
    config, search = self.context.config.search, self.searches[task, index]
    spent = 0 < config.seconds <= search.exec_s
    if step == config.steps or spent:
      return
    kind, parent = search.choose()
    one = Attempt(_asked(task, search, parent), index, kind, f' {step}')
    self._parents[one.name] = parent
    self.push(one)

  def took(self, one: Ended) -> None:
    attempt = one.attempt
    task, index = attempt.task.name, attempt.index
    if not one.error and one.step is not None:
      record = one.step.record
      assert isinstance(record, SolutionRecord)
      node = Node(
        attempt.part,
        self._parents[attempt.name],
        record.score_after,
        one.private,
        record,
        one.step.whole,
      )
      self.searches[task, index].nodes.append(node)
    elif not one.error:
      self.missing.append(one.record(self.context))
    self._next(task, index, int(attempt.salt) + 1)

  def records(self) -> list[Evaluated]:
    return [
      _record(self.context, task, index, search)
      for (task, index), search in self.searches.items()
    ]

  def begun(self, found: Sequence[Evaluated]) -> int:
    return self.rollouts


def run(
  context: RunContext, workflow: SolutionWorkflow, label: str
) -> list[Evaluated]:
  """Runs the searches of every task; returns and keeps their records."""
  return _Searches(context, workflow, label).run()


def table(
  records: Sequence[Evaluated], higher: Mapping[str, bool]
) -> dict[str, Any]:
  """Returns {task: {n, valid, mean, best, by_step}} of private scores.

  n searches, the share with a valid solution, mean and best of what they came to,
  and the mean after 1, 2, 4, ... programs (None before any is valid).
  """
  found = {}
  for task in sorted({r.task for r in records}):
    curves = [r.private_by_step or () for r in records if r.task == task]
    ends = [c[-1] for c in curves if c and c[-1] is not None]
    pick = max if higher[task] else min
    steps = max(map(len, curves), default=0)
    found[task] = {
      'n': len(curves),
      'valid': len(ends) / len(curves),
      'mean': float(np.mean(ends)) if ends else None,
      'best': pick(ends) if ends else None,
      'by_step': {
        str(n): _mean_at(curves, n)
        for n in (2**i for i in range(steps.bit_length()))
      },
    }
  return found


def _mean_at(curves: Sequence[Sequence[float | None]], n: int) -> float | None:
  reached = [c[min(n, len(c)) - 1] for c in curves if c]
  values = [value for value in reached if value is not None]
  return float(np.mean(values)) if values else None


def _asked(task: str, search: Search, parent: int | None) -> Task:
  if parent is None:
    return Task(task)
  record = search.nodes[parent].record
  previous = Previous(parse(record.response), record.observation)
  return Task(task, previous, record.solution_id)


def _record(
  context: RunContext, task: str, index: int, search: Search
) -> Evaluated:
  """Returns a search as an evaluated trajectory, with its best after each step."""
  best = search.best()
  by_step = []
  for n in range(1, len(search.nodes) + 1):
    at = search.best(n)
    by_step.append(None if at is None else search.nodes[at].private)
  return Evaluated(
    task=task,
    index=index,
    split=split_of(context, task),
    score=None if best is None else search.nodes[best].private,
    whole=None if best is None else search.nodes[best].whole,
    private_by_step=tuple(by_step),
    steps=tuple(
      SearchStep.of(
        dataclasses.replace(n.record, action=n.kind), parent=n.parent
      )
      for n in search.nodes
    ),
  )
