"""Prompts for whole solutions: from scratch, or from what was run before.

Paper 003, section 3.3: from scratch and to improve with equal probability; no failed
ones are improved upon, unless that is asked for. `solution.operators` gives other
shares, and two operators more: to debug a failure, and to join two solutions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxagent.data.prompts import Drawn
from jaxagent.data.solution_pool import Kept, Pool
from jaxagent.envs.operators import Shares
from jaxagent.envs.solution import Previous, Solution, Task, solution_id
from jaxagent.types import Prompt

# Failures of a task that are kept to be mended, and how many in a row, each to mend the
# one before, are still given another try.
MOST_FAILURES, DEEPEST = 64, 3


class SolutionSource:
  """Draws a task, then an operator, then the solutions that its prompt shows.

  Args:
    tasks: names; each epoch has all of them alike, in an order of its own.
    group_size: samples of each prompt.
    repeats: how often an epoch has each task.
    improve, operators: of `envs.operators.Shares`.
    most, parents: of `Pool`.
  """

  def __init__(
    self,
    tasks: Sequence[str],
    *,
    group_size: int = 1,
    repeats: int = 1,
    improve: float = 0.5,
    operators: Mapping[str, float] = {},
    most: int = 256,
    parents: str = 'uniform',
    seed: int = 0,
  ):
    if not tasks:
      raise ValueError('there is no task to solve.')
    for name, value in (
      ('group_size', group_size), ('repeats', repeats), ('most', most)
    ):  # fmt: skip
      if value < 1:
        raise ValueError(f'{name}={value} must be 1 or more.')
    self.group_size = group_size
    self.tasks, self._repeats = tuple(sorted(tasks)), repeats
    self._shares, self._seed = Shares(operators, improve), seed
    self._position = 0
    self._kept = Pool(self.tasks, most, parents)
    self._failed = Pool(self.tasks, MOST_FAILURES)
    self._best: dict[str, float] = {}

  @property
  def size(self) -> int:
    return len(self.tasks) * self._repeats

  def keep(
    self,
    task: str,
    solution: Solution,
    output: str,
    merit: float | None = None,
    score: float | None = None,
  ) -> None:
    """Lets it be improved upon. merit: of `Kept`; score: as the metric gives it."""
    name = solution_id(task, solution.code)
    shown = Previous(solution, output, score=score)
    self._kept.keep(Kept(name, task, shown, merit))
    if merit is not None:
      self._best[task] = max(merit, self._best.get(task, merit))

  def fail(self, task: str, failed: Previous, parent: str = '') -> None:
    """Lets a failure be debugged, where that is asked for and it is not the last of many.

    parent: the id of the failure that it was to debug, if any.
    """
    if not self._shares['debug']:
      return
    name = solution_id(task, failed.solution.code)
    before = self._failed.find(task, parent) if parent else None
    failures = 1 + (before.failures if before else 0)
    if failures <= DEEPEST:
      self._failed.keep(Kept(name, task, failed, failures=failures))

  def best(self, task: str) -> float | None:
    """Returns the highest merit that was kept of a task, None before there is one."""
    return self._best.get(task)

  def draw(self) -> Drawn:
    epoch, at = divmod(self._position, self.size)
    order = np.random.default_rng([self._seed, epoch]).permutation(self.size)
    task = self.tasks[int(order[at]) % len(self.tasks)]
    rng = np.random.default_rng([self._seed, epoch, at, 1])
    asked = self._shares.drawn(rng.random())
    counts = self._kept.count(task), self._failed.count(task)
    operator = self._shares.taken(asked, *counts)
    shown: list[Kept] = []
    if operator != 'draft':
      pool = self._failed if operator == 'debug' else self._kept
      shown = [pool.chosen(task, rng)]
    if operator == 'crossover':
      shown.append(self._kept.chosen(task, rng, but=shown[0].id))
    group_id = f'{epoch}/{at}'
    self._position += 1
    payload = _asked(task, operator, asked, shown)
    prompts = tuple(
      Prompt(f'{group_id}/{i}', group_id, payload)
      for i in range(self.group_size)
    )
    key = [task, *(one.id for one in shown)]
    return Drawn([operator, asked, *key], group_id, prompts)

  def restore(self, key: Any, prompt_id: str) -> Prompt:
    operator, asked, task, *names = _key(key)
    if task not in self.tasks:
      raise KeyError(f'prompt {prompt_id}: task {task!r} is not solved here.')
    pool = self._failed if operator == 'debug' else self._kept
    shown = []
    for name in names:
      kept = pool.find(task, name)
      if kept is None:
        raise KeyError(f'prompt {prompt_id}: solution {name} is kept no more.')
      shown.append(kept)
    payload = _asked(task, operator, asked, shown)
    return Prompt(prompt_id, prompt_id.rsplit('/', 1)[0], payload)

  def state_dict(self) -> dict[str, Any]:
    return {
      'seed': self._seed,
      'position': self._position,
      'tasks': list(self.tasks),
      **self._kept.state(),
      'failed': self._failed.state(),
      'best': dict(self._best),
    }

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Raises ValueError: another seed, other tasks, or damaged."""
    try:
      given = {'seed': state['seed'], 'tasks': state['tasks']}
      for name, own in (('seed', self._seed), ('tasks', list(self.tasks))):
        if given[name] != own:
          raise ValueError(
            f'solutions: the checkpoint was made with {name}={given[name]!r}, this '
            f'run has {own!r}; the order would differ.'
          )
      position = int(state['position'])
      best = {str(k): float(v) for k, v in state.get('best', {}).items()}
      self._kept.load(state)
      self._failed.load(state.get('failed', {'kept': [], 'gone': []}))
    except (KeyError, TypeError, AttributeError) as error:
      raise ValueError(
        f'solutions: the checkpoint is damaged: {error!r}'
      ) from error
    self._position, self._best = position, best


def _key(key: Any) -> list[str]:
  """[operator, asked, task, ids]; an older key is [task, id or '']."""
  if len(key) == 2:
    operator = 'improve' if key[1] else 'draft'
    return [operator, operator, key[0], *filter(None, key[1:])]
  return list(key)


def _asked(task: str, operator: str, asked: str, shown: Sequence[Kept]) -> Task:
  first, second = [*shown, None, None][:2]
  return Task(
    task,
    first.previous if first else None,
    first.id if first else '',
    operator,
    '' if asked == operator else asked,
    second.previous if second else None,
    second.id if second else '',
  )
