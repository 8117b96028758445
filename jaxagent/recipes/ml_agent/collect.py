"""Expert trajectories (paper 000, 4.1 and B.2): diverse ideas, real steps."""

from __future__ import annotations

import dataclasses
import pathlib
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from jaxagent import audit, types
from jaxagent.config import endpoints
from jaxagent.data import ideas as idea_data
from jaxagent.data import records as record_data
from jaxagent.data.prompts import Feed
from jaxagent.envs.interfaces import TextModelError
from jaxagent.errors import MachineryError, UserError, in_one_line, tolerated
from jaxagent.interactions import RolloutState
from jaxagent.metrics import ProgressBar
from jaxagent.recipes.evaluation import taken_step
from jaxagent.recipes.ml_agent import answers, steps
from jaxagent.recipes.ml_agent.demonstration import (
  EXPERT,
  Assignment,
  Demonstrations,
  steps_of,
)
from jaxagent.recipes.ml_agent.trajectory import Action
from jaxagent.recipes.starts import Start, write_json
from jaxagent.records import Collected
from jaxagent.rollout.requests import GenerationRequest
from jaxagent.rollout.thread_sampler import FrozenRole
from jaxagent.runtime import kept, text_models
from jaxagent.training import rollouts
from jaxagent.training.policy import seed_of
from jaxagent.types import Outcome

if TYPE_CHECKING:
  from jaxagent.runtime.context import RunContext


def run(context: RunContext, starts: Mapping[str, Start]) -> list[Collected]:
  """Makes the trajectories that are missing; returns all, in order.

  Each trajectory depends on (seed, task, index) alone and is stored as it ends; a
  killed run resumes those under way, none lost, none doubled. Those that an
  infrastructure error cut short are kept at the end, with the steps they have.
  Raises MachineryError as soon as they are more than a tenth.
  """
  config = context.config.collect
  folder = context.work / 'collect' / 'journal'
  store = record_data.TrajectoryStore(
    context.work / 'collect' / 'trajectories.jsonl'
  )
  kept.mend_lines(store.path, Collected.from_json)
  have = {(r.task, r.index) for r in _whole(context, store)}
  todo = [
    (task, index)
    for index in range(config.trajectories_per_task)
    for task in context.heldin
    if (task, index) not in have
  ]
  total = config.trajectories_per_task * len(context.heldin)
  if todo:
    _make(context, starts, todo, total, store, folder)
  rollouts.forget(folder)
  records = _read(store)
  _tell_invalid(context, records, store.path)
  return sorted(records, key=lambda r: (r.task, r.index))


def _make(
  context: RunContext,
  starts: Mapping[str, Start],
  todo: Sequence[tuple[str, int]],
  total: int,
  store: record_data.TrajectoryStore,
  folder: pathlib.Path,
) -> None:
  """Makes the trajectories of `todo`, (task, index), and stores each."""
  config, feed = context.config.collect, _feed(context, starts, todo)
  began = time.monotonic()
  cut: list[Collected] = []
  rewards: list[float] = []
  with ProgressBar('collect', total, initial=total - len(todo)) as bar:

    def deliver(
      prompt: types.Prompt, progress: RolloutState | None, error: str
    ) -> None:
      record = _record(context, prompt.payload, progress, error)
      rewards.extend(_rewards(context, record))
      if rewards:
        bar.update(reward=statistics.fmean(rewards))
      else:
        bar.update()
      if not error:
        _keep(store, record)
        return
      cut.append(record)

    rollouts.run(
      context,
      folder,
      rollouts.RolloutStage(
        'collect',
        feed,
        Demonstrations(
          max_steps=config.max_steps,
          time_limit_s=config.time_limit_s,
          ideas_in_prompt=context.config.rollout.prompt_style == 'full',
        ),
        execute=lambda work, job_id: _execute(
          context, work.call.request, job_id
        ),
        deliver=deliver,
        frozen={EXPERT: _expert(context)},
        at_once=_at_once(context),
      ),
      saved=f'complete trajectories are kept in {store.path}',
      check=lambda: _check_cut(cut, total, store.path),
    )
  _tell_rate(len(todo), time.monotonic() - began)
  if cut:
    print(f'collect: {_of_cut(cut, total)}')
  for record in cut:
    _keep(store, record)


