"""One update on a mesh of simulated devices; prints its figures as JSON."""

from __future__ import annotations

import json
import sys

import jax
import numpy as np

from jaxagent.checkpoint import CheckpointManager
from jaxagent.devices import sharding
from jaxagent.learner import Learner, LearnerConfig
from jaxagent.models import ModelConfig
from tests.learner.conftest import make_samples

MODEL = ModelConfig(
  vocab_size=64,
  hidden_size=32,
  intermediate_size=64,
  num_hidden_layers=1,
  num_attention_heads=4,
  num_key_value_heads=2,
  head_dim=8,
)


def make(shape, **changes) -> Learner:
  options = {
    'policy_lr': 1e-6,
    'value_lr': 1e-5,
    'ppo_epochs': 1,
    'entropy_metric': False,
    'kl_coef': 0.05,
    'row_tokens': (64,),
    'micro_batch_tokens': 512,
  }
  config = LearnerConfig(**options | changes)
  return Learner(MODEL, config, mesh=sharding.make_mesh(shape), seed=1)


def figures(metrics) -> dict[str, float]:
  keys = ('actor/pg_loss', 'actor/grad_norm', 'critic/vf_loss')
  return {k: metrics[k] for k in (*keys, 'critic/grad_norm')}


def main() -> None:
  samples = make_samples(24)
  found = {}
  for text in sys.argv[2:]:
    learner = make([int(x) for x in text.split('x')])
    kernel = learner._roles.policy['layers/0/gate/kernel']
    found[text] = figures(learner.rl_update(samples))
    found[text]['shard'] = list(kernel.addressable_shards[0].data.shape)
  # Saved on the last mesh, restored on another.
  first = learner
  manager = CheckpointManager(sys.argv[1])
  manager.save(1, first.state(), {'learner': first.host_state()})
  second = make((2, 2, 2))
  restored = manager.restore_latest(second.state())
  second.load_state(restored.arrays)
  pairs = zip(jax.tree.leaves(first.state()), jax.tree.leaves(second.state()))
  found['restored'] = all(
    np.array_equal(np.asarray(a), np.asarray(b)) for a, b in pairs
  )
  found['mesh'] = dict(
    second._roles.policy['layers/0/gate/kernel'].sharding.mesh.shape
  )
  print(json.dumps(found))


if __name__ == '__main__':
  main()
