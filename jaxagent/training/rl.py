"""START HERE: the loop of RL, the same for every recipe, from top to bottom.

`run` builds the parts and resumes from the last checkpoint and journal; `_Loop._update`
is one update:

1. `Scheduler.next_batch` (`rollout/scheduler.py`) blocks until a batch of rollouts has
   finished. Rollouts follow the recipe (`recipes/`): its prompts, its interaction,
   its executions, its reward.
2. `shuffled_rewards.shuffled` permutes the rewards, in a control run only.
3. `weighting.step_weights` turns durations into weights.
4. `Learner.rl_update` (`learner/learner.py`) computes advantages and steps the optimizers,
   while a `BackgroundPoller` (`rollout/poller.py`) keeps samplers and sandboxes busy.
5. `Engine.update_weights` (`rollout/engine.py`) gets the new weights.
6. `Scheduler.mark_trained` and `traces.write` record what was trained; where they are
   due, `Validator.run` (`training/validation.py`) validates the policy, and then
   `Saver.save` (`training/saving.py`) begins a checkpoint, written beside the next
   update.

Who calls this: `main.py` -> `recipes/run.py` -> `recipes/pipeline.py` -> the stages of
an experiment (`recipes/ml_agent/recipe.py`, `recipes/solutions/recipe.py`), which collect, fine-tune, call
`run` here, and evaluate. docs/architecture.md follows one update through the package,
with file and function at each step; docs/glossary.md has the terms.
"""

from __future__ import annotations

import contextlib
import math
import pathlib
import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from jaxagent import records
from jaxagent.checkpoint import CheckpointManager
from jaxagent.clock import RealClock
from jaxagent.errors import MachineryError, UserError
from jaxagent.interactions import POLICY
from jaxagent.learner import Learner
from jaxagent.metrics import ProgressBar
from jaxagent.rollout import finished_log, rollout_log
from jaxagent.rollout.engine_sampler import EngineSampler, RoleSampler
from jaxagent.rollout.finished_log import FinishedLog
from jaxagent.rollout.journal import Journal, JournalError
from jaxagent.rollout.poller import BackgroundPoller
from jaxagent.rollout.records import SchedulerConfig, StalledError
from jaxagent.rollout.requests import Workers
from jaxagent.rollout.result_queue import JournalledQueue
from jaxagent.rollout.rollout_log import RolloutLog
from jaxagent.rollout.scheduler import Scheduler
from jaxagent.rollout.thread_executor import ThreadExecutor
from jaxagent.rollout.thread_sampler import ThreadSampler
from jaxagent.training import (
  multi_process,
  shuffled_rewards,
  traces,
  validation,
  weighting,
)
from jaxagent.training.policy import PolicySampler
from jaxagent.training.saving import Saver
from jaxagent.training.workflow import RolloutWorkflow

if TYPE_CHECKING:
  from jaxagent.runtime.context import RunContext
  from jaxagent.training.multi_process import Leader


def run(
  context: RunContext,
  workflow: RolloutWorkflow,
  learner: Learner | Leader,
  policy: PolicySampler,
) -> None:
  """Trains until `rl.updates`; resumes from the last checkpoint.

  Args:
    context: tasks, sandbox, environment.
    workflow: prompts, rollouts and executions of the recipe.
    learner: holds policy, value model and reference.
    policy: samples with the learner's parameters.

  Raises UserError where the recipe's record cannot be kept, where validations are
  wanted that it has no prompts for, or where the run holds records of a kind or
  version that is not known.
  """
  _register(workflow)
  config, validator = (
    context.config.rl,
    validation.make(context, workflow, policy),
  )
  directory = context.work / 'rl'
  checkpoints = CheckpointManager(
    directory / 'checkpoints', keep=config.keep_checkpoints
  )
  journal = Journal(directory / 'journal')
  inbox = JournalledQueue(journal)
  sampler = RoleSampler(
    {
      POLICY: EngineSampler(inbox, policy.engine, workflow.request),
      **{
        role: ThreadSampler(
          inbox, one.draw, max_concurrency=one.max_concurrency
        )
        for role, one in workflow.frozen_roles.items()
      },
    }
  )
  finished = FinishedLog(
    context.work / finished_log.LOG, policy.tokenizer.decode
  )
  log = RolloutLog(context.work / rollout_log.LOG, RealClock(), finished)
  scheduler = _scheduler(context, workflow, sampler, inbox, journal, log)
  try:
    with _errors_named(directory), context.stop.telling(scheduler.hold):
      start, counts = _resume(
        checkpoints, journal, learner, scheduler, workflow.name
      )
      policy.engine.update_weights(learner.policy_params, start)
      saver = Saver(
        checkpoints,
        journal,
        learner,
        scheduler,
        counts,
        workflow.name,
        context.stop,
      )
      with contextlib.closing(saver):
        _Loop(
          context, workflow, learner, policy, scheduler, saver, validator
        ).run(start)
      # The ledger beside the checkpoint is for people and for audits.
      scheduler.ledger.save(directory / 'ledger.json')
  finally:
    scheduler.close()
    log.close()
    journal.close()


