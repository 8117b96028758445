"""Prompts for whole solutions: from scratch, or from one that was run before.

Paper 003, section 3.3: both with equal probability; no failed ones are improved
upon, unless that is asked for.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxagent.data.prompts import Drawn
from jaxagent.envs.solution import Previous, Solution, Task, solution_id
from jaxagent.types import Prompt

PARENTS = ('uniform', 'ranked')
# Of 'ranked': ranks in which the chance falls to 1/e, and how many of the best stay.
DECAY, STAY = 3.0, 10


@dataclasses.dataclass(frozen=True)
class Kept:
  """A solution that may be improved upon.

  id: of its content. merit: its raw score, turned so that more is better; None where
  it has none.
  """

  id: str
  task: str
  previous: Previous
  merit: float | None = None


class SolutionSource:
  """Draws a task, then whether a previous solution of it goes with it.

  Args:
    tasks: names; each epoch has all of them alike, in an order of its own.
    group_size: samples of each prompt.
    repeats: how often an epoch has each task.
    improve: share of prompts with a previous solution, where there is one.
    most: solutions kept of each task; the oldest goes first.
    parents: how one of them is chosen. 'uniform': all alike. 'ranked': by exp(-rank / 3)
      / sqrt(1 + visits), rank 0 the best score, visits the times that it was chosen; the
      ten best are kept however old they are.
  """

  def __init__(
    self,
    tasks: Sequence[str],
    *,
    group_size: int = 1,
    repeats: int = 1,
    improve: float = 0.5,
    most: int = 256,
    parents: str = 'uniform',
    seed: int = 0,
  ):
    if parents not in PARENTS:
      raise ValueError(
        f'parents={parents!r}; choose one of {", ".join(PARENTS)}.'
      )
    if not tasks:
      raise ValueError('there is no task to solve.')
    for name, value in (
      ('group_size', group_size), ('repeats', repeats), ('most', most)
    ):  # fmt: skip
      if value < 1:
        raise ValueError(f'{name}={value} must be 1 or more.')
    if not 0 <= improve <= 1:
      raise ValueError(f'improve={improve} must be in [0, 1].')
    self.group_size = group_size
    self.tasks, self._repeats = tuple(sorted(tasks)), repeats
    self._improve, self._most, self._seed = improve, most, seed
    self._parents = parents
    self._visits: collections.Counter[str] = collections.Counter()
    self._position = 0
    self._kept: dict[str, collections.OrderedDict[str, Kept]] = {
      name: collections.OrderedDict() for name in self.tasks
    }
    # What was drawn and is kept no more: its prompt may still be under way.
    self._gone: collections.OrderedDict[str, Kept] = collections.OrderedDict()

  @property
  def size(self) -> int:
    return len(self.tasks) * self._repeats

  def keep(
    self,
    task: str,
    solution: Solution,
    output: str,
    merit: float | None = None,
  ) -> None:
    """Lets it be improved upon; one that is there already moves to the end.

    merit: of `Kept`.

    With the plan and output that it had first: a prompt that shows it may be under
    way, and is made again from its name after a kill.
    """
    name = solution_id(task, solution.code)
    before = self._kept[task].get(name) or self._gone.pop(name, None)
    made = Kept(name, task, Previous(solution, output), merit)
    self._put(before or made)

  def _put(self, kept: Kept) -> None:
    own = self._kept[kept.task]
    own.pop(kept.id, None)
    own[kept.id] = kept
    while len(own) > self._most:
      oldest = own.pop(self._oldest(own))
      self._visits.pop(oldest.id, None)
      self._gone[oldest.id] = oldest
    while len(self._gone) > self._most * len(self.tasks):
      self._gone.popitem(last=False)

  def _oldest(self, own: Mapping[str, Kept]) -> str:
    """The id of what goes first."""
    staying: set[str] = set()
    if self._parents == 'ranked':
      ranked = _ranked(own.values())
      staying = {one.id for one in ranked[: min(STAY, self._most - 1)]}
    return next(name for name in own if name not in staying)

  def _chosen(self, own: Mapping[str, Kept], rng: np.random.Generator) -> Kept:
    if self._parents == 'uniform':
      return list(own.values())[int(rng.integers(len(own)))]
    ranked = _ranked(own.values())
    chances = chances_of([self._visits[one.id] for one in ranked])
    kept = ranked[int(rng.choice(len(ranked), p=chances))]
    self._visits[kept.id] += 1
    return kept

  def draw(self) -> Drawn:
    epoch, at = divmod(self._position, self.size)
    order = np.random.default_rng([self._seed, epoch]).permutation(self.size)
    task = self.tasks[int(order[at]) % len(self.tasks)]
    rng = np.random.default_rng([self._seed, epoch, at, 1])
    own, kept = self._kept[task], None
    if own and rng.random() < self._improve:
      kept = self._chosen(own, rng)
    group_id = f'{epoch}/{at}'
    self._position += 1
    payload = _asked(task, kept)
    prompts = tuple(
      Prompt(f'{group_id}/{i}', group_id, payload)
      for i in range(self.group_size)
    )
    return Drawn([task, kept.id if kept else ''], group_id, prompts)

  def restore(self, key: Any, prompt_id: str) -> Prompt:
    task, name = key
    kept = None
    if name:
      kept = self._kept.get(task, {}).get(name) or self._gone.get(name)
      if kept is None:
        raise KeyError(f'prompt {prompt_id}: solution {name} is kept no more.')
    if task not in self._kept:
      raise KeyError(f'prompt {prompt_id}: task {task!r} is not solved here.')
    return Prompt(prompt_id, prompt_id.rsplit('/', 1)[0], _asked(task, kept))

  def state_dict(self) -> dict[str, Any]:
    kept = [k for own in self._kept.values() for k in own.values()]
    return {
      'seed': self._seed,
      'position': self._position,
      'tasks': list(self.tasks),
      'kept': [_to_json(k) for k in kept],
      'gone': [_to_json(k) for k in self._gone.values()],
      'visits': dict(self._visits),
    }

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Raises ValueError: another seed, other tasks, or damaged."""
    try:
      kept, gone = ([_from_json(r) for r in state[k]] for k in ('kept', 'gone'))
      given = {'seed': state['seed'], 'tasks': state['tasks']}
      position = int(state['position'])
      visits = {str(k): int(v) for k, v in state.get('visits', {}).items()}
    except (KeyError, TypeError) as error:
      raise ValueError(
        f'solutions: the checkpoint is damaged: {error!r}'
      ) from error
    for name, own in (('seed', self._seed), ('tasks', list(self.tasks))):
      if given[name] != own:
        raise ValueError(
          f'solutions: the checkpoint was made with {name}={given[name]!r}, this '
          f'run has {own!r}; the order would differ.'
        )
    for one in (*kept, *gone):
      if one.task not in self._kept:
        raise ValueError(
          f'solutions: {one.id} is of task {one.task!r}, not solved here.'
        )
    self._position = position
    for kept_of_task in self._kept.values():
      kept_of_task.clear()
    self._gone = collections.OrderedDict((k.id, k) for k in gone)
    self._visits = collections.Counter(visits)
    for one in kept:
      self._put(one)


def _asked(task: str, kept: Kept | None) -> Task:
  return Task(task, kept.previous, kept.id) if kept else Task(task)


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
  solution = kept.previous.solution
  return [
    kept.id, kept.task, solution.plan, solution.code, kept.previous.output,
    kept.merit,
  ]  # fmt: skip


def _from_json(record: Any) -> Kept:
  texts, merit = record[:5], [*record[5:], None][0]  # an older one has no merit
  is_one = len(texts) == 5 and all(isinstance(part, str) for part in texts)
  if not is_one or not isinstance(merit, float | int | None):
    raise ValueError(f'solutions: {str(record)[:200]} is no solution.')
  name, task, plan, code, output = texts
  if name != solution_id(task, code):
    raise ValueError(f'solutions: {name} is not the id of its program.')
  return Kept(name, task, Previous(Solution(plan, code), output), merit)
