"""Warm-up of the critic on the collected steps, before RL moves the policy.

Every collected step has the reward that RL trains on, failed ones included, and
the states are those of RL's pool (step-wise: `StatePool.of`), or of its tasks as its
trajectories reach them (whole trajectories: with the rewards that follow). A critic that starts
from nothing explains nothing for as long as a small run lasts, and its noise is in
every advantage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from jaxagent import types
from jaxagent.data import records as record_data
from jaxagent.metrics import ProgressBar
from jaxagent.recipes.ml_agent import steps
from jaxagent.records import Collected
from jaxagent.training import shuffled_rewards

if TYPE_CHECKING:
  from jaxagent.learner import Learner
  from jaxagent.runtime.context import RunContext
  from jaxagent.training.multi_process import Leader
  from jaxagent.training.policy import PolicySampler


def run(
  context: RunContext,
  learner: Learner | Leader,
  policy: PolicySampler,
  records: Sequence[Collected],
  *,
  horizon: int = 1,
) -> None:
  """Makes `rl.value_warmup_epochs` passes over the collected steps.

  horizon: see `samples_of`.

  Nothing is saved: the first checkpoint of RL holds the result, and a run
  that was killed before it makes the same one again.
  """
  config = context.config.rl
  samples = _samples(context, policy, records, horizon)
  batches = list(
    _batches(
      samples,
      config.batch_size,
      config.value_warmup_epochs,
      context.config.seed,
    )
  )
  if not batches:
    if config.value_warmup_epochs:
      print(
        f'value warm-up: none, {len(samples)} steps do not fill '
        f'config.rl.batch_size={config.batch_size}'
      )
    return
  with (
    context.metric_writer('value_warmup', resume_step=0) as writer,
    ProgressBar('value warm-up', len(batches)) as progress,
  ):
    context.stop.saved = 'the value warm-up will start again'
    for step, batch in enumerate(batches):
      rows = shuffled_rewards.shuffled(
        batch, config, (context.config.seed, step, 78)
      )
      metrics = learner.value_update(rows, name=f'value warm-up step {step}')
      writer.write(step, metrics)
      progress.update(1, loss=metrics['critic/vf_loss'])
      context.stop.check()
  learner.end_value_warmup()


def _samples(
  context: RunContext,
  policy: PolicySampler,
  records: Sequence[Collected],
  horizon: int,
) -> list[types.Sample]:
  """Returns samples of the tasks of RL, with the reward and returns of RL."""
  config = context.config
  own = [r for r in records if r.task in (config.rl.tasks or context.heldin)]
  return samples_of(
    own,
    policy,
    context.env.store.get,
    switches=steps.switches(config),
    horizon=horizon,
  )


def samples_of(
  records: Sequence[Collected],
  policy: PolicySampler,
  get: Callable[[str], types.State],
  *,
  switches: Mapping[str, bool],
  horizon: int = 1,
) -> list[types.Sample]:
  """Returns samples of collected steps that have a reward and fit the policy.

  get: the state of a key (`data.records.state_of`).
  switches: of the reward (`rewards.ml_agent.SWITCHES`).
  horizon: steps of RL's trajectories. 1: every step is one. More: they begin where
    the experts' do, so of those the first `horizon` steps count, each with what the
    rest of these earn, too.
  """
  samples = []
  for record in records:
    taken = record.steps[: horizon if horizon > 1 else None]
    rewards = [step.record.earned(switches) for step in taken]
    for number, (step, reward) in enumerate(zip(taken, rewards)):
      tokens = np.asarray(
        policy.tokenizer.encode_response(step.record.response), np.int32
      )
      if reward is None or len(tokens) > policy.sampling.max_new_tokens:
        continue
      rest = rewards[number + 1 :] if horizon > 1 else ()
      name = f'collect-{record.task}-{record.index}-{number}'
      samples.append(
        types.Sample(
          prompt_id=name,
          group_id=name,
          prompt_ids=policy.prompt_ids(record_data.state_of(step, get)),
          token_ids=tokens,
          loss_mask=np.ones(len(tokens), bool),
          behaviour_logprobs=np.zeros(len(tokens), np.float32),
          version=0,
          outcome=step.record.outcome,
          reward=reward + sum(r for r in rest if r is not None),
          exec_s=step.record.exec_s,
        )
      )
  return samples


def _batches(samples, size: int, epochs: int, seed: int) -> Iterator[list]:
  """Yields seeded permutations, cut into batches; a short last one is left out."""
  for epoch in range(epochs):
    order = np.random.default_rng([seed, 5, epoch]).permutation(len(samples))
    for start in range(0, len(samples) - size + 1, size):
      yield [samples[i] for i in order[start : start + size]]
