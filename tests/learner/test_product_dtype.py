"""A learner whose products have operands in bfloat16, beside one in float32."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from configs import stepwise_ppo
from jaxagent.devices import sharding
from jaxagent.learner import Learner, LearnerConfig
from jaxagent.learner.packing import Packer
from jaxagent.sandbox import cpu_levels
from jaxagent.training import device
from tests.learner.conftest import make_samples

CONFIG = LearnerConfig(
  micro_batch_tokens=128, row_tokens=(64,), ppo_epochs=1, policy_lr=1e-3
)


def _flat(params) -> np.ndarray:
  return np.concatenate([np.ravel(x) for x in jax.tree.leaves(params)])


def test_an_update_goes_where_that_in_float32_goes(model_config):
  steps = {}
  for dtype in 'float32', 'bfloat16', 'auto':
    config = dataclasses.replace(CONFIG, product_dtype=dtype)
    learner = Learner(model_config, config, seed=1)
    before = _flat(learner.policy_params)
    metrics = learner.rl_update(make_samples(8))
    steps[dtype] = _flat(learner.policy_params) - before
    assert np.isfinite(metrics['actor/pg_loss'])
  np.testing.assert_array_equal(steps['auto'], steps['float32'])
  exact, rounded = steps['float32'], steps['bfloat16']
  assert (exact != rounded).any()
  cosine = exact @ rounded / np.linalg.norm(exact) / np.linalg.norm(rounded)
  assert cosine > 0.98


def test_bfloat16_on_several_devices_is_refused(model_config):
  mesh = jax.sharding.AbstractMesh((2, 1, 1), sharding.AXES)
  config = dataclasses.replace(CONFIG, product_dtype='bfloat16')
  with pytest.raises(
    ValueError, match='one CPU device, not for 2.*model.dtype'
  ):
    Packer(model_config, config, mesh, 0)


@pytest.mark.parametrize(
  'flags, platform, chosen',
  [
    ({'amx_bf16'}, '', 'bfloat16'),
    ({'avx512_bf16'}, '', 'float32'),
    ({'amx_bf16'}, 'gpu', 'float32'),
  ],
)
def test_auto_takes_bfloat16_on_one_cpu_device_with_tiles(
  flags, platform, chosen, monkeypatch
):
  config = stepwise_ppo.get_config()
  with config.unlocked():
    config.rl.product_dtype = 'auto'
  monkeypatch.setattr(cpu_levels, 'machine_flags', lambda: frozenset(flags))
  monkeypatch.setattr(jax, 'devices', lambda: jax.local_devices()[:1])
  made = device.learner_config(config, platform)
  assert made.product_dtype == chosen
