"""Solutions that later prompts continue from: bounded, each found again after a kill."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxagent.envs.solution import Previous, Solution, solution_id

PARENTS = ('uniform', 'ranked')
# Of 'ranked': ranks in which the chance falls to 1/e, and how many of the best stay.
DECAY, STAY = 3.0, 10


@dataclasses.dataclass(frozen=True)
class Kept:
  """A solution that a prompt may show.

  id: of its content. merit: its raw score, turned so that more is better; None where
  it has none. failures: in a row up to it, where each was to debug the one before.
  """

  id: str
  task: str
  previous: Previous
  merit: float | None = None
  failures: int = 0


class Pool:
  """Solutions of each task, and those that left lately.

  Args:
    tasks: names.
    most: kept of each task; the oldest goes first.
    parents: how one is chosen. 'uniform': all alike. 'ranked': by exp(-rank / 3) /
      sqrt(1 + visits), rank 0 the best score, visits the times that it was chosen; the
      ten best are kept however old they are.
  """

  def __init__(self, tasks: Sequence[str], most: int, parents: str = 'uniform'):
    if parents not in PARENTS:
      raise ValueError(
        f'parents={parents!r}; choose one of {", ".join(PARENTS)}.'
      )
    self._most, self._parents = most, parents
    self._visits: collections.Counter[str] = collections.Counter()
    self._kept: dict[str, collections.OrderedDict[str, Kept]] = {
      name: collections.OrderedDict() for name in tasks
    }
    # What was drawn and is kept no more: its prompt may still be under way.
    self._gone: collections.OrderedDict[str, Kept] = collections.OrderedDict()

  def count(self, task: str) -> int:
    """Returns the number of different solutions of a task."""
    return len(self._kept[task])

  def keep(self, made: Kept) -> None:
    """Adds one; one that is there already moves to the end.

    With the plan and output that it had first: a prompt that shows it may be under
    way, and is made again from its name after a kill.
    """
    before = self._kept[made.task].get(made.id) or self._gone.pop(made.id, None)
    self._put(before or made)

  def _put(self, kept: Kept) -> None:
    own = self._kept[kept.task]
    own.pop(kept.id, None)
    own[kept.id] = kept
    while len(own) > self._most:
      oldest = own.pop(self._oldest(own))
      self._visits.pop(oldest.id, None)
      self._gone[oldest.id] = oldest
    while len(self._gone) > self._most * len(self._kept):
      self._gone.popitem(last=False)

  def _oldest(self, own: Mapping[str, Kept]) -> str:
    """The id of what goes first."""
    staying: set[str] = set()
    if self._parents == 'ranked':
      ranked = _ranked(own.values())
      staying = {one.id for one in ranked[: min(STAY, self._most - 1)]}
    return next(name for name in own if name not in staying)

  def chosen(self, task: str, rng: np.random.Generator, but: str = '') -> Kept:
    """Draws a solution of a task, of which there are some; not that with the id `but`."""
    own = [one for one in self._kept[task].values() if one.id != but]
    if self._parents == 'uniform':
      return own[int(rng.integers(len(own)))]
    ranked = _ranked(own)
    chances = chances_of([self._visits[one.id] for one in ranked])
    kept = ranked[int(rng.choice(len(ranked), p=chances))]
    self._visits[kept.id] += 1
    return kept

  def find(self, task: str, name: str) -> Kept | None:
    """Returns what is kept under an id, or left lately."""
    own = self._kept.get(task)
    return own.get(name) or self._gone.get(name) if own is not None else None

  def state(self) -> dict[str, Any]:
    """JSON-able."""
    kept = [k for own in self._kept.values() for k in own.values()]
    return {
      'kept': [_to_json(k) for k in kept],
      'gone': [_to_json(k) for k in self._gone.values()],
      'visits': dict(self._visits),
    }

  def load(self, state: Mapping[str, Any]) -> None:
    """Takes over what `state` gave. Raises ValueError, KeyError or TypeError."""
    kept, gone = ([_from_json(r) for r in state[k]] for k in ('kept', 'gone'))
    visits = {str(k): int(v) for k, v in state.get('visits', {}).items()}
    for one in (*kept, *gone):
      if one.task not in self._kept:
        raise ValueError(
          f'solutions: {one.id} is of task {one.task!r}, not solved here.'
        )
    for kept_of_task in self._kept.values():
      kept_of_task.clear()
    self._gone = collections.OrderedDict((k.id, k) for k in gone)
    self._visits = collections.Counter(visits)
    for one in kept:
      self._put(one)


def chances_of(visits: Sequence[int]) -> np.ndarray:
  """Returns the chance of each parent, the best first; visits: times it was chosen."""
  ranks = np.arange(len(visits))
  chances = np.exp(-ranks / DECAY) / np.sqrt(1 + np.asarray(visits))
  return chances / chances.sum()


def _ranked(kept: Iterable[Kept]) -> list[Kept]:
  """The best first; without a score last, and of equal ones the newest first."""
  newest = list(kept)[::-1]
  merit = lambda one: -math.inf if one.merit is None else one.merit  # noqa: E731
  return sorted(newest, key=merit, reverse=True)


def _to_json(kept: Kept) -> list[Any]:
  previous = kept.previous
  return [
    kept.id, kept.task, previous.solution.plan, previous.solution.code,
    previous.output, kept.merit, previous.score, previous.outcome, previous.reason,
    kept.failures,
  ]  # fmt: skip


def _from_json(record: Any) -> Kept:
  texts = record[:5]
  # An older one has no merit, or nothing after it.
  rest = [*record[5:], *(None, None, '', '', 0)[len(record[5:]) :]]
  is_one = len(texts) == 5 and all(isinstance(part, str) for part in texts)
  kinds = (float | int | None, float | int | None, str, str, int)
  if not is_one or len(rest) != 5 or not all(map(isinstance, rest, kinds)):
    raise ValueError(f'solutions: {str(record)[:200]} is no solution.')
  name, task, plan, code, output = texts
  if name != solution_id(task, code):
    raise ValueError(f'solutions: {name} is not the id of its program.')
  merit, score, outcome, reason, failures = rest
  previous = Previous(Solution(plan, code), output, outcome, reason, score)
  return Kept(name, task, previous, merit, failures)
