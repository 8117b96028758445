"""Step-wise RL on the state pool: one update after another, resumable.

Paper 000, section 4.2: states come from a fixed pool of expert states, one
action is sampled for each, executed, rewarded, learned from. The scheduler
overlaps the three; the ledger says what became of every prompt.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import time
from collections import Counter

import numpy as np

from jaxagent import audit, behaviour, types
from jaxagent.checkpoint import CheckpointManager
from jaxagent.clock import RealClock
from jaxagent.data.ledger import Ledger
from jaxagent.data.prompts import PromptSource
from jaxagent.envs import label_sources
from jaxagent.loops import control, weighting
from jaxagent.loops.errors import MachineryError
from jaxagent.loops.policy import Policy, seed_of
from jaxagent.metrics import MetricWriter, Progress
from jaxagent.rewards.ml_agent import ml_agent_reward
from jaxagent.rollout.records import (
  SchedulerConfig,
  StalledError,
  Work,
  WorkResult,
)
from jaxagent.rollout.scheduler import Scheduler
from jaxagent.rollout.thread_executor import ThreadExecutor


def run(host, pool, learner, policy: Policy) -> None:
  """Trains until `rl.updates`; goes on from the last checkpoint.

  Args:
    host: tasks, sandbox, environment.
    pool: state id -> State, the training states.
    learner: holds policy, value model and reference.
    policy: samples with the learner's parameters.
  """
  config = host.config.rl
  directory = host.work / 'rl'
  checkpoints = CheckpointManager(
    directory / 'checkpoints', keep=config.keep_checkpoints
  )
  scheduler = _scheduler(host, pool, policy)
  try:
    start, counts = _resume(checkpoints, learner, scheduler)
    # The ledger beside the checkpoint is for people and for audits.
    policy.engine.update_weights(learner.policy_params, start)
    _loop(host, learner, policy, scheduler, checkpoints, start, counts)
    scheduler.ledger.save(directory / 'ledger.json')
  except StalledError as error:
    raise MachineryError(
      f'rl: {error} Once that is mended, the same command goes on from the '
      f'last checkpoint in {directory}.'
    ) from error
  finally:
    scheduler.close()


def _loop(host, learner, policy, scheduler, checkpoints, start, counts):
  config = host.config.rl
  with (
    MetricWriter(host.work / 'logs', resume_step=start) as writer,
    Progress('rl', config.updates, initial=start) as progress,
  ):
    saved_s, ended = 0.0, time.monotonic()
    for update in range(start, config.updates):
      began = time.monotonic()
      batch = scheduler.next_batch(update)
      collected = time.monotonic()
      samples = control.shuffled(
        batch.samples, config, (host.config.seed, update, 77)
      )
      weights, weight_stats = weighting.step_weights(config, samples)
      scheduler.fill(update)  # slots stay busy while the learner works
      metrics = learner.rl_update(samples, weights, update)
      policy.engine.update_weights(learner.policy_params, update + 1)
      scheduler.mark_trained(batch.prompt_ids, update)
      trained = time.monotonic()
      counts.update(s.outcome.value for s in samples)
      write_traces(host.work / 'rl' / 'traces', update, batch.samples)
      metrics.update(batch.stats)
      metrics.update(weight_stats)
      metrics.update(sandbox_metrics(samples, update))
      metrics['timing_s/gen'] = collected - began
      metrics['timing_s/update_actor'] = trained - collected
      metrics['timing_s/save_checkpoint'] = saved_s
      metrics['timing_s/step'] = time.monotonic() - ended
      metrics['training/global_step'] = update + 1
      # Before the checkpoint: a kill between the two repeats the record with
      # the update; the other way round it would be lost.
      ended = time.monotonic()
      writer.write(update, metrics)
      if (update + 1) % config.checkpoint_every == 0:
        save(checkpoints, update + 1, learner, scheduler, counts)
        saved_s = time.monotonic() - ended
      else:
        saved_s = 0.0
      progress.update(
        1,
        reward=metrics['critic/score/mean'],
        kl=metrics.get('actor/kl_loss', float('nan')),
        exec_s=metrics['duration/trained/mean'],
      )
      if host.stop.signal is not None:
        if (update + 1) % config.checkpoint_every:
          save(checkpoints, update + 1, learner, scheduler, counts)
        host.stop.check(f'update {update + 1} is saved')


def save(checkpoints, step, learner, scheduler, counts) -> None:
  """One atomic checkpoint of everything that changes."""
  checkpoints.save(
    step,
    learner.state(),
    {
      'scheduler': scheduler.state_dict(),
      'learner': learner.host_state(),
      'outcomes': dict(counts),
    },
  )


def _resume(checkpoints, learner, scheduler) -> tuple[int, Counter]:
  restored = checkpoints.restore_latest(learner.state())
  if restored is None:
    return 0, Counter()
  learner.load_state(restored.arrays)
  learner.load_host_state(restored.host['learner'])
  scheduler.load_state_dict(restored.host['scheduler'])
  return restored.step, Counter(restored.host['outcomes'])


def _scheduler(host, pool, policy: Policy) -> Scheduler:
  config, seed = host.config.rl, host.config.seed
  synchronous = config.rest == 'wait'
  sampler = _Sampler(policy, seed)
  runner = Runner(host, policy)
  # In synchronous mode a batch is one wave: it must fit.
  threads = 2 * host.config.sandbox.slots
  capacity = max(
    int(np.ceil(config.oversample * config.batch_size)), config.batch_size
  )
  executor = ThreadExecutor(
    runner,
    threads=threads,
    lookahead=max(0, capacity - threads),
    cancel=host.pool.cancel,
  )
  source = PromptSource(pool, group_size=config.group_size, seed=seed)
  return Scheduler(
    source,
    sampler,
    executor,
    Ledger(),
    RealClock(),
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
    ),
    seed=seed,
  )


@dataclasses.dataclass
class _Sampler:
  policy: Policy
  seed: int

  def __call__(self, prompts, version):
    del version  # the engine stamps its own
    return self.policy.sample(
      [p.payload for p in prompts],
      [p.prompt_id for p in prompts],
      [seed_of(self.seed, 'rl', p.prompt_id) for p in prompts],
    )


@dataclasses.dataclass
class Runner:
  """Work -> execution -> reward -> Sample. Called from many threads."""

  host: object
  policy: Policy

  def __call__(self, work: Work) -> WorkResult:
    state: types.State = work.prompt.payload
    text = self.policy.text(work.completion)
    result = self.host.env.step(
      state, text, split='valid', job_id=work.prompt.prompt_id
    )
    reward = step_reward(self.host, state.task, result)
    n = len(work.completion.token_ids)
    sample = types.Sample(
      prompt_id=work.prompt.prompt_id,
      group_id=work.prompt.group_id,
      prompt_ids=np.asarray(work.completion.prompt_ids, np.int32),
      token_ids=np.asarray(work.completion.token_ids, np.int32),
      loss_mask=np.ones(n, bool),
      behaviour_logprobs=np.asarray(work.completion.logprobs, np.float32),
      version=work.completion.version,
      outcome=result.outcome,
      reward=reward,
      exec_s=result.exec_s,
      info={
        **trace_record(self.host, state, text, result),
        'finish_reason': work.completion.finish_reason,
      },
    )
    return WorkResult(
      work.prompt.prompt_id,
      None if reward is None else sample,
      result.outcome,
      error=result.message,
      finished_at=time.monotonic(),
      attempt=work.attempt,
    )


def step_reward(host, task: str, result) -> float | None:
  """Equation 6 of paper 000 for one environment step."""
  options = host.config.reward
  return ml_agent_reward(
    result.outcome,
    valid_action=result.valid_action,
    is_edit=result.is_edit,
    score_before=result.score_before,
    score_after=result.score,
    alpha=host.spec(task).alpha,
    binary=options.binary,
    format_term=options.format_term,
    corner_term=options.corner_term,
  )


def trace_record(host, state: types.State, text: str, result) -> dict:
  """What the report and the audit need of one step; JSON-able."""
  execution = result.execution
  return {
    'task': state.task,
    'state_id': state.state_id,
    'step': state.step,
    'response': text,
    'action': result.action,
    'valid_action': result.valid_action,
    'is_edit': result.is_edit,
    'score_before': result.score_before,
    'score_after': result.score,
    'alpha': host.spec(state.task).alpha,
    'diff': result.diff,
    'observation': result.observation,
    'tier': execution.tier if execution else None,
    'untrusted': label_sources.untrusted(
      host.spec(state.task), execution.tier if execution else None
    ),
    'queue_s': execution.queue_s if execution else 0.0,
    'startup_s': execution.startup_s if execution else 0.0,
    'cpu_s': execution.cpu_s if execution else 0.0,
  }


def write_traces(directory: pathlib.Path, update: int, samples) -> None:
  """One file an update, replaced atomically, so a resume cannot double it."""
  directory.mkdir(parents=True, exist_ok=True)
  path = directory / f'update_{update:06d}.jsonl'
  temporary = path.with_suffix('.tmp')
  records = (_sample_record(sample, update) for sample in samples)
  with temporary.open('w', encoding='utf-8') as file:
    for record in audit.seal(records, path.stem):
      file.write(json.dumps(record) + '\n')
  os.replace(temporary, path)


def _sample_record(sample: types.Sample, update: int) -> dict:
  """The trace record of a trained step."""
  return {
    'prompt_id': sample.prompt_id,
    'update': update,
    'version': sample.version,
    'outcome': sample.outcome.value,
    'reward': sample.reward,
    'exec_s': sample.exec_s,
    'tokens': len(sample.token_ids),
    **sample.info,
  }


def sandbox_metrics(samples, update: int) -> dict[str, float]:
  """Outcomes, the sandbox's own times and behaviour, for one batch."""
  n = max(1, len(samples))
  counts = Counter(s.outcome.value for s in samples)
  metrics = {f'sandbox/outcome/{k}': v / n for k, v in counts.items()}
  ran = [s.info for s in samples if s.info.get('tier')]
  if ran:
    for name in ('queue_s', 'startup_s', 'cpu_s'):
      metrics[f'sandbox/{name}'] = float(np.mean([i[name] for i in ran]))
  figures = behaviour.figures([_sample_record(s, update) for s in samples])
  for name in (*behaviour.RATES, 'exec_s'):
    if figures[name] is not None:
      metrics[f'sandbox/{name}'] = figures[name]
  return metrics
