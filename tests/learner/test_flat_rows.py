"""Flat rows: the same update with less padding, in few shapes."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from jaxagent.data import batching
from jaxagent.devices import sharding
from jaxagent.learner import Learner, LearnerConfig, packing
from jaxagent.learner.packing import Packer
from tests.learner.conftest import make_samples

CONFIG = LearnerConfig(
  policy_lr=1e-2,
  value_lr=1e-2,
  kl_coef=0.05,
  micro_batch_tokens=128,
  row_tokens=(64,),
  weight_decay=0.0,
  ppo_epochs=2,
  minibatches=2,
)


def _learner(model_config, rows, **changes) -> Learner:
  config = dataclasses.replace(CONFIG, row_layout=rows, **changes)
  return Learner(model_config, config, seed=1)


def _weights(params) -> np.ndarray:
  return np.concatenate([np.ravel(x) for x in jax.tree.leaves(params)])


def _texts(rng, n):
  """Lengths as the quickstart's: an update of 32 samples has some 5,300 tokens."""
  return np.clip(rng.normal(166, 15, n), 60, 440).astype(int)


@pytest.mark.parametrize('samples, most', [(32, 2), (8, 5)])
def test_updates_of_a_run_have_a_tenth_of_padding_in_few_shapes(samples, most):
  rng = np.random.default_rng(0)
  shapes, padding = set(), []
  for _ in range(60):
    packing = batching.plan_flat(
      _texts(rng, samples), longest=448, max_tokens=4096, prefer=shapes
    )
    shapes.add((packing.rows, packing.row_tokens))
    padding.append(1 - packing.efficiency)
  assert np.mean(padding) <= 0.1 and np.max(padding) <= 0.13
  assert len(shapes) <= most and {rows for rows, _ in shapes} == {1}


@pytest.mark.parametrize('seed', range(20))
def test_each_token_has_a_place_of_its_own_within_the_bounds(seed):
  rng = np.random.default_rng(seed)
  lengths = rng.integers(1, 600, rng.integers(1, 40))
  packing = batching.plan_flat(lengths, longest=600, max_tokens=500)
  places = np.concatenate(
    [np.arange(o, o + n) for o, n in zip(packing.offset, lengths)]
  )
  assert len(np.unique(places)) == lengths.sum()
  assert places.max() < np.prod(packing.shape)
  assert (packing.start + lengths <= packing.row_tokens).all()
  assert packing.row_tokens <= max(500, batching.flat_length(lengths.max()))


def test_a_sample_that_is_too_long_is_named():
  with pytest.raises(ValueError, match='sample 1 has 9 tokens'):
    batching.plan_flat([3, 9], longest=8, max_tokens=64)


def test_a_known_length_is_taken_while_a_tenth_is_padding():
  plan = lambda total, known: batching.plan_flat(  # noqa: E731
    [10] * (total // 10), longest=64, max_tokens=4096, prefer=known
  )
  assert plan(600, {(1, 640)}).row_tokens == 640
  assert plan(570, {(1, 640)}).row_tokens == 640  # with room: 604
  assert plan(510, {(1, 640)}).row_tokens == 576
  assert plan(600, {(2, 640), (1, 704)}).row_tokens == 640


@pytest.mark.slow
def test_flat_rows_change_no_update(model_config):
  """RL with reference and critic, the critic's warm-up, and log-probs."""
  samples, found = make_samples(12), []
  for rows in ('packed', 'flat'):
    learner = _learner(model_config, rows)
    logp = learner.logprobs(samples)
    warm = learner.value_update(samples), learner.value_update(samples)
    metrics = learner.rl_update(samples, np.linspace(0.5, 1.5, 12))
    metrics |= {f'{i}{k}': v for i in (0, 1) for k, v in warm[i].items()}
    found.append((logp, metrics, learner.policy_params, learner.value_params))
  (logp, metrics, *weights), (others, other, *theirs) = found
  np.testing.assert_allclose(logp, others, atol=1e-5)
  assert metrics.keys() == other.keys()
  for key in metrics:
    if key.lstrip('01').startswith(('actor/', 'critic/')):
      assert other[key] == pytest.approx(metrics[key], rel=2e-4, abs=1e-5), key
  for one, two in zip(weights, theirs):
    # Adam divides by the gradient's size: compare where it is not noise.
    apart = np.abs(_weights(one) - _weights(two))
    assert np.quantile(apart, 0.99) < 1e-4


def test_flat_rows_change_no_step_of_sft(model_config):
  rows = [
    (np.r_[s.prompt_ids, s.token_ids], np.r_[s.prompt_ids < 0, s.loss_mask])
    for s in make_samples(12)
  ]
  found = []
  for kind in ('packed', 'flat'):
    learner = _learner(model_config, kind)
    learner.start_sft(lr=1e-3)
    batches = learner.sft_batches(rows)
    metrics = [learner.sft_step(batches) for _ in range(2)]
    found.append([m[k] for m in metrics for k in ('sft/loss', 'sft/grad_norm')])
    assert {len(b.tokens) for b in batches} == {1 if kind == 'flat' else 2}
  np.testing.assert_allclose(*found, rtol=1e-5)


@pytest.mark.slow
def test_a_resumed_learner_lays_its_samples_out_as_before(model_config):
  """The lengths met so far decide the next: they come back with a checkpoint."""
  learner = _learner(model_config, 'flat', ppo_epochs=1, minibatches=1)
  learner.rl_update(make_samples(12), np.ones(12))
  other = _learner(model_config, 'flat', ppo_epochs=1, minibatches=1)
  other.load_state(jax.tree.map(np.array, learner.state()))
  other.load_host_state(learner.host_state())
  after = [
    one.rl_update(make_samples(11), np.ones(11)) and _weights(one.policy_params)
    for one in (learner, other)
  ]
  np.testing.assert_array_equal(*after)
  assert learner.host_state() == other.host_state()


@pytest.mark.parametrize(
  'attention, rows, is_flat',
  [
    ('auto', 'auto', True),
    ('mapped', 'auto', False),
    ('auto', 'packed', False),
    ('mapped', 'flat', True),
  ],
)
def test_auto_is_flat_where_attention_skips_other_samples(
  model_config, attention, rows, is_flat, monkeypatch
):
  model = model_config.replace(attention=attention)
  config = dataclasses.replace(CONFIG, row_layout=rows)
  monkeypatch.setattr(packing, 'LEAST_FLAT', model.num_params())
  mesh = sharding.make_mesh({'data': 1, 'fsdp': 1, 'tensor': 1})
  assert Packer(model, config, mesh, 0).is_flat == is_flat
  monkeypatch.setattr(packing, 'LEAST_FLAT', model.num_params() + 1)
  assert Packer(model, config, mesh, 0).is_flat == (rows == 'flat')


def test_flat_rows_on_several_devices_are_refused(model_config):
  mesh = jax.sharding.AbstractMesh((2, 1, 1), sharding.AXES)
  config = dataclasses.replace(CONFIG, row_layout='flat')
  with pytest.raises(ValueError, match="which 2 devices cannot share.*'auto'"):
    Packer(model_config, config, mesh, 0)
