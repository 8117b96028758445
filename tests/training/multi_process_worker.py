"""A learner's calls, by as many processes as there are; prints its figures as JSON."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import sys

import jax
import numpy as np

from jaxagent.checkpoint import CheckpointManager
from jaxagent.data.batching import pack_conversations
from jaxagent.devices import sharding
from jaxagent.training import multi_process
from tests.learner.conftest import make_samples
from tests.learner.mesh_worker import MODEL, LearnerConfig

CONFIG = LearnerConfig(
  kl_coef=0.05,
  row_tokens=(64,),
  micro_batch_tokens=512,
  policy_lr=1e-2,
  value_lr=1e-5,
  ppo_epochs=1,
  entropy_metric=False,
  sft_lr=1e-2,
  warmup_steps=0,
)
PLAN = multi_process.Plan(
  MODEL, CONFIG, mesh={'data': 2, 'fsdp': 2}, seed=1, pad_id=0
)
FOLDER = 'model'  # beside the work folder: a policy and critic to load


def _total(params) -> float:
  """Of a policy as an engine is given it: on this process's own devices."""
  leaves = jax.tree.leaves(params)
  assert all(leaf.is_fully_addressable for leaf in leaves)
  return float(sum(np.abs(np.asarray(leaf)).sum() for leaf in leaves))


def _figures(folder: pathlib.Path) -> dict[str, float]:
  files = str(folder.parent / FOLDER)
  learner = multi_process.make_learner(
    dataclasses.replace(PLAN, path=files, critic_path=files)
  )
  manager = CheckpointManager(folder)
  assert multi_process.restore(learner, manager) is None
  found = {'fresh': _total(learner.policy_params)}
  learner.start_sft(total_steps=2)
  tokens, mask = np.arange(40, dtype=np.int32), np.arange(40) > 20
  rows = sharding.rows_multiple(learner.mesh)
  batches = pack_conversations(
    [(tokens, mask)] * 8, row_tokens_buckets=(64,), rows_multiple=rows
  )
  found |= learner.sft_step(batches)
  learner.start_rl()
  samples = make_samples(24)
  found |= learner.value_update(samples)
  learner.end_value_warmup()
  found['taught'] = _total(learner.policy_params)
  multi_process.save(learner, manager, 3, {'learner': learner.host_state()})
  found |= learner.rl_update(samples)
  found['moved'] = _total(learner.policy_params)
  restored = multi_process.restore(learner, manager)
  learner.load_host_state(restored.host['learner'])
  found['again'] = _total(learner.policy_params)
  found['logprobs'] = float(learner.logprobs(samples).sum())
  machine = ('timing', 'perf', 'learner/compiles')
  return {k: v for k, v in found.items() if not k.startswith(machine)}


def main() -> None:
  index, _ = sharding.initialize_distributed()
  if index:
    multi_process.follow()
    print('followed')
    return
  with multi_process.leading():
    print(json.dumps(_figures(pathlib.Path(sys.argv[1]))))


if __name__ == '__main__':
  main()