def _feed(
  context: RunContext,
  starts: Mapping[str, Start],
  todo: Sequence[tuple[str, int]],
) -> Feed:
  """Returns the assignments of `todo`, with ideas of each task's pool."""
  embed = text_models.make_embedder(context.config, context.work)
  pools = {
    task: _ideas(context, starts[task].state, embed)
    for task in dict.fromkeys(task for task, _ in todo)
  }
  feed = Feed()
  for task, index in todo:
    one = _assignment(context, starts[task].state, index, pools[task])
    feed.push(one.name, one)
  return feed


def _rewards(context: RunContext, record: Collected) -> list[float]:
  """Returns what the steps of a trajectory would earn in RL; failed graders nothing."""
  switches = steps.switches(context.config)
  earned = (step.record.earned(switches) for step in record.steps)
  return [reward for reward in earned if reward is not None]


def _at_once(context: RunContext) -> int:
  """Returns how many trajectories are under way: enough for sandboxes and model."""
  executing = 2 * context.config.sandbox.slots
  if context.expert.is_stand_in:
    return executing
  return executing + endpoints.max_concurrency(context.config, EXPERT)


def _keep(store: record_data.TrajectoryStore, record: Collected) -> None:
  value = record.to_json()
  (sealed,) = audit.seal([value], audit.name_of(value))
  store.append(sealed)


def _read(store: record_data.TrajectoryStore) -> list[Collected]:
  return [Collected.from_json(value) for value in store.read()]


def _whole(
  context: RunContext, store: record_data.TrajectoryStore
) -> list[Collected]:
  """Returns the records; raises UserError where the states of some are gone."""
  records = _read(store)
  keys = {step.state for r in records for step in r.steps
          if isinstance(step.state, str)}  # fmt: skip
  if missing := context.env.store.missing(keys):
    raise UserError(
      f'{store.path}: {len(missing)} of the {len(keys)} states of its steps are not '
      f'in {context.work / "snapshots.sqlite"}. Put that file back, or remove '
      f'{store.path.name}: its trajectories are then made again.'
    )
  return records


def _tell_rate(made: int, seconds: float) -> None:
  if made:
    print(
      f'collect: {made} trajectories in {seconds:.0f} s, '
      f'{3600 * made / seconds:.0f} an hour'
    )


def _check_cut(
  cut: Sequence[Collected], total: int, path: pathlib.Path
) -> None:
  if len(cut) > tolerated(total):
    raise MachineryError(
      f'collect: {_of_cut(cut, total)}. Fix the cause and rerun the same command; it '
      f'resumes these and keeps the complete ones in {path}.'
    )


def _of_cut(cut: Sequence[Collected], total: int) -> str:
  reasons = Counter(record.fault for record in cut)
  return (
    f'{len(cut)} of {total} trajectories were cut short by infrastructure '
    f'errors, most often: {reasons.most_common(1)[0][0]}'
  )


def _tell_invalid(
  context: RunContext, records: list[Collected], path: pathlib.Path
) -> None:
  """Prints how many steps of a model were no valid action.

  Raises UserError where all of them were: there is nothing to learn from.
  """
  steps_made = [step.record for record in records for step in record.steps]
  invalid = [
    s
    for s in steps_made
    if s.outcome in (Outcome.INVALID_FORMAT, Outcome.INVALID_ACTION)
  ]
  if not invalid or context.expert.is_stand_in:
    return
  kinds = Counter(step.outcome.value for step in invalid)
  example = next(s for s in invalid if s.outcome == kinds.most_common(1)[0][0])
  what = (
    f'{" and ".join(f"{n} {kind}" for kind, n in kinds.most_common())} of '
    f'{len(steps_made)} steps of {context.expert.name}, such as '
    f'{_shown(example.response)}: {_shown(example.observation)}'
  )
  if len(invalid) < len(steps_made):
    print(f'collect: {what}')
    return
  raise UserError(
    f'collect: {what}. There is nothing to learn from: take another model with '
    '--config.expert.model, more room with --config.expert.max_tokens, or a parser '
    f'that takes more with --config.env.parse_mode=compatible, and remove {path} or '
    'give --work_dir=NEW.'
  )


