"""The update: what may not change it, and what must stop it."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from jaxagent.checkpoint import CheckpointManager
from jaxagent.data.batching import pack_conversations
from jaxagent.learner import (
  Learner,
  LearnerConfig,
  NonFiniteGradientError,
  advantages,
  programs,
)
from jaxagent.learner.config import CENTRED, GROUPED
from jaxagent.models import init_decoder
from tests.learner.conftest import make_samples
from tests.subset import fast

BASE = LearnerConfig(
  policy_lr=1e-2,
  value_lr=1e-2,
  kl_coef=0.05,
  micro_batch_tokens=4096,
  row_tokens=(64,),
  weight_decay=0.0,
  ppo_epochs=1,
  entropy_metric=False,
)

# With a critic, and by groups, first.
ESTIMATORS = sorted(
  [*CENTRED, *GROUPED], key=lambda e: e not in ('gae', 'grpo')
)


def _learner(model_config, **changes) -> Learner:
  return Learner(model_config, dataclasses.replace(BASE, **changes), seed=1)


def _flat(params) -> np.ndarray:
  return np.concatenate([np.ravel(x) for x in jax.tree.leaves(params)])


@pytest.mark.slow  # the gradients alone: tests/algorithms/test_properties.py
@pytest.mark.parametrize(
  'aggregation', ['token-mean', 'seq-mean-token-sum', 'seq-mean-token-mean']
)
def test_neither_micro_batch_nor_packing_changes_an_update(
  model_config, aggregation
):
  samples = make_samples(12)
  weights = np.linspace(0.5, 1.5, 12)
  found = []
  for tokens, rows in ((4096, (64,)), (128, (64,)), (32, (32,))):
    learner = _learner(
      model_config,
      aggregation=aggregation,
      micro_batch_tokens=tokens,
      row_tokens=rows,
    )
    metrics = learner.rl_update(samples, weights)
    found.append((metrics, _flat(learner.policy_params)))
  for metrics, params in found[1:]:
    for key in ('actor/pg_loss', 'actor/grad_norm', 'critic/vf_loss'):
      assert metrics[key] == pytest.approx(found[0][0][key], rel=2e-4), key
    # Adam divides by the gradient's size: compare where it is not noise.
    apart = np.abs(params - found[0][1])
    assert np.quantile(apart, 0.99) < 1e-4


@pytest.mark.slow
def test_value_update_fits_the_returns_and_leaves_the_policy(model_config):
  learner = _learner(model_config, gamma=0.9)
  samples = make_samples(12)
  policy, value = _flat(learner.policy_params), _flat(learner.value_params)
  found = [learner.value_update(samples) for _ in range(30)]
  np.testing.assert_array_equal(_flat(learner.policy_params), policy)
  assert not np.array_equal(_flat(learner.value_params), value)
  assert found[-1]['critic/vf_loss'] < 0.5 * found[0]['critic/vf_loss']
  assert found[-1]['critic/vf_explained_var'] > 0.3


@pytest.mark.slow
def test_a_critic_of_its_own_has_its_own_shape(model_config, tmp_path):
  """Wider and deeper than the policy; it learns, and comes back from a save."""
  own = model_config.replace(
    hidden_size=48, head_dim=12, num_hidden_layers=2, vocab_size=96
  )

  def make():
    weights = lambda place: init_decoder(own, seed=7)[1]
    return Learner(model_config, BASE, seed=1, critic=(own, weights))

  learner = make()
  trunk = learner.value_params['trunk']
  assert trunk['embed'][...].shape == (96, 48)
  before = _flat(learner.value_params)
  learner.rl_update(make_samples(12), np.ones(12))
  after = _flat(learner.value_params)
  assert not np.array_equal(after, before)
  manager = CheckpointManager(tmp_path)
  manager.save(1, learner.state(), {})
  other = make()
  other.load_state(manager.restore_latest(other.state()).arrays)
  np.testing.assert_array_equal(_flat(other.value_params), after)
  # Fine-tuning in between begins the critic anew, from its own trunk.
  learner.start_sft()
  learner.start_rl()
  np.testing.assert_array_equal(_flat(learner.value_params), before)


def test_a_critic_with_fewer_tokens_is_refused(model_config):
  own = model_config.replace(vocab_size=32)
  with pytest.raises(ValueError, match='critic knows 32 tokens, the policy 64'):
    Learner(model_config, BASE, critic=(own, None))


def test_the_rates_of_both_roles_follow_the_schedule():
  config = dataclasses.replace(
    BASE, schedule='cosine', steps=20, warmup_steps=4
  )
  for lr in (config.policy_lr, config.value_lr):
    rate = programs.rl_schedule(config, lr)
    found = [float(rate(step)) / lr for step in (0, 3, 4, 12, 20, 99)]
    assert found == pytest.approx([0.25, 1, 1, 0.55, 0.1, 0.1])


@pytest.mark.slow
def test_the_critics_schedule_begins_with_rl(model_config):
  options = dict(schedule='cosine', steps=4, warmup_steps=0, value_lr=1e-3)
  learner = _learner(model_config, **options)
  samples = make_samples(8)
  taught = [learner.value_update(samples)['critic/lr'] for _ in range(4)]
  assert taught[0] == pytest.approx(1e-3) and taught[-1] < 5e-4
  before = _flat(learner.value_params)
  learner.end_value_warmup()
  np.testing.assert_array_equal(_flat(learner.value_params), before)
  metrics = learner.rl_update(samples)
  assert metrics['critic/lr'] == pytest.approx(1e-3)
  assert metrics['actor/lr'] == pytest.approx(learner.config.policy_lr)


def test_value_update_without_a_critic_is_refused(model_config):
  learner = _learner(model_config, estimator='rloo')
  with pytest.raises(ValueError, match='rloo'):
    learner.value_update(make_samples(4))


def test_returns_to_go_are_discounted_over_policy_tokens_only():
  rewards = np.array([[0, 0, 0, 1.0, 0], [0, 2.0, 0, 0, 0]], np.float32)
  mask = np.array([[1, 0, 1, 1, 0], [1, 1, 0, 0, 0]], np.float32)
  np.testing.assert_allclose(
    advantages.returns_to_go(rewards, mask, 0.5),
    [[0.25, 0, 0.5, 1, 0], [1, 2, 0, 0, 0]],
  )


@pytest.mark.slow
def test_learning_rates_that_move_no_weight_change_nothing(model_config):
  # 0 is refused; this much is lost in the sum with any weight.
  learner = _learner(model_config, policy_lr=1e-38, value_lr=1e-38)
  samples = make_samples(8)
  old = learner.logprobs(samples)
  samples = [
    dataclasses.replace(s, behaviour_logprobs=old[i, : len(s.token_ids)])
    for i, s in enumerate(samples)
  ]
  before = _flat(learner.policy_params), _flat(learner.value_params)
  for version in range(50):
    metrics = learner.rl_update(samples, version=version)
  np.testing.assert_array_equal(_flat(learner.policy_params), before[0])
  np.testing.assert_array_equal(_flat(learner.value_params), before[1])
  assert metrics['training/rollout_probs_diff_max'] == 0.0
  assert metrics['training/rollout_logps_diff_max'] == 0.0
  assert metrics['training/importance_capped_fraction'] == 0.0
  assert metrics['actor/kl_loss'] == 0.0


def test_the_gap_to_the_sampler_is_told_in_nats(model_config):
  learner = _learner(model_config, importance_cap=1.5)
  samples = make_samples(8)
  old = learner.logprobs(samples)
  n = sum(int(np.sum(s.loss_mask)) for s in samples)
  rows = [old[i, : len(s.token_ids)].copy() for i, s in enumerate(samples)]
  at = int(np.argmax(samples[0].loss_mask))
  rows[0][at] -= 0.5  # its ratio, 1.65, is capped
  samples = [
    dataclasses.replace(s, behaviour_logprobs=r) for s, r in zip(samples, rows)
  ]
  metrics = learner.rl_update(samples)
  gap = 'training/rollout_logps_diff'
  np.testing.assert_allclose(metrics[f'{gap}_max'], 0.5, rtol=1e-4)
  np.testing.assert_allclose(metrics[f'{gap}_mean'], 0.5 / n, rtol=1e-2)
  assert metrics[f'{gap}_p99'] <= metrics[f'{gap}_max']
  capped = metrics['training/importance_capped_fraction']
  np.testing.assert_allclose(capped, 1 / n)


def test_equal_rewards_give_grpo_no_gradient(model_config):
  learner = _learner(model_config, estimator='grpo', kl_coef=0.0)
  samples = [dataclasses.replace(s, reward=0.7) for s in make_samples(8)]
  before = _flat(learner.policy_params)
  metrics = learner.rl_update(samples)
  assert metrics['actor/grad_norm'] == pytest.approx(0.0, abs=1e-7)
  np.testing.assert_allclose(_flat(learner.policy_params), before, atol=1e-6)


@pytest.mark.parametrize('estimator', fast(ESTIMATORS, first=2))
def test_rewarded_tokens_become_likelier(model_config, estimator):
  learner = _learner(model_config, estimator=estimator, best_of=2, kl_coef=0.0)
  samples = [
    dataclasses.replace(s, reward=float(i % 2))
    for i, s in enumerate(make_samples(8, observation=False))
  ]
  before = learner.logprobs(samples).sum(-1)
  for version in range(3):
    learner.rl_update(samples, version=version)
  gain = learner.logprobs(samples).sum(-1) - before
  assert gain[1::2].mean() > gain[::2].mean()


def test_weights_multiply_after_normalisation(model_config):
  samples = make_samples(8)
  norms = [
    _learner(model_config, kl_coef=0.0).rl_update(samples, np.full(8, w))
    for w in (1.0, 3.0)
  ]
  ratio = norms[1]['actor/grad_norm'] / norms[0]['actor/grad_norm']
  assert ratio == pytest.approx(3.0, rel=1e-4)


def test_bad_data_is_rejected_and_counted(model_config):
  learner = _learner(model_config)
  samples = make_samples(8)
  bad = [
    dataclasses.replace(samples[0], reward=None),
    dataclasses.replace(samples[1], reward=float('nan')),
    dataclasses.replace(samples[3], reward=-1e40),  # beyond float32
    dataclasses.replace(
      samples[2], loss_mask=np.zeros(len(samples[2].token_ids), bool)
    ),
  ]
  metrics = learner.rl_update(bad + samples[4:])
  assert metrics['learner/rejected'] == 4
  assert np.isfinite(_flat(learner.policy_params)).all()
  with pytest.raises(ValueError, match='none of the 4 samples'):
    learner.rl_update(bad)
  with pytest.raises(ValueError, match='one a turn'):
    learner.rl_update(samples, np.ones(3))


def test_non_finite_gradient_is_skipped_then_stops(model_config):
  learner = _learner(model_config, kl_coef=0.0)
  samples = make_samples(4)
  # The largest float overflows in the loss, not in the input check.
  huge = np.full(4, np.finfo(np.float32).max)
  learner.rl_update(samples, huge)
  learner.rl_update(samples)  # a good one starts the count anew
  before = _flat(learner.policy_params)
  metrics = learner.rl_update(samples, huge)
  assert metrics['learner/skipped_updates'] == 2
  np.testing.assert_array_equal(_flat(learner.policy_params), before)
  with pytest.raises(
    NonFiniteGradientError, match=r'5 actor steps.*version 9.*0/0/0'
  ):
    for _ in range(4):
      learner.rl_update(samples, huge, version=9)


def test_shapes_are_compiled_once(model_config):
  learner = _learner(
    model_config, ppo_epochs=2, minibatches=2, row_layout='packed'
  )
  for version in range(4):
    samples = make_samples(8, seed=version)
    metrics = learner.rl_update(samples, version=version)
  assert metrics['learner/compiles'] == learner.compiles
  again = learner.rl_update(make_samples(8, seed=1), version=5)
  assert again['learner/compiles'] == metrics['learner/compiles']
  assert again['learner/recompiles'] == 0


@pytest.mark.slow
def test_lengths_of_flat_rows_are_compiled_once(model_config):
  learner = _learner(model_config, ppo_epochs=2, row_layout='flat')
  texts = [make_samples(4 + 3 * i, seed=i) for i in range(4)]
  for samples in texts:
    metrics = learner.rl_update(samples)
  for samples in texts:
    again = learner.rl_update(samples)
  assert again['learner/compiles'] == metrics['learner/compiles']


def test_whatever_the_process_compiles_after_warm_up_counts(model_config):
  learner = _learner(model_config)
  # Enough updates that all shapes have been seen.
  for version in range(3):
    found = learner.rl_update(make_samples(8), version=version)
    assert found['learner/recompiles'] == 0
  other = jax.jit(lambda x: x * 3 - 1)
  for _ in range(2):
    other(np.ones(7))  # as the rollout engine would, beside the learner
    found = learner.rl_update(make_samples(8), version=9)
    assert found['learner/recompiles'] == 1


@pytest.mark.slow
def test_resume_is_exact(model_config, tmp_path):
  def fresh():
    return _learner(
      model_config,
      ppo_epochs=2,
      minibatches=2,
      kl_target=0.01,
      kl_horizon=50,
    )

  manager = CheckpointManager(tmp_path)
  straight, first = fresh(), fresh()
  want = [straight.rl_update(make_samples(8, v), None, v) for v in range(4)]
  for v in range(2):
    first.rl_update(make_samples(8, v), None, v)
  manager.save(2, first.state(), {'learner': first.host_state()})
  second = fresh()
  step, arrays, host = manager.restore_latest(second.state())
  second.load_state(arrays)
  second.load_host_state(host['learner'])
  for v in range(step, 4):
    got = second.rl_update(make_samples(8, v), None, v)
  for key in want[-1]:
    if not key.startswith(('timing_s/', 'perf/', 'learner/')):
      assert got[key] == want[-1][key], key
  np.testing.assert_array_equal(
    _flat(second.policy_params), _flat(straight.policy_params)
  )
  np.testing.assert_array_equal(
    _flat(second.value_params), _flat(straight.value_params)
  )


def _conversations(n):
  samples = make_samples(n)
  return [
    (
      np.concatenate([s.prompt_ids, s.token_ids]),
      np.arange(len(s.prompt_ids) + len(s.token_ids)) >= len(s.prompt_ids),
    )
    for s in samples
  ]


@pytest.mark.slow
def test_sft_learns_and_is_free_of_packing(model_config):
  rows = _conversations(10)
  losses = []
  for tokens, row in ((4096, 64), (64, 32)):
    learner = _learner(model_config)
    learner.start_sft(lr=1e-2, total_steps=8, schedule='cosine')
    batches = pack_conversations(
      rows, row_tokens_buckets=(row,), max_tokens=tokens
    )
    losses.append([learner.sft_step(batches)['sft/loss'] for _ in range(8)])
  np.testing.assert_allclose(losses[0], losses[1], rtol=1e-3)
  assert losses[0][-1] < losses[0][0] - 0.3
  learner.start_rl()
  assert learner.rl_update(make_samples(4))['actor/kl_loss'] == 0.0


def test_options_are_checked():
  with pytest.raises(ValueError, match="estimator='ppo' is not known"):
    LearnerConfig(estimator='ppo')
  with pytest.raises(ValueError, match='needs sft_steps'):
    LearnerConfig(sft_schedule='cosine')
  with pytest.raises(ValueError, match='sft_lr=0.0 must be .* above 0'):
    LearnerConfig(sft_lr=0.0)
  with pytest.raises(ValueError, match='dual_clip'):
    LearnerConfig(dual_clip=0.5)
