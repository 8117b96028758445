"""Model FLOPs utilisation of an update, against hand computations."""

import types as stubs

import numpy as np
import pytest

from jaxagent.devices import accelerator
from jaxagent.learner import figures
from jaxagent.models import ModelConfig, flops
from tests.learner.conftest import make_samples
from tests.learner.test_learner import _learner

MODEL = ModelConfig(
  vocab_size=100,
  hidden_size=8,
  intermediate_size=16,
  num_hidden_layers=2,
  num_attention_heads=2,
  num_key_value_heads=1,
  head_dim=4,
  tie_word_embeddings=False,
)


@pytest.mark.parametrize(
  ('kind', 'peak'),
  [
    ('NVIDIA A100-SXM4-80GB', 312e12),
    ('NVIDIA H100 80GB HBM3', 989e12),
    ('NVIDIA H200', 989e12),
    ('TPU v5 lite', 197e12),
    ('TPU v5', 459e12),
    ('TPU v6 lite', 918e12),
    # Slower than those above, by their data sheets.
    ('NVIDIA H100 PCIe', None),
    ('NVIDIA A10', None),
    ('cpu', None),
  ],
)
def test_peak_by_the_name_of_the_device(kind, peak):
  assert accelerator.peak_flops(kind) == peak


def test_flops_of_training_by_hand():
  body = MODEL.num_params() - 2 * 100 * 8
  attention = 4 * 2 * 8  # L H h of a pair of tokens, two products
  forward = [2 * (body + 800) * n + attention * n * n / 2 for n in (3, 5)]
  assert flops.training_flops(MODEL, (3, 5)) == 3 * sum(forward)
  without_head = [2 * body * n + attention * n * n / 2 for n in (3, 5)]
  assert flops.training_flops(MODEL, (3, 5), head=False) == 3 * sum(
    without_head
  )
  adapters = MODEL.replace(lora_rank=4)
  more = flops.training_flops(adapters, (3,)) / flops.training_flops(
    MODEL, (3,)
  )
  assert more == pytest.approx(2 / 3)


def _mesh(kind):
  device = stubs.SimpleNamespace(device_kind=kind)
  return stubs.SimpleNamespace(devices=np.array([[[device] * 4]]), size=4)


def test_utilisation_is_of_all_devices():
  seconds = {'update_actor': 2.0, 'update_critic': 4.0, 'adv': 9.0}
  found = figures.utilisation(
    _mesh('NVIDIA A100-SXM4-80GB'), seconds, {'actor': 624e12, 'critic': 312e12}
  )
  assert found == {
    'perf/mfu/actor': pytest.approx(624 / (2 * 4 * 312)),
    'perf/mfu/critic': pytest.approx(312 / (4 * 4 * 312)),
  }
  assert figures.utilisation(_mesh('cpu'), seconds, {'actor': 1.0}) == {}


def test_an_update_says_its_utilisation(model_config, monkeypatch):
  monkeypatch.setattr(accelerator, 'peak_flops', lambda kind: 1e12)
  learner = _learner(model_config, ppo_epochs=2)
  samples = make_samples(8)
  found = learner.rl_update(samples)
  lengths = [len(s.prompt_ids) + len(s.token_ids) for s in samples]
  for role, head in (('actor', True), ('critic', False)):
    work = 2 * flops.training_flops(model_config, lengths, head)
    wanted = work / found[f'timing_s/update_{role}'] / 1e12
    assert found[f'perf/mfu/{role}'] == pytest.approx(wanted)


def test_a_cpu_has_none(model_config):
  assert not [
    k for k in _learner(model_config).rl_update(make_samples(8)) if 'mfu' in k
  ]
