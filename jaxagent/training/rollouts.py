"""Rollouts without a learner, through RL's scheduler: evaluation and collection.

What has finished is journalled: a killed stage resumes each rollout where it was, and
no answer is drawn and no execution carried out a second time.
"""

from __future__ import annotations

import dataclasses
import math
import pathlib
import shutil
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ml_collections import ConfigDict

from jaxagent.clock import RealClock
from jaxagent.data.prompts import Feed
from jaxagent.errors import UserError
from jaxagent.interactions import POLICY, Interaction
from jaxagent.records import UnknownRecord
from jaxagent.rollout.engine import Engine
from jaxagent.rollout.engine_sampler import EngineSampler, RoleSampler
from jaxagent.rollout.journal import Journal, JournalError
from jaxagent.rollout.records import SchedulerConfig
from jaxagent.rollout.requests import (
  ExecutionRequest,
  GenerationRequest,
  Key,
  Sampler,
  Workers,
)
from jaxagent.rollout.result_queue import JournalledQueue
from jaxagent.rollout.scheduler import Scheduler
from jaxagent.rollout.thread_executor import ThreadExecutor
from jaxagent.rollout.thread_sampler import FrozenRole, ThreadSampler
from jaxagent.rollout.tracker import Deliver
from jaxagent.types import Executed, Request

if TYPE_CHECKING:
  from jaxagent.runtime.context import RunContext

MAX_ATTEMPTS = 3  # of one call, before its rollout is missing
# Of rollouts under way: 10,000 of them take 2 to 3 GB (estimated).
MOST_AT_ONCE = 1024
_NO_LIMIT = 1 << 30
PAUSES_S = (0.5, 15.0)  # after an infrastructure error, by attempt


@dataclasses.dataclass(frozen=True)
class PolicyRole:
  """The engine that samples a policy, and its request for a completion."""

  engine: Engine
  request: Callable[[GenerationRequest], Request]


def journal_of(work: pathlib.Path, label: str) -> pathlib.Path:
  """Returns the folder of the journal of the evaluation `label`."""
  return work / 'eval' / f'{label}.journal'


@dataclasses.dataclass(frozen=True)
class RolloutStage:
  """The rollouts of one stage.

  Args:
    name: of the stage; the ids of its jobs begin with it.
    feed: its prompts; a rollout that ends may push more.
    interaction: the calls of a rollout.
    execute: carries out one execution under the id of its job.
    deliver: gets each rollout as it ends.
    frozen: role -> how its answers are drawn.
    policy: engine and request of the policy, where it takes part.
    at_once: rollouts under way at most.
  """

  name: str
  feed: Feed
  interaction: Interaction
  execute: Callable[[ExecutionRequest, str], Executed]
  deliver: Deliver
  frozen: Mapping[str, FrozenRole] = dataclasses.field(default_factory=dict)
  policy: PolicyRole | None = None
  at_once: int = MOST_AT_ONCE


def run(
  context: RunContext,
  folder: pathlib.Path,
  stage: RolloutStage,
  *,
  saved: str = 'finished calls are saved',
  check: Callable[[], None] = lambda: None,
) -> None:
  """Runs the rollouts of a stage until its feed is empty and all have ended.

  Args:
    context: sandbox, stop flag and config.
    folder: of the journal; `forget` removes it once its results are stored.
    stage: what is rolled out.
    saved: what is kept, for the message of an interruption.
    check: called now and then; what it raises ends the stage.

  Raises:
    Interrupted: SIGTERM or Ctrl-C stopped the run.
    UserError: the journal is damaged, or holds a record that is not known.
  """
  journal = Journal(folder)
  scheduler = _scheduler(context, journal, stage)

  def tick() -> None:
    context.stop.check(saved)
    check()

  try:
    with context.stop.telling(scheduler.hold):
      scheduler.resume(None)
      scheduler.run_out(tick)
      tick()  # a stop may have come with the last result
    check()
  except (JournalError, UnknownRecord) as error:
    raise UserError(f'{stage.name}: {folder}: {error}') from error
  finally:
    try:
      scheduler.close()
    finally:
      journal.close()


def _scheduler(
  context: RunContext, journal: Journal, stage: RolloutStage
) -> Scheduler:
  config, name = context.config, stage.name
  inbox = JournalledQueue(journal)
  samplers, limits = _samplers(config, inbox, stage)
  executor = ThreadExecutor(
    inbox,
    lambda work: stage.execute(work, job_id(name, work.key)),
    threads=2 * config.sandbox.slots,
    slots=config.sandbox.slots,
    cancel=lambda key: context.pool.cancel(job_id(name, key)),
    pauses_s=PAUSES_S,
  )
  return Scheduler(
    stage.feed,
    stage.interaction,
    Workers(RoleSampler(samplers), executor, inbox, RealClock()),
    SchedulerConfig(
      batch_size=1,
      max_attempts=MAX_ATTEMPTS,
      max_quarantined=_NO_LIMIT,
      watchdog_s=math.inf,  # executions have time limits of their own
      max_in_flight=stage.at_once,
      roles=tuple(samplers),
      max_concurrency=limits,
      seed=config.seed,
    ),
    journal=journal,
    deliver=stage.deliver,
  )


def _samplers(
  config: ConfigDict,
  inbox: JournalledQueue,
  stage: RolloutStage,
) -> tuple[dict[str, Sampler], dict[str, int | None]]:
  """Returns role -> its sampler, and role -> its answers at once, None for all."""
  samplers: dict[str, Sampler] = {}
  limits: dict[str, int | None] = {}
  for role, one in stage.frozen.items():
    samplers[role] = ThreadSampler(
      inbox, one.draw, max_concurrency=one.max_concurrency
    )
    limits[role] = one.max_concurrency
  if (policy := stage.policy) is not None:
    samplers[POLICY] = EngineSampler(inbox, policy.engine, policy.request)
    limits[POLICY] = config.rollout.max_num_seqs or None
  return samplers, limits


def job_id(name: str, key: Key | str) -> str:
  """Returns the id of an execution's job."""
  return f'{name}-{key}'


def forget(folder: pathlib.Path) -> None:
  """Removes a journal whose results are stored elsewhere."""
  shutil.rmtree(folder, ignore_errors=True)
