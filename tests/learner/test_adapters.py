"""Training of adapters: their gradients and steps, the shared base, the checkpoint."""

from __future__ import annotations

import dataclasses
import gc
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from jaxagent.checkpoint import CheckpointManager
from jaxagent.compiled import programs as compiled
from jaxagent.compiled import report
from jaxagent.data.batching import pack_conversations
from jaxagent.devices import sharding
from jaxagent.learner import Learner, LearnerConfig, weights
from jaxagent.learner.packing import PackedBatch
from jaxagent.models import ModelConfig, init_decoder, lora
from tests.learner.conftest import make_samples
from tests.models.conftest import shake

PLAIN = ModelConfig(
  vocab_size=64,
  hidden_size=32,
  intermediate_size=64,
  num_hidden_layers=1,
  num_attention_heads=4,
  num_key_value_heads=2,
  head_dim=8,
  tie_word_embeddings=False,
)
RANKED = PLAIN.replace(lora_rank=3, lora_alpha=6.0, lora_targets=('q', 'down'))
SCALE = 2.0
OPTIONS = LearnerConfig(
  row_tokens=(32,), micro_batch_tokens=256, kl_coef=0.1, ppo_epochs=1
)


def _params(model: ModelConfig = RANKED):
  """A base, and adapters that change what it says."""
  base = shake(init_decoder(model.replace(lora_rank=0), 0)[1], 1)
  made = lora.add_lora(model, base, seed=2)[2]
  adapters, frozen = lora.split_lora(made)
  return nnx.merge_state(shake(adapters, 3), frozen)


def _learner(options=OPTIONS, model=RANKED, params=None):
  params = _params(model) if params is None else params
  return Learner(model, options, seed=5, policy_params=params)


def _full(learner, options=OPTIONS):
  """A learner of all weights that says what `learner` says."""
  copied = jax.tree.map(jnp.copy, learner.policy_params)
  return Learner(PLAIN, options, seed=5, policy_params=copied)


def _chained(grads, adapters, at=''):
  """d A = s dW B^T and d B = s A^T dW, of W + s A B."""
  out = {}
  for path, a in adapters.items():
    if not path.endswith('lora_a'):
      continue
    stem = path.removesuffix('lora_a')
    b, whole = adapters[f'{stem}lora_b'], grads[f'{stem}kernel']
    out[path] = SCALE * whole @ b.T
    out[f'{stem}lora_b'] = SCALE * a.T @ whole
  return out


def _rows():
  rng = np.random.default_rng(0)
  made = []
  for _ in range(4):
    tokens = rng.integers(1, 64, 14).astype(np.int32)
    made.append((tokens, np.arange(14) > 4))
  return pack_conversations(
    made, row_tokens_buckets=(32,), max_tokens=256, rows_multiple=1, pad_id=0
  )


def _micros(learner, kind):
  """The micro-batches of a role's gradients, the same for both learners."""
  samples = make_samples(8)
  work = PackedBatch(learner._packer, samples)
  shape = len(samples), work.width
  rng = np.random.default_rng(1)
  draw = lambda: rng.normal(size=shape).astype(np.float32)  # noqa: E731
  names = {
    'policy': ('old_logp', 'ref_logp', 'advantages'),
    'value': ('old_values', 'returns'),
  }[kind]
  fields = {name: draw() - 3 * name.endswith('logp') for name in names}
  fields['scale'] = np.full(shape, 1 / 50, np.float32)
  return list(work.micros(work.all, fields))


@pytest.mark.parametrize('kind', ('policy', 'value'))
def test_gradients_are_those_of_all_weights_by_the_chain_rule(kind):
  learner = _learner()
  full = _full(learner)
  found, wanted = [], []
  for one, out in ((learner, found), (full, wanted)):
    roles, micros = one._roles, _micros(one, kind)
    if kind == 'policy':
      out.append(roles.policy_grads(micros, 0.1)[0])
    else:
      # The head begins at 0, where the trunk has no gradient.
      head = jnp.linspace(-1, 1, 32)
      roles.value = {**roles.value, 'head': head}
      out.append(roles.value_grads(micros)[0])
  got, whole = found[0], wanted[0]
  adapters = learner._roles.policy if kind == 'policy' else learner._roles.value
  want = _chained(whole, adapters)
  if kind == 'value':
    want['head'] = whole['head']
  assert got.keys() == want.keys()
  for path, value in want.items():
    assert np.abs(value).max() > 1e-4, path
    np.testing.assert_allclose(got[path], value, atol=1e-5, err_msg=path)