@contextlib.contextmanager
def _errors_named(directory: pathlib.Path) -> Iterator[None]:
  """Turns errors of scheduler and journal into those that end a run by name."""
  try:
    yield
  except StalledError as error:
    raise MachineryError(
      f'rl: {error} Fix the cause and rerun the same command; it resumes from the '
      f'last checkpoint in {directory}.'
    ) from error
  except records.UnknownRecord as error:
    raise UserError(
      f'rl: {directory}: {error}; or give --work_dir=NEW.'
    ) from error
  except JournalError as error:
    raise UserError(
      f'rl: {error} It is kept in {directory / "journal"}.'
    ) from error


def _register(workflow: RolloutWorkflow) -> None:
  kind = getattr(workflow, 'record_type', None)
  if kind is None:
    raise UserError(
      f'recipe {workflow.name!r} lacks record_type: the class of its records.'
    )
  try:
    records.register(kind)
  except ValueError as error:
    raise UserError(f'recipe {workflow.name!r}: {error}') from error


class _Loop:
  """The updates of a run: collect, update, hand the weights over, validate, save."""

  def __init__(
    self,
    context: RunContext,
    workflow: RolloutWorkflow,
    learner: Learner | Leader,
    policy: PolicySampler,
    scheduler: Scheduler,
    saver: Saver,
    validator: validation.Validator | None = None,
  ):
    self._context, self._workflow = context, workflow
    self._learner, self._policy = learner, policy
    self._scheduler, self._saver = scheduler, saver
    self._validator = validator
    # Seconds that the last update waited for checkpoints; updates that are saved, or
    # being saved.
    self._waited_s, self._begun = 0.0, 0

  def run(self, start: int) -> None:
    config = self._context.config.rl
    self._begun = start
    self._saver.note(start)
    with (
      self._context.metric_writer(resume_step=start) as writer,
      ProgressBar('rl', config.updates, initial=start) as progress,
    ):
      ended = time.monotonic()
      for update in range(start, config.updates):
        metrics = self._update(update)
        metrics |= self._validate(update + 1)
        # Before the checkpoint: a kill between the two repeats the record with
        # the update; the other way round it would be lost.
        metrics['timing_s/step'] = time.monotonic() - ended
        ended = time.monotonic()
        writer.write(update, metrics)
        self._save(update, metrics.get(validation.REWARD))
        names = {
          'reward': 'critic/score/mean',
          'kl': 'actor/kl_loss',  # not there without a reference
          'exec_s': 'duration/trained/mean',
        }
        progress.update(
          1,
          **{k: metrics[name] for k, name in names.items() if name in metrics},
        )
      self._saver.finish()

  def _update(self, update: int) -> dict[str, float]:
    """Runs one update; returns its metrics."""
    config, seed = self._context.config.rl, self._context.config.seed
    began = time.monotonic()
    batch = self._scheduler.next_batch(update, lambda: self._tick(update))
    collected = time.monotonic()
    samples = shuffled_rewards.shuffled(
      batch.samples, config, (seed, update, 77)
    )
    weights, weight_stats = weighting.step_weights(
      config, samples, batch.sojourns
    )
    with BackgroundPoller(self._scheduler, update):  # slots stay busy meanwhile
      metrics = self._learner.rl_update(samples, weights, update)
    updated = time.monotonic()
    params = self._learner.policy_params
    self._policy.engine.update_weights(params, update + 1)
    metrics['timing_s/update_weights'] = time.monotonic() - updated
    self._scheduler.mark_trained(batch.prompt_ids, update)
    self._saver.counts.update(
      t.outcome.value for s in samples for t in s.steps()
    )
    traces.write(self._context.work / 'rl' / 'traces', update, batch.samples)
    metrics.update(batch.stats)
    metrics.update(weight_stats)
    metrics.update(traces.metrics(samples, update))
    metrics.update(self._workflow.trained(batch.samples))
    metrics['timing_s/gen'] = collected - began
    metrics['timing_s/save_checkpoint'] = self._waited_s
    metrics['timing_s/write_checkpoint'] = self._saver.write_s
    metrics['training/global_step'] = update + 1
    return metrics

  def _validate(self, step: int) -> dict[str, float]:
    """Validates the policy if it is due after `step` updates; returns the metrics."""
    if self._validator is None or not self._validator.is_due(step):
      return {}
    if step == self._context.config.rl.updates:
      return self._validator.run(step)
    with BackgroundPoller(
      self._scheduler, step
    ):  # rollouts of the next updates go on
      return self._validator.run(step)

  def _save(self, update: int, reward: float | None = None) -> None:
    """Begins a checkpoint if one is due, after the last update, or before a stop.

    reward: of the validation after the update; None where there was none.
    """
    stop, config = self._context.stop, self._context.config.rl
    stop.raise_error()
    score = reward if config.keep_best else None
    # What is evaluated and exported is what the last update left, or the best.
    kept = update + 1 == config.updates or score is not None
    due = kept or (update + 1) % config.checkpoint_every == 0
    began = time.monotonic()
    if due or stop.asked:
      self._begin(update + 1, score)
    if self._begun == update + 1:
      if stop.asked:
        self._saver.finish()
      stop.check()
    self._waited_s = time.monotonic() - began if due else 0.0

  def _tick(self, update: int) -> None:
    """Ends the run, if it is to stop, where a batch is waited for."""
    self._context.stop.raise_error()
    if self._context.stop.asked:
      if self._begun < update:
        self._begin(update, None)
      self._saver.finish()
      self._context.stop.check()

  def _begin(self, updates: int, score: float | None) -> None:
    self._saver.save(updates, score)
    self._begun = updates


