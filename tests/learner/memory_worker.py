"""Bytes by device of a learner on eight simulated devices."""

from __future__ import annotations

import gc
import pathlib
import tempfile
from typing import Any

import numpy as np

from benchmarks import mesh_memory
from jaxagent import plan
from jaxagent.checkpoint import CheckpointManager
from jaxagent.devices import sharding
from jaxagent.learner import LearnerConfig, weights
from jaxagent.models import ModelConfig, hf, init_decoder
from jaxagent.training import multi_process
from tests.learner.conftest import make_samples

MODEL = ModelConfig(
  vocab_size=2048,
  hidden_size=128,
  intermediate_size=256,
  num_hidden_layers=2,
  num_attention_heads=4,
  num_key_value_heads=2,
  head_dim=32,
  tie_word_embeddings=False,
  scan_layers=True,
)
MESH = {'fsdp': 4, 'tensor': 2}
OPTIONS = LearnerConfig(
  row_tokens=(64,),
  micro_batch_tokens=256,
  policy_lr=1e-3,
  value_lr=1e-5,
  sft_lr=2e-5,
  ppo_epochs=1,
  kl_coef=0.001,
  entropy_metric=False,
)


def _live() -> list[int]:
  gc.collect()
  return list(mesh_memory.live_bytes().values())


def figures() -> dict[str, Any]:
  """Ratios of `mesh_memory.measure`, live bytes, and what the plan says."""
  with tempfile.TemporaryDirectory() as text:
    root = pathlib.Path(text)
    _, params = init_decoder(MODEL, 0)
    hf.save_hf(root / 'model', MODEL, params)
    found = _drawn(params)
    del params
    found |= mesh_memory.measure(root / 'model', root / 'work', MESH, True)
    return found | _bytes(root)


def _drawn(params: Any) -> dict[str, float]:
  whole = weights.by_path(params)
  place = sharding.parameter_shardings(whole, sharding.make_mesh(MESH))
  with mesh_memory.watched() as peak:
    before = peak.bytes = max(mesh_memory.live_bytes().values())
    flat = weights.drawn(MODEL, 0, place)
  size = sum(leaf.nbytes for leaf in whole.values())
  apart = [
    np.abs(np.asarray(flat[p]) - np.asarray(whole[p])).max() for p in whole
  ]
  return {'drawn': (peak.bytes - before) / size, 'apart': float(max(apart))}


def _bytes(root: pathlib.Path) -> dict[str, Any]:
  path = str(root / 'model')
  learner = multi_process.make_learner(
    multi_process.Plan(MODEL, OPTIONS, MESH, 0, 0, path, path)
  )
  found: dict[str, Any] = {'loaded': _live()}
  learner.rl_update(make_samples(8))
  found['updated'] = _live()
  manager = CheckpointManager(root / 'again')
  multi_process.save(learner, manager, 1, {})
  multi_process.restore(learner, manager)
  found['resumed'] = _live()
  roles = (
    'policy',
    'policy_optimizer',
    'reference',
    'value',
    'value_optimizer',
  )
  memory = plan.plan(MODEL, MESH)['memory_per_device']
  return found | {'planned': sum(memory[role] for role in roles)}