@pytest.mark.slow
def test_a_step_of_sft_is_adamw_on_the_chained_gradients():
  learner = _learner()
  full = _full(learner)
  rows = _rows()
  before = jax.tree.map(np.asarray, learner._roles.policy)
  full.start_sft(lr=1e-3)
  total = sum(float(b.mask.sum()) for b in rows)
  micros = [
    full._packer.put(
      {
        'tokens': b.tokens,
        'positions': b.positions,
        'segment_ids': b.segment_ids,
        'scale': (b.mask / total).astype(np.float32),
      }
    )
    for b in rows
  ]
  grads = _chained(full._roles.sft_grads(micros)[0], before)
  norm = float(optax.global_norm(grads))
  cut = min(1.0, OPTIONS.max_grad_norm / (norm + 1e-6))
  tx = optax.adamw(1e-3, weight_decay=OPTIONS.weight_decay)
  grads = jax.tree.map(lambda g: g * cut, grads)
  step = tx.update(grads, tx.init(before), before)[0]
  want = optax.apply_updates(before, step)
  learner.start_sft(lr=1e-3)
  metrics = learner.sft_step(rows)
  assert metrics['sft/grad_norm'] == pytest.approx(norm, rel=1e-4)
  for path, value in learner._roles.policy.items():
    np.testing.assert_allclose(value, want[path], atol=1e-5, err_msg=path)
    assert np.abs(value - before[path]).max() > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize('estimator', ('gae', 'grpo'))
def test_an_update_trains_adapters_and_head_and_leaves_the_base(estimator):
  options = dataclasses.replace(OPTIONS, estimator=estimator)
  learner = _learner(options)
  roles = learner._roles
  base = jax.tree.map(np.asarray, roles.frozen)
  before = jax.tree.map(np.asarray, roles.policy)
  full = _full(learner, options)
  got = learner.rl_update(make_samples(8))
  want = full.rl_update(make_samples(8))
  # What is computed before the first step depends on what the policy says alone.
  for name in ('actor/pg_loss', 'actor/kl_loss', 'critic/vf_loss'):
    if name in want:
      assert got[name] == pytest.approx(want[name], abs=1e-5), name
  assert got['actor/kl_loss'] == pytest.approx(0, abs=1e-6)
  jax.tree.map(np.testing.assert_array_equal, roles.frozen, base)
  for path, value in roles.policy.items():
    assert np.abs(value - before[path]).max() > 1e-6, path
  # The reference is the base with the adapters that RL began with.
  jax.tree.map(np.testing.assert_array_equal, roles.reference, before)
  assert learner.rl_update(make_samples(8))['actor/kl_loss'] > 1e-7


def _held() -> int:
  """Bytes of the device's arrays, each piece of memory once."""
  parts = [s.data for a in jax.live_arrays() for s in a.addressable_shards]
  return sum({p.unsafe_buffer_pointer(): p.nbytes for p in parts}.values())


def test_all_roles_share_one_base():
  model = RANKED.replace(hidden_size=128, intermediate_size=512, head_dim=32)
  params = _params(model)
  size = sum(leaf.nbytes for leaf in jax.tree.leaves(params))
  gc.collect()
  before = _held()
  learner = Learner(model, OPTIONS, policy_params=params)
  gc.collect()
  more = _held() - before
  roles = learner._roles
  for path, leaf in roles.value_frozen.items():
    assert leaf is roles.frozen[path.removeprefix('trunk/')]
  # Adapters, head and moments of two roles and the reference; the base is `params`'.
  assert more < 0.3 * size
  assert set(roles.reference) == set(roles.policy)


def test_what_is_handed_over_is_merged_and_rounded_once():
  model = RANKED.replace(dtype='bfloat16', param_dtype='bfloat16')
  learner = _learner(model=model)
  assert learner.sampled_config == model.replace(lora_rank=0)
  roles, got = learner._roles, weights.by_path(learner.policy_params)
  assert {v.dtype.name for v in roles.policy.values()} == {'float32'}
  for path, value in got.items():
    assert value.dtype == 'bfloat16'
    kernel = np.asarray(roles.frozen[path], np.float32)
    stem = path.removesuffix('kernel')
    if f'{stem}lora_a' in roles.policy:
      a, b = (np.asarray(roles.policy[f'{stem}lora_{n}']) for n in 'ab')
      kernel = kernel + SCALE * (a @ b)
      want = jnp.asarray(kernel).astype('bfloat16')
      # A sum in another order may fall on the other side of a rounding.
      same = np.mean(np.asarray(value) == np.asarray(want))
      assert same > 0.99, path
    else:
      assert value is roles.frozen[path]