def _resume(
  checkpoints: CheckpointManager,
  journal: Journal,
  learner: Learner | Leader,
  scheduler: Scheduler,
  recipe: str,
) -> tuple[int, Counter]:
  def check(restored: Any) -> None:
    made = restored.host.get('recipe', recipe)
    if made != recipe:
      raise UserError(
        f'{checkpoints.directory} was created by the {made} recipe, not by {recipe}: '
        'give another --work_dir. Copies of its tasks, collect, tokenizer and sft folders, of '
        'snapshots.sqlite and of eval/starts.json can be used there.'
      )
    # The best checkpoint outlives the journal that would continue it.
    if journal.is_cut(restored.host['scheduler']['segment']):
      raise UserError(
        f'{checkpoints.path(restored.step)} cannot be continued: its part of '
        f'{journal.directory} is gone, as are the checkpoints after it '
        f'({"; ".join(restored.skipped) or "removed"}). Evaluate it with '
        '--config.stage=evaluate, or train in another --work_dir.'
      )

  restored = multi_process.restore(learner, checkpoints, check)
  if restored is None:
    scheduler.resume(None)
    return 0, Counter()
  learner.load_host_state(restored.host['learner'])
  scheduler.resume(restored.host['scheduler'])
  if not restored.skipped:  # else it is none of the last ones
    # A process may have been killed between a checkpoint and the removal.
    checkpoints.remove_old()
  return restored.step, Counter(restored.host['outcomes'])


def _scheduler(
  context: RunContext,
  workflow: RolloutWorkflow,
  sampler: RoleSampler,
  inbox: JournalledQueue,
  journal: Journal,
  log: RolloutLog,
) -> Scheduler:
  config, seed = context.config.rl, context.config.seed
  synchronous = config.rest == 'wait'
  # As many again prepare a work or read its result.
  threads = 2 * context.config.sandbox.slots
  # In synchronous mode a batch is one wave: it must fit.
  capacity = max(
    math.ceil(config.oversample * config.batch_size), config.batch_size
  )
  executor = ThreadExecutor(
    inbox,
    workflow.execute,
    threads=threads,
    slots=context.config.sandbox.slots,
    lookahead=max(0, capacity - threads),
    cancel=context.pool.cancel,
  )
  return Scheduler(
    workflow.source(),
    workflow,
    Workers(sampler, executor, inbox, RealClock()),
    SchedulerConfig(
      batch_size=config.batch_size,
      oversample=1.0 if synchronous else config.oversample,
      rest=config.rest,
      max_staleness=None if config.max_staleness < 0 else config.max_staleness,
      on_stale=config.on_stale,
      lease_s=config.lease_s,
      watchdog_s=config.watchdog_s,
      group_size=config.group_size,
      # Few, larger generation calls: each has a fixed cost.
      refill=max(1, capacity // 4),
      max_decoding=context.config.rollout.max_num_seqs or None,
      max_in_flight=config.max_concurrent_rollouts or None,
      roles=(POLICY, *workflow.frozen_roles),
      max_concurrency={
        role: one.max_concurrency for role, one in workflow.frozen_roles.items()
      },
      seed=seed,
    ),
    journal=journal,
    log=log,
  )
