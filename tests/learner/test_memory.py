"""Where weights lie while they are made, loaded, used and read again."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest

from jaxagent.devices import sharding
from jaxagent.learner import (
  Learner,
  LearnerConfig,
  offload,
  weights,
)
from jaxagent.learner.packing import Packer
from jaxagent.models import init_decoder
from jaxagent.training import device
from tests.learner.conftest import make_samples
from tests.learner.test_learner import BASE
from tests.runs import QUICK

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope='module')
def ratios():
  """Of `benchmarks.mesh_memory`, which has eight devices of its own."""
  code = (
    'import json; from tests.learner import memory_worker; '
    'print(json.dumps(memory_worker.figures()))'
  )
  flags = f'--xla_force_host_platform_device_count=8 {QUICK}'
  environment = {**os.environ, 'JAX_PLATFORMS': 'cpu', 'XLA_FLAGS': flags}
  out = subprocess.run(
    [sys.executable, '-c', code],
    cwd=ROOT,
    env=environment,
    capture_output=True,
    text=True,
    timeout=280,
  )
  assert out.returncode == 0, out.stderr[-2000:]
  return json.loads(out.stdout.splitlines()[-1])


@pytest.mark.slow
def test_a_folder_loads_with_its_critic_in_the_room_of_the_learner(ratios):
  assert 0.9 < ratios['loading'] <= 1.25


@pytest.mark.slow
def test_nothing_is_kept_beside_the_learner(ratios):
  assert ratios['stays'] <= 1.01


@pytest.mark.slow
def test_a_resume_needs_no_second_state(ratios):
  assert 0.9 < ratios['resuming'] <= 1.1


@pytest.mark.slow
@pytest.mark.parametrize('when', ['loaded', 'updated', 'resumed'])
def test_live_bytes_are_the_plans(ratios, when):
  """Of each device; norms, which the plan splits, are copied: 2 percent."""
  for bytes_ in ratios[when]:
    assert bytes_ == pytest.approx(ratios['planned'], rel=0.02)


@pytest.mark.slow
def test_a_random_model_is_drawn_in_its_parts(ratios):
  assert ratios['drawn'] <= 0.2  # of the whole model, on eight devices


@pytest.mark.slow
def test_a_mesh_draws_what_one_device_draws(ratios):
  assert ratios['apart'] == 0.0


def test_one_program_for_each_array_gives_the_same(model_config):
  whole = weights.by_path(init_decoder(model_config, 3)[1])
  mesh = sharding.make_mesh()
  found = weights.one_by_one(
    lambda: weights.by_path(init_decoder(model_config, 3)[1]),
    sharding.parameter_shardings(whole, mesh),
  )
  for path, leaf in whole.items():
    np.testing.assert_array_equal(found[path], leaf)


def test_a_reference_in_bfloat16_is_near_the_policy(model_config):
  changes = dict(reference_dtype='bfloat16')
  learner = Learner(model_config, dataclasses.replace(BASE, **changes), seed=1)
  kept = jax.tree.leaves(learner.state()['reference'])
  assert {leaf.dtype.name for leaf in kept} == {'bfloat16'}
  assert {x.dtype.name for x in jax.tree.leaves(learner.policy_params)} == {
    'float32'
  }
  found = learner.rl_update(make_samples(6))['actor/kl_loss']
  assert 0 < found < 1e-3


@pytest.mark.slow
def test_offloaded_roles_change_no_number(model_config, monkeypatch):
  """CPU devices have that kind of memory, too; runs there are refused."""
  monkeypatch.setattr(offload, 'complaint', lambda names, mesh: '')
  found = []
  for roles in (
    (),
    ('reference', 'value', 'policy_optimizer', 'value_optimizer'),
  ):
    config = dataclasses.replace(BASE, offload=roles)
    learner = Learner(model_config, config, seed=1)
    learner.value_update(make_samples(6))
    learner.end_value_warmup()
    metrics = learner.rl_update(make_samples(6))
    state = learner.state()
    for name, role in (('reference', 'reference'), ('value', 'value')):
      kinds = {
        leaf.sharding.memory_kind for leaf in jax.tree.leaves(state[name])
      }
      assert kinds == ({'pinned_host'} if role in roles else {'device'})
    learner.let_go()
    learner.load_state(state)
    metrics |= learner.rl_update(make_samples(6))
    found.append(
      {k: v for k, v in metrics.items() if k.startswith(('actor', 'critic'))}
    )
  assert found[0] == found[1]


def test_offload_is_refused_where_it_does_nothing(model_config):
  config = dataclasses.replace(BASE, offload=('value',))
  with pytest.raises(
    ValueError, match=r"offload=\('value',\) does nothing on CPU"
  ):
    Learner(model_config, config)


@pytest.mark.parametrize(
  ('changes', 'said'),
  [
    ({'offload': ('policy',)}, "'policy'.*choose from.*value_optimizer"),
    (
      {'offload': ('reference',), 'kl_coef': 0.0},
      "'reference'.*kl_coef=0.0 has a reference",
    ),
    (
      {'offload': ('value',), 'estimator': 'grpo'},
      "'value'.*'grpo' has no value model",
    ),
    ({'reference_dtype': 'int8'}, "'int8' is not known.*bfloat16"),
  ],
)
def test_what_cannot_be_is_refused(changes, said):
  with pytest.raises(ValueError, match=said):
    LearnerConfig(**changes)


def test_micro_batch_tokens_are_of_one_device(model_config, caplog):
  class Mesh:
    shape = {'data': 2, 'fsdp': 4, 'tensor': 1}
    size = 8

  config = dataclasses.replace(
    BASE, micro_batch_tokens=128, row_tokens=(64, 256)
  )
  packer = Packer(model_config, config, Mesh, 0)
  packer.put = lambda arrays: arrays
  short = [np.arange(50)] * 64
  with caplog.at_level(logging.WARNING):
    packing, _ = packer.pack(short, np.full(64, 10))
  assert (packing.rows, packing.row_tokens) == (16, 64) and not caplog.records
  long = [np.arange(200)] * 64
  for _ in range(2):
    packing, _ = packer.pack(long, np.full(64, 10))
    assert (packing.rows, packing.row_tokens) == (8, 256)
  assert [r.getMessage() for r in caplog.records] == [
    'rows of 256 tokens are longer than micro_batch_tokens=128: each device holds '
    'one row.'
  ]


@pytest.mark.parametrize(
  ('longest', 'platform', 'lengths'),
  [
    (448, 'cpu', (256, 448)),
    (544, 'gpu', (256, 512, 640)),
    (200, 'tpu', (256,)),
    (14336, 'gpu', (256, 512, 1024, 2048, 4096, 8192, 14336)),
  ],
)
def test_row_lengths(longest, platform, lengths):
  assert device.row_lengths(longest, platform) == lengths
