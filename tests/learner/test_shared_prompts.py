"""Prompts that samples share are computed once, and change nothing."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from jaxagent.data import batching, shared_prompts
from jaxagent.devices import sharding
from jaxagent.learner import Learner, LearnerConfig
from jaxagent.learner import packing as packing_lib
from jaxagent.learner.packing import PackedBatch, Packer
from tests.learner.conftest import make_samples

CONFIG = LearnerConfig(
  policy_lr=1e-2,
  value_lr=1e-2,
  kl_coef=0.05,
  micro_batch_tokens=256,
  row_tokens=(64, 128),
  weight_decay=0.0,
  ppo_epochs=1,
)


def _groups(prompts: int, size: int, seed: int = 0):
  """Samples of which `size` each have the same prompt, in a drawn order."""
  rng = np.random.default_rng(seed)
  samples = make_samples(prompts * size)
  heads = [rng.integers(1, 50, rng.integers(1, 30)) for _ in range(prompts)]
  return [
    dataclasses.replace(
      samples[i], prompt_ids=heads[i % prompts].astype(np.int32)
    )
    for i in rng.permutation(len(samples))
  ]


def _plan(samples, longest=10_000, **options):
  sequences = [batching.sequence_of(s) for s in samples]
  skip = np.array([len(s.prompt_ids) for s in samples])
  plan = lambda lengths: batching.plan_flat(  # noqa: E731
    lengths, longest=longest, max_tokens=256, **options
  )
  packing = shared_prompts.plan_shared(
    sequences, skip, plan=plan, longest=longest
  )
  return packing, packing.arrays(sequences, skip, 0), sequences, skip


@pytest.mark.parametrize('seed', range(8))
@pytest.mark.parametrize('longest', [10_000, 90])
def test_each_sample_can_be_read_from_what_it_sees(seed, longest):
  """Of each token the ones before it, of its segment and in its branch or the prompt."""
  samples = _groups(4, 5, seed)
  packing, arrays, sequences, skip = _plan(samples, longest)
  flat = {k: v.reshape(packing.n_micro, -1) for k, v in arrays.items()}
  for i, sequence in enumerate(sequences):
    micro = packing.tails.micro[i]
    row = {k: v[micro] for k, v in flat.items()}
    end = packing.tails.start[i] + packing.tails.length[i]
    seen = (
      (row['segment_ids'] == packing.tails.segment[i])
      & np.isin(row['branches'], (0, packing.branch[i]))
      & (np.arange(len(row['tokens'])) < end)
    )
    np.testing.assert_array_equal(row['tokens'][seen], sequence)
    np.testing.assert_array_equal(
      row['positions'][seen], np.arange(len(sequence))
    )
  used = (arrays['segment_ids'] > 0).sum()
  assert used == packing.texts[0].sum()
  assert packing.efficiency == pytest.approx(used / arrays['tokens'].size)


def test_a_prompt_stands_once_in_a_block_and_blocks_keep_their_bound():
  samples = _groups(1, 20)
  sequences = [batching.sequence_of(s) for s in samples]
  longest = max(map(len, sequences)) + 20
  packing, *_ = _plan(samples, longest)
  sizes = packing.prompts.length + np.bincount(
    packing.prompt_of, packing.tails.length
  )
  assert sizes.max() <= longest and len(sizes) > 1
  alone, *_ = _plan(samples)
  assert len(alone.prompts.length) == 1


def test_a_sample_longer_than_the_bound_has_a_block_of_its_own():
  samples = _groups(1, 3)
  packing, *_ = _plan(samples, longest=200)
  assert len(packing.prompts.length) == 1
  sequences = [batching.sequence_of(s) for s in samples]
  shortest = min(map(len, sequences))
  skip = np.array([len(s.prompt_ids) for s in samples])
  plan = lambda lengths: batching.plan_flat(  # noqa: E731
    lengths, longest=200, max_tokens=256
  )
  found = shared_prompts.plan_shared(
    sequences, skip, plan=plan, longest=shortest - 1
  )
  assert len(found.prompts.length) == 3


def test_tables_of_samples_come_back_as_they_went_in():
  samples = _groups(3, 4)
  packing, _, sequences, skip = _plan(samples)
  width = max(len(s.token_ids) for s in samples)
  mask = np.arange(width) < np.array([[len(s.token_ids)] for s in samples])
  table = np.random.default_rng(0).normal(size=mask.shape) * mask
  there = packing.scatter(table, skip)
  np.testing.assert_array_equal(packing.unpack(there, skip, width), table)


def _weights(params) -> np.ndarray:
  return np.concatenate([np.ravel(x) for x in jax.tree.leaves(params)])


def _gradients(learner: Learner, samples) -> tuple[np.ndarray, np.ndarray]:
  """(log-probs, the policy's gradient) of a plain policy loss over all samples."""
  work = PackedBatch(learner._packer, samples)
  tables = batching.sample_tables(work.samples, work.width)
  logp = learner.logprobs(samples)
  fields = {
    'old_logp': logp,
    'advantages': np.linspace(-1, 1, logp.size).reshape(logp.shape),
    'scale': tables['mask'] / tables['mask'].sum(),
  }
  grads, _ = learner._roles.policy_grads(work.micros(None, fields), 0.0)
  return logp, _weights(grads)


@pytest.mark.slow
@pytest.mark.parametrize(
  'rows, attention', [('flat', 'blocks'), ('packed', 'xla')]
)
def test_gradients_are_those_of_samples_that_lie_apart(
  model_config, rows, attention
):
  model = model_config.replace(attention=attention, dtype='float32')
  samples, found = _groups(3, 4), []
  for shared in (False, True):
    config = dataclasses.replace(
      CONFIG,
      share_prompts=shared,
      row_layout=rows,
      estimator='grpo',
      kl_coef=0.0,
    )
    learner = Learner(model, config, seed=1)
    learner.start_rl()
    found.append(_gradients(learner, samples))
  (logp, grads), (others, theirs) = found
  np.testing.assert_allclose(logp, others, atol=1e-5)
  assert np.linalg.norm(grads) > 0
  apart = np.linalg.norm(grads - theirs) / np.linalg.norm(grads)
  assert apart < 1e-5


@pytest.mark.slow
def test_an_update_with_critic_and_reference_is_the_plain_one(model_config):
  samples, found = _groups(3, 4), []
  for shared in (False, True):
    config = dataclasses.replace(
      CONFIG,
      share_prompts=shared,
      row_layout='flat',
      minibatches=2,
    )
    learner = Learner(model_config, config, seed=1)
    learner.start_rl()
    warm = learner.value_update(samples)
    metrics = learner.rl_update(samples, np.linspace(0.5, 1.5, 12))
    metrics |= {f'warm {k}': v for k, v in warm.items()}
    found.append(metrics)
  one, two = found
  assert set(two) - set(one) == {'learner/shared'}
  assert 0.1 < two['learner/shared'] < 0.9
  for key in one:
    if 'actor/' in key or 'critic/' in key:
      assert two[key] == pytest.approx(one[key], rel=3e-4, abs=2e-5), key


def test_a_group_of_eight_with_a_long_prompt_is_a_fifth_of_the_positions(
  model_config,
):
  """16 tokens of prompt to one of an answer: 24 / 136 and the padding."""
  head = np.arange(320, dtype=np.int32) % 50 + 1
  samples = [
    dataclasses.replace(
      s,
      prompt_ids=head,
      token_ids=s.token_ids[:1].repeat(20),
      behaviour_logprobs=s.behaviour_logprobs[:1].repeat(20),
      loss_mask=np.ones(20, bool),
    )
    for s in make_samples(8)
  ]
  positions = []
  for shared in (False, True):
    config = dataclasses.replace(
      CONFIG,
      share_prompts=shared,
      row_layout='flat',
      row_tokens=(512,),
      micro_batch_tokens=4096,
    )
    mesh = sharding.make_mesh({'data': 1, 'fsdp': 1, 'tensor': 1})
    packer = Packer(model_config, config, mesh, 0)
    micros = PackedBatch(packer, samples).micros()
    positions.append(sum(m['tokens'].size for m in micros))
  assert positions[1] <= positions[0] / 4


def test_a_kernel_without_a_mask_for_branches_is_refused_before_weights_load(
  model_config, monkeypatch
):
  monkeypatch.setattr(packing_lib, '_kernel', lambda *_: 'splash')
  mesh = sharding.make_mesh({'data': 1, 'fsdp': 1, 'tensor': 1})
  packing_lib.check(model_config, CONFIG, mesh)
  shared = dataclasses.replace(CONFIG, share_prompts=True)
  with pytest.raises(ValueError, match='rl.share_prompts=False'):
    packing_lib.check(model_config, shared, mesh)