@pytest.mark.slow
def test_a_full_sft_is_that_without_adapters_and_then_becomes_the_base():
  options = dataclasses.replace(OPTIONS, full_sft=True)
  whole = Learner(PLAIN, OPTIONS, seed=5)
  learner = Learner(RANKED, options, seed=5)
  with pytest.raises(ValueError, match='call start_rl'):
    learner.rl_update(make_samples(4))
  found = []
  for one in (whole, learner):
    one.start_sft(lr=1e-3)
    found.append([one.sft_step(_rows())['sft/loss'] for _ in range(2)])
  assert found[0] == found[1]
  same = np.testing.assert_array_equal
  jax.tree.map(same, whole.policy_params, learner.policy_params)
  assert learner.host_state().get('adapters') is None
  learner.start_rl()
  jax.tree.map(same, whole.policy_params, learner.policy_params)
  base = jax.tree.map(np.asarray, learner._roles.frozen)
  learner.rl_update(make_samples(8))
  jax.tree.map(same, learner._roles.frozen, base)
  assert learner.host_state()['adapters']['base']
  with pytest.raises(ValueError, match='make a new learner'):
    learner.start_sft()


def test_a_base_in_bfloat16_is_handed_over_in_it_before_and_after():
  """An engine takes weights of one type from its first to its last version."""
  model = RANKED.replace(dtype='bfloat16', param_dtype='bfloat16')
  learner = Learner(model, dataclasses.replace(OPTIONS, full_sft=True), seed=5)
  assert {v.dtype.name for v in learner._roles.policy.values()} == {'float32'}
  before = learner.policy_params
  learner.start_rl()
  jax.tree.map(np.testing.assert_array_equal, learner.policy_params, before)
  kinds = {leaf.dtype.name for leaf in jax.tree.leaves(before)}
  assert kinds == {'bfloat16'}
  assert learner.value_params['head'][...].dtype == 'float32'


def _bytes(folder):
  return sum(f.stat().st_size for f in folder.rglob('*') if f.is_file())


@pytest.mark.slow
def test_a_checkpoint_holds_a_twentieth_and_resumes_exactly(tmp_path):
  wide = dict(hidden_size=256, intermediate_size=1024, vocab_size=2048)
  plain, model = PLAIN.replace(**wide), RANKED.replace(**wide)
  sizes = []
  learners = [Learner(plain, OPTIONS), _learner(model=model)]
  for i, one in enumerate(learners):
    manager = CheckpointManager(tmp_path / str(i))
    one.rl_update(make_samples(4))
    sizes.append(_bytes(manager.save(1, one.state())))
  assert sizes[1] * 20 <= sizes[0]
  learner, again = learners[1], _learner(model=model)
  tree = manager.read(1, again.shapes(), before=again.let_go)
  again.load_state(tree)
  again.load_host_state(learner.host_state())
  assert not again.misfit(learner.host_state())
  for one in (learner, again):
    one.rl_update(make_samples(4, seed=1))
  jax.tree.map(np.testing.assert_array_equal, learner.state(), again.state())
  jax.tree.map(
    np.testing.assert_array_equal, learner.policy_params, again.policy_params
  )


@pytest.mark.parametrize(
  'change, said',
  [
    ({'rank': 8}, "the adapters' rank was 8 and is 3 here"),
    ({'targets': ['q']}, r"targets was \['q'\] and is \['q', 'down'\] here"),
    ({'alpha': 1.0}, 'alpha was 1.0 and is 6.0 here'),
    ({'base': 'ab'}, "base was 'ab' and is '[0-9a-f]{32}' here"),
  ],
)
def test_a_checkpoint_of_other_adapters_is_named(change, said):
  learner = _learner()
  state = learner.host_state()
  state['adapters'] = state['adapters'] | change
  assert re.search(said, learner.misfit(state))
  del state['adapters']
  assert 'it has all weights, and adapters' in learner.misfit(state)


def test_a_learner_of_all_weights_knows_nothing_of_adapters():
  learner = Learner(PLAIN, OPTIONS)
  assert set(learner.host_state()) == {'phase', 'nonfinite_in_a_row', 'shapes'}
  assert learner.misfit(learner.host_state()) == ''
  assert 'it has adapters' in learner.misfit({'adapters': {'rank': 1}})
  params = weights.by_path(learner.policy_params)
  assert all(params[p] is v for p, v in learner._roles.policy.items())


@pytest.mark.slow
def test_an_update_of_adapters_needs_a_fraction_of_the_memory():
  """Of the programs of an update, compiled; 34M weights, a row of 1,024 tokens."""
  plain = PLAIN.replace(
    vocab_size=8192,
    hidden_size=512,
    intermediate_size=2048,
    num_hidden_layers=8,
    num_attention_heads=8,
    num_key_value_heads=4,
    head_dim=64,
    scan_layers=True,
    remat='full',
    tie_word_embeddings=True,
  )
  options = dataclasses.replace(OPTIONS, row_tokens=(1024,), chunk_rows=256)
  most = []
  for model in (plain, plain.replace(lora_rank=16)):
    run = compiled.Run(model, options, 1, 1024)
    found = report.compiled_plan(
      run, sharding.make_mesh(), None, say=lambda line: None
    )
    programs = found['programs'].values()
    most.append(max(record['total_gb'] for record in programs))
  assert most[1] <= 0.6 * most[0]
