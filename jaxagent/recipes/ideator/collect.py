"""Makes the pool: runs of an Implementer with an Ideator, and the states that ask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxagent import types
from jaxagent.data.prompts import Feed
from jaxagent.errors import MachineryError, UserError, tolerated
from jaxagent.interactions import Interaction, RolloutState
from jaxagent.metrics import ProgressBar
from jaxagent.recipes.ideator import pool as pools
from jaxagent.recipes.ideator import roles
from jaxagent.recipes.ideator.interaction import (
  IDEATOR,
  IMPLEMENTER,
  HelpState,
  Run,
  Runs,
  execute,
)
from jaxagent.recipes.ideator.pool import Pool, Remeasured
from jaxagent.recipes.ideator.workflow import environment, make_ideas
from jaxagent.rollout.thread_sampler import FrozenRole
from jaxagent.training import rollouts

if TYPE_CHECKING:
  from collections.abc import Mapping

  from jaxagent.recipes.starts import Start
  from jaxagent.runtime.context import RunContext

_UNREAD = np.ones(1, np.int32)  # a prompt that no policy reads


def run(context: RunContext, starts: Mapping[str, Start]) -> Pool:
  """Returns the pool of held-in states; made once and kept in `collect/pool.jsonl`.

  Each run depends on (seed, task, index) alone; a killed collection resumes each one
  where it was. Raises UserError where the runs leave too few states, MachineryError
  where infrastructure errors cut more than a tenth of them short.
  """
  path = context.work / 'collect' / 'pool.jsonl'
  folders = [
    context.work / 'collect' / f'{n}.journal' for n in ('runs', 'noise')
  ]
  try:
    if path.exists():
      found = pools.read(path)
      for folder in folders:  # a kill may have come in between
        rollouts.forget(folder)
      return found
    made = pools.split(
      _with_noise(context, _asked(context, starts)),
      train_per_task=context.config.pool.train_per_task,
      valid_per_task=context.config.pool.valid_per_task,
      seed=context.config.seed,
    )
  except pools.PoolError as error:
    raise UserError(
      f'pool: {error} See config.pool.runs_per_task, train_per_task and '
      'valid_per_task; rerun with --work_dir=NEW.'
    ) from error
  pools.write(path, made)
  for folder in folders:
    rollouts.forget(folder)
  return made


def _asked(context: RunContext, starts: Mapping[str, Start]) -> list[HelpState]:
  """Runs the Implementer on every held-in task; returns the states that ask."""
  env = environment(context)
  feed, found = Feed(), _Ended('collect: runs')
  kind = context.config.ideator.kind
  for index in range(context.config.pool.runs_per_task):
    for task in context.heldin:
      name = f'{task}-{index}'
      feed.push(name, Run(name, env.initial(task, starts[task].valid)))
  _drive(context, 'runs', feed, runs_of(context, kind), kind, found)
  return [
    item
    for name, at in sorted(found.states.items())
    for item in pools.states_of(name, at.asked)
  ]


def _with_noise(
  context: RunContext, items: Sequence[HelpState]
) -> list[HelpState]:
  """Runs each state's program again; leaves out those that do not come back."""
  ideas = make_ideas(context, lambda item: _UNREAD, str)
  feed, found = Feed(), _Ended('collect: noise')
  for item in items:
    feed.push(item.key, item)
  again = Remeasured(ideas, times=context.config.pool.remeasure)
  _drive(context, 'noise', feed, again, 'none', found)
  kept = []
  for item in items:
    present = ideas.scored(item.state)
    scores = found.states.get(item.key)
    if scores is None:
      continue  # its execution was lost
    score = None if present is None else present.score
    noisy = pools.with_noise(item, score, scores)
    if noisy is not None:
      kept.append(noisy)
  if len(kept) < len(items):
    print(
      f'collect: {len(items) - len(kept)} of {len(items)} states are left out: the '
      'score of their program does not come back'
    )
  return kept


def runs_of(context: RunContext, kind: str) -> Runs:
  """Returns the interaction of runs with an Ideator of a kind."""
  options = context.config.implementer
  return Runs(
    max_steps=options.max_steps,
    time_limit_s=options.time_limit_s,
    adviser=roles.adviser(context, kind),
  )


def frozen_of(
  context: RunContext, kind: str, implementer: str = ''
) -> dict[str, FrozenRole]:
  """Returns the roles of runs with an Ideator of a kind.

  implementer: of which kind; '': that of `config.implementer.kind`.
  """
  asks = kind != 'none'
  found = {
    IMPLEMENTER: roles.implementer(context, seek_help=asks, kind=implementer)
  }
  if (answers := roles.ideator(context, kind)) is not None:
    found[IDEATOR] = answers
  return found


class _Ended:
  """Last states of rollouts by name, and the errors of those that were lost."""

  def __init__(self, title: str):
    self.title = title
    self.states: dict[str, Any] = {}
    self._errors: list[str] = []
    self.total = 0

  def take(
    self, prompt: types.Prompt, progress: RolloutState | None, error: str
  ) -> None:
    """Takes a rollout as it ends."""
    if error or progress is None:
      self._errors.append(error)
    else:
      self.states[prompt.prompt_id] = progress.state

  def check(self) -> None:
    """Raises MachineryError once more than a tenth are lost."""
    if len(self._errors) > tolerated(self.total):
      raise MachineryError(
        f'{self.title}: {len(self._errors)} of {self.total} were lost to '
        f'infrastructure errors, the last: {self._errors[-1]}. Fix the cause and '
        'rerun the same command; it resumes the others.'
      )


def _drive(
  context: RunContext,
  name: str,
  feed: Feed,
  interaction: Interaction,
  kind: str,
  found: _Ended,
) -> None:
  found.total = feed.size
  env = environment(context)
  with ProgressBar(found.title, found.total) as bar:

    def deliver(
      prompt: types.Prompt, progress: RolloutState | None, error: str
    ) -> None:
      found.take(prompt, progress, error)
      bar.update()

    rollouts.run(
      context,
      context.work / 'collect' / f'{name}.journal',
      rollouts.RolloutStage(
        f'collect-{name}',
        feed,
        interaction,
        execute=lambda work, job_id: execute(env, work.call.request, job_id),
        deliver=deliver,
        frozen=frozen_of(context, kind),
      ),
      check=found.check,
    )