def _shown(text: str, most: int = 160) -> str:
  text = ' '.join(text.split())
  return repr(text if len(text) <= most else text[:most] + ' ...')


def _ideas(
  context: RunContext,
  initial: types.State,
  embed: Callable[[Sequence[str]], np.ndarray],
) -> list[str]:
  """Returns the most diverse ideas of the task's pool."""
  config, task = context.config.collect, initial.task
  pool = _pool(context, initial)
  if len(pool) < config.idea_pool:
    raise UserError(
      f'{task}: {len(pool)} ideas; config.collect.idea_pool asks for at '
      f'least {config.idea_pool}; lower it.'
    )
  try:
    return idea_data.select_diverse(pool, k=config.ideas_kept, embed=embed)
  except TextModelError as error:
    raise UserError(
      f'config.embeddings: {error} Fix that, or set '
      'config.embeddings.kind=tfidf.'
    ) from error


def _pool(context: RunContext, initial: types.State) -> list[str]:
  """Returns ideas of the expert's model (paper 000, table 7), or scripted ones.

  A model's are kept in `collect/ideas/TASK.json`: it is asked once.
  """
  spec, wanted = context.spec(initial.task), context.config.collect.idea_pool
  if context.config.expert.kind == 'scripted':
    return idea_data.idea_pool(spec)
  path = context.work / 'collect' / 'ideas' / f'{spec.name}.json'
  pool = kept.kept_json(path, kept.texts)
  if pool is not None and len(pool) >= wanted:
    return pool
  try:
    pool = idea_data.model_idea_pool(
      context.expert.client,
      spec,
      str(initial.files[initial.script]),
      n=wanted,
      max_calls=max(12, wanted // 8),
      max_tokens=max(idea_data.MAX_TOKENS, context.config.expert.max_tokens),
    )
  except TextModelError as error:
    raise UserError(
      f'task {spec.name}: no pool of ideas from config.expert: {error} Lower '
      f'config.collect.idea_pool={wanted}, or take another model.'
    ) from error
  write_json(path, pool)
  return pool


def _assignment(
  context: RunContext, initial: types.State, index: int, pool: Sequence[str]
) -> Assignment:
  """Returns a trajectory's assignment: 1 to 3 ideas, and how it starts."""
  rng = random.Random(
    seed_of(context.config.seed, 'collect', initial.task, index)
  )
  ideas = tuple(idea_data.draw(pool, rng))
  varied = rng.random() < context.config.collect.varied_start
  return Assignment(initial, index, ideas, varied, rng.getstate())


def _expert(context: RunContext) -> FrozenRole:
  def draw(ask: GenerationRequest) -> types.TextCompletion:
    asked, rng = ask.call.prompt, random.Random()
    rng.setstate(asked.rng_state)
    spec = context.spec(asked.state.task)
    answer = answers.asked(context.expert, asked.state, spec, rng, asked.ideas)
    return dataclasses.replace(answer, rng_state=rng.getstate())

  return FrozenRole(draw, endpoints.max_concurrency(context.config, EXPERT))


def _execute(
  context: RunContext, action: Action, job_id: str
) -> types.Executed:
  """Carries out one step; its states are on disk before its record."""
  state = action.state
  executed = steps.execute(
    context, state, action.response, job_id=job_id, most_s=action.left_s
  )
  if executed.outcome.is_infrastructure:
    return executed
  store = context.env.store
  found = {
    'state': store.put(state),
    'workspace_id': store.put(executed.state or state),
    **action.completion.cost,
  }
  return dataclasses.replace(executed, kept=found)


def _record(
  context: RunContext,
  assignment: Assignment,
  progress: RolloutState | None,
  error: str,
) -> Collected:
  """Returns the record of a trajectory; `fault`: what cut it short, or ''."""
  done = [] if progress is None else steps_of(progress)
  return Collected(
    task=assignment.initial.task,
    index=assignment.index,
    ideas=assignment.ideas,
    stand_ins=tuple(context.stand_ins),
    steps=tuple(map(taken_step, done)),
    fault=in_one_line(error),
  )
