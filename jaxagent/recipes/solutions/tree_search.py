"""Draft, debug, improve: AIDE's tree search around any model that writes programs.

Jiang et al. 2025, "AIDE: AI-driven exploration in the space of code", section 3: a
few drafts; then, with some chance, a failed leaf is debugged, else the best
solution so far is improved upon, or one that is drawn by its rank
(`search.parents`). Where `solution.operators` is given it has the shares after the
drafts, and the prompts are those of training. What a search comes to is its best
solution by the validation rows, with its score on the private ones.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxagent.data.solution_pool import Kept, Pool
from jaxagent.envs.operators import Shares
from jaxagent.envs.solution import Previous, Task, parse
from jaxagent.options import as_dict
from jaxagent.recipes.evaluation import split_of
from jaxagent.recipes.solutions.evaluate import (
  Attempt,
  Ended,
  SolutionEvaluation,
)
from jaxagent.recipes.solutions.workflow import SolutionWorkflow, shown_of
from jaxagent.records import Evaluated, SearchStep, SolutionRecord

if TYPE_CHECKING:
  from jaxagent.runtime.context import RunContext


@dataclasses.dataclass(frozen=True)
class Node:
  """A solution that was run.

  parent: number of the node that it debugs, improves upon or joins with another; None
    of a draft. second: that of the other.
  score: on the validation rows; None where it failed. private, whole: likewise, on
    the private rows and on the whole hidden test.
  """

  kind: str  # draft | debug | improve | crossover
  parent: int | None
  score: float | None
  private: float | None
  record: SolutionRecord
  whole: float | None = None
  second: int | None = None


class Choice(NamedTuple):
  """The next solution of a search.

  parent, second: numbers of nodes, as of `Node`. asked: the operator that was drawn,
    where another had to be taken; else ''.
  """

  kind: str
  parent: int | None = None
  second: int | None = None
  asked: str = ''


class Search:
  """One search; pure but for its random generator.

  Args:
    higher_is_better: of scores.
    most: programs that it may make.
    drafts: before anything else is done.
    debug_probability: of debugging a failed leaf, where there is one.
    debug_depth: a line of more failures in a row than this is given up.
    parents: 'best', or 'ranked' as of `data.solution_pool.Pool`, which draws the second
      solution of a crossover in either case.
    shares: of the operators after the drafts; None: AIDE's rule, without a crossover.
  """

  def __init__(
    self,
    *,
    higher_is_better: bool,
    most: int,
    drafts: int,
    debug_probability: float,
    debug_depth: int,
    rng: random.Random,
    parents: str = 'best',
    shares: Shares | None = None,
  ):
    self.nodes: list[Node] = []
    self._higher, self._drafts = higher_is_better, drafts
    self._chance, self._depth, self._rng = debug_probability, debug_depth, rng
    self._best_first, self._shares = parents == 'best', shares
    # Valid programs, each once, as training has them, and the node of each.
    rule = 'uniform' if self._best_first else parents
    self._pool, self._at = Pool(('',), most, rule), dict[str, int]()

  def add(self, node: Node) -> None:
    """Takes the solution that was chosen last, once it has run."""
    self.nodes.append(node)
    if node.score is None:
      return
    record, sign = node.record, 1 if self._higher else -1
    name = record.solution_id
    self._at.setdefault(name, len(self.nodes) - 1)
    self._pool.keep(Kept(name, '', shown_of(record), sign * node.score))

  def choose(self) -> Choice:
    """Returns what the next solution is, and what it continues from."""
    if sum(n.kind == 'draft' for n in self.nodes) < self._drafts:
      return Choice('draft')
    if self._shares is not None:
      return self._by_shares(self._shares)
    if self._rng.random() < self._chance and (leaves := self._failed_leaves()):
      return Choice('debug', self._rng.choice(leaves))
    best = self.best()
    if best is None:
      return Choice('draft')
    return Choice('improve', self._improved(best))

  def _by_shares(self, shares: Shares) -> Choice:
    """Draws an operator, and what it continues from."""
    asked, leaves = shares.drawn(self._rng.random()), self._failed_leaves()
    kind = shares.taken(asked, self._pool.count(''), len(leaves))
    instead = '' if kind == asked else asked
    if kind == 'draft':
      return Choice(kind, asked=instead)
    if kind == 'debug':
      return Choice(kind, self._rng.choice(leaves), asked=instead)
    best = self.best()
    assert best is not None  # `taken` says that the pool has some
    parent, second = self._improved(best), None
    if kind == 'crossover':
      second = self._drawn(but=self.nodes[parent].record.solution_id)
    return Choice(kind, parent, second, instead)

  def _improved(self, best: int) -> int:
    return best if self._best_first else self._drawn()

  def _drawn(self, but: str = '') -> int:
    """Draws a node from the pool, not of the program with the id `but`."""
    rng = np.random.default_rng(self._rng.getrandbits(64))
    return self._at[self._pool.chosen('', rng, but).id]

  @property
  def exec_s(self) -> float:
    """Seconds that its executions have taken."""
    return sum(node.record.exec_s for node in self.nodes)

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
    config, solution = context.config.search, context.config.solution
    shares = Shares.of(solution) if as_dict(solution.operators) else None
    self.searches = {
      (task, index): Search(
        higher_is_better=context.spec(task).higher_is_better,
        most=config.steps,
        drafts=config.drafts,
        debug_probability=config.debug_probability,
        debug_depth=config.debug_depth,
        parents=config.parents,
        shares=shares,
        rng=random.Random(f'{context.config.seed} {task} {index}'),
      )
      for task in context.heldin + context.heldout
      for index in range(config.runs)
    }
    programs = len(self.searches) * config.steps
    super().__init__(
      context, workflow, f'search_{label}', f'search {label}', programs
    )
    self._choices: dict[str, Choice] = {}
    self._by_shares = shares is not None

  def begin(self) -> None:
    for task, index in self.searches:
      self._next(task, index, 0)

  def _next(self, task: str, index: int, step: int) -> None:
    """Pushes the next solution of a search, if any is left to make."""
    config, search = self.context.config.search, self.searches[task, index]
    spent = 0 < config.seconds <= search.exec_s
    if step == config.steps or spent:
      return
    choice = search.choose()
    asked = _asked(task, search, choice, self._by_shares)
    one = Attempt(asked, index, choice.kind, f' {step}')
    self._choices[one.name] = choice
    self.push(one)

  def took(self, one: Ended) -> None:
    attempt = one.attempt
    task, index = attempt.task.name, attempt.index
    if not one.error and one.step is not None:
      record = one.step.record
      assert isinstance(record, SolutionRecord)
      choice = self._choices[attempt.name]
      node = Node(
        choice.kind,
        choice.parent,
        record.score_after,
        one.private,
        record,
        one.step.whole,
        choice.second,
      )
      self.searches[task, index].add(node)
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


def _asked(task: str, search: Search, choice: Choice, by_shares: bool) -> Task:
  """by_shares: with the prompts of the operators; else AIDE's, all to improve."""
  first, second = (
    None if number is None else search.nodes[number].record
    for number in (choice.parent, choice.second)
  )
  if not by_shares:
    return Task(
      task,
      Previous(parse(first.response), first.observation) if first else None,
      first.solution_id if first else '',
    )
  return Task(
    task,
    shown_of(first) if first else None,
    first.solution_id if first else '',
    choice.kind,
    choice.asked,
    shown_of(second) if second else None,
    second.solution_id if second else '',
  )


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
        dataclasses.replace(n.record, action=n.kind),
        parent=n.parent,
        second=n.second,
      )
      for n in search.nodes
    ),
  )
