"""The critic learns from the collected steps before RL moves the policy.

Every collected step carries a reward, failed ones included, and the states
are those of RL's pool. A critic that starts from nothing explains nothing
for as long as a small run lasts, and its noise is in every advantage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from jaxagent import types
from jaxagent.data import records as record_data
from jaxagent.loops import control
from jaxagent.metrics import MetricWriter, Progress


def run(host, learner, policy, records: Sequence[dict]) -> None:
  """`rl.value_warmup_epochs` passes over the collected steps.

  Nothing is saved: the first checkpoint of RL holds the result, and a run
  that was killed before it makes the same one again.
  """
  config = host.config.rl
  samples = samples_of(records, policy, host.env.store.get)
  batches = list(
    _batches(
      samples, config.batch_size, config.value_warmup_epochs, host.config.seed
    )
  )
  if not batches:
    return
  with (
    MetricWriter(host.work / 'logs' / 'value_warmup', resume_step=0) as writer,
    Progress('value warm-up', len(batches)) as progress,
  ):
    for step, batch in enumerate(batches):
      batch = control.shuffled(batch, config, (host.config.seed, step, 78))
      metrics = learner.value_update(batch, name=f'value warm-up step {step}')
      writer.write(step, metrics)
      progress.update(1, loss=metrics['critic/vf_loss'])
      host.stop.check('the value warm-up starts again')


def samples_of(
  records: Sequence[dict], policy, get: Callable[[str], types.State]
) -> list[types.Sample]:
  """Collected steps that have a reward and could have been sampled.

  get: the state of a key (`data.records.state_of`).
  """
  samples = []
  for record in records:
    for number, step in enumerate(record['steps']):
      if step['reward'] is None:
        continue
      tokens = np.asarray(
        policy.tokenizer.encode_response(step['response']), np.int32
      )
      if len(tokens) > policy.sampling.max_new_tokens:
        continue
      name = f'collect-{record["task"]}-{record["index"]}-{number}'
      samples.append(
        types.Sample(
          prompt_id=name,
          group_id=name,
          prompt_ids=policy.prompt_ids(record_data.state_of(step, get)),
          token_ids=tokens,
          loss_mask=np.ones(len(tokens), bool),
          behaviour_logprobs=np.zeros(len(tokens), np.float32),
          version=0,
          outcome=types.Outcome(step['outcome']),
          reward=step['reward'],
          exec_s=step['exec_s'],
        )
      )
  return samples


def _batches(samples, size: int, epochs: int, seed: int) -> Iterator[list]:
  """Seeded permutations, cut into batches; a short last one is left out."""
  for epoch in range(epochs):
    order = np.random.default_rng([seed, 5, epoch]).permutation(len(samples))
    for start in range(0, len(samples) - size + 1, size):
      yield [samples[i] for i in order[start : start + size]]
