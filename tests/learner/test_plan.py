"""The plan's arithmetic against hand computations."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import jax
import pytest

from benchmarks import learner_step
from configs import rl_for_mle, stepwise_ppo
from jaxagent import plan as plan_lib
from jaxagent.models.config import ModelConfig
from jaxagent.recipes import dry_run
from jaxagent.rollout.engines import (
  native_engine,
  native_programs,
  prompt_rows,
)
from jaxagent.runtime import engines

ROOT = pathlib.Path(__file__).parents[2]

QWEN_7B = ModelConfig(
  vocab_size=152064,
  hidden_size=3584,
  intermediate_size=18944,
  num_hidden_layers=28,
  num_attention_heads=28,
  num_key_value_heads=4,
  head_dim=128,
  tie_word_embeddings=False,
  dtype='bfloat16',
  remat='full',
)


def _plan(model, mesh, **options):
  return plan_lib.plan(model, mesh, plan_lib.PlanOptions(**options))


def test_parameters_are_the_published_ones():
  # Qwen2.5-7B: 7,615,616,512 weights in the released checkpoint.
  assert QWEN_7B.num_params() == 7_615_616_512


def test_memory_by_hand():
  found = _plan(QWEN_7B, {'fsdp': 8})
  n = 7_615_616_512
  memory = found['memory_per_device']
  assert memory['policy'] == 4 * n / 8
  assert memory['policy_optimizer'] == 8 * n / 8
  assert memory['gradients'] == 4 * n / 8
  assert memory['reference'] == 4 * n / 8
  value = n - 152064 * 3584 + 3584
  assert memory['value'] == 4 * value / 8
  assert memory['value_optimizer'] == 8 * value / 8
  # 2048 tokens a device in bf16: 28 residuals, then either the logits of 1024
  # tokens and the table's gradient, twice, beside the gathered table, or two insides
  # and all gradients beside two gathered layers.
  inside = 2 * 2048 * (4 * 3584 + 2 * 3584 + 2 * 512 + 3 * 18944)
  logits = 2 * 4 * (1024 + 3584) * 152064 + 2 * 152064 * 3584
  residuals = 28 * 2 * 2048 * 3584
  backward = 2 * inside + memory['gradients']
  backward += 2 * 2 * (n - 2 * 152064 * 3584) / 28
  assert logits > backward
  assert memory['activations'] == residuals + logits
  many = _plan(QWEN_7B, {'fsdp': 8}, chunk_rows=64, micro_batch_tokens=4096)
  backward += 2 * inside
  assert many['memory_per_device']['activations'] == 2 * residuals + backward


def test_scores_count_where_they_are_arrays():
  def activations(device, row=4096.0, **changes):
    found = _plan(
      QWEN_7B.replace(**changes),
      {'fsdp': 8},
      device=device,
      tokens_per_sample=row,
      chunk_rows=64,
    )
    return found['memory_per_device']['activations']

  scores = 12.7 * 28 * 4096 * 4096  # a row is longer than micro_batch_tokens
  flash = activations('a100')
  assert activations('h200') == flash < activations('a100', row=8192.0)
  for device, changes in (
    ('a100', {'attention': 'xla'}),
    ('tpu-v5p', {'attention': 'xla'}),
  ):
    more = activations(device, **changes) - flash
    assert more == pytest.approx(scores)


def _measured():
  text = (ROOT / 'benchmarks/results/learner_step.json').read_text()
  rows = json.loads(text)['rows']
  return [r for r in rows if r['trainer'] == 'jaxagent']


@pytest.mark.parametrize('row', _measured(), ids=lambda row: row['arm'])
def test_memory_is_what_was_measured(row):
  """Within a tenth of the allocator's peak on an H200."""
  planned = learner_step.planned(row) / 1e9
  assert planned == pytest.approx(row['peak_gb'], rel=0.1)


def test_a_critic_of_its_own_counts_with_its_own_size():
  critic = QWEN_7B.replace(
    num_hidden_layers=4, hidden_size=7168, num_attention_heads=56
  )
  found = _plan(QWEN_7B, {'fsdp': 8}, critic=critic)
  same = _plan(QWEN_7B, {'fsdp': 8})
  size = critic.num_params() - 152064 * 7168 + 7168
  memory = found['memory_per_device']
  assert memory['value'] == 4 * size / 8
  assert memory['policy'] == same['memory_per_device']['policy']
  assert found['flops_per_update'] < same['flops_per_update']
  with pytest.raises(ValueError, match='does not divide'):
    few = critic.replace(num_attention_heads=30, num_key_value_heads=2)
    _plan(QWEN_7B, {'tensor': 4}, critic=few)


@pytest.mark.parametrize('scanned', [False, True])
def test_the_engines_cache_has_its_shape(scanned):
  model = QWEN_7B.replace(scan_layers=scanned)
  spare = max(native_engine._STEPS_BESIDE, prompt_rows.BLOCK)
  cache = jax.eval_shape(
    lambda: native_programs.empty_cache(model, 16, 2048 + spare)
  )
  bytes_ = sum(a.size * a.dtype.itemsize for a in jax.tree.leaves(cache))
  assert plan_lib.cache_bytes(model, 16, 2048) == bytes_
  # Whole on a device, whatever the mesh, and once more for a round of decoding.
  for mesh in ({'fsdp': 8}, {'fsdp': 2, 'tensor': 4}):
    found = _plan(model, mesh, engine_slots=16)
    memory = found['memory_per_device']
    assert memory['engine_cache'] == memory['engine_round'] == bytes_
    without = _plan(model, mesh)
    more = found['need_bytes'] - without['need_bytes']
    # Where nothing reads the old policy on, the new one lies where activations were.
    assert without['memory_per_device']['policy_copy'] == 0
    assert more == pytest.approx(2 * bytes_ + memory['policy_copy'])


def _native_on_tpus(slots: int):
  config = stepwise_ppo.get_config('qwen2.5-7b')
  config.mesh.fsdp = 8
  config.rollout.engine = 'native'
  config.rollout.max_num_seqs = slots
  return dry_run.plan_of(config, device='tpu-v5p', device_gb=95.0)


def test_the_native_engine_counts_with_its_slots():
  # 28 layers, 4 heads of 128, keys and values, 2 bytes; 32 columns to spare.
  column = 28 * 4 * 128 * 2 * 2
  for slots in (16, 0):
    memory = _native_on_tpus(slots)['memory_per_device']
    texts = slots or engines.SLOTS
    assert memory['engine_cache'] == texts * (12288 + 2048 + 32) * column
  # vLLM's servers have their caches in memory of their own.
  served = dry_run.plan_of(stepwise_ppo.get_config('qwen2.5-7b'))
  assert 'engine_cache' not in served['memory_per_device']


def test_slots_of_the_tpu_launcher_fit():
  assert _native_on_tpus(16)['fits']
  found = _native_on_tpus(0)
  assert not found['fits'] and 'lower rollout.max_num_seqs' in found['advice']


def test_flops_by_hand():
  # Body 6,525,621,760 and the output table; causal attention over 1000.
  body = 7_615_616_512 - 2 * 152064 * 3584
  attention = 4 * 28 * 28 * 128 * 500
  want = 2 * (body + 152064 * 3584) + attention
  assert plan_lib.flops_per_token(QWEN_7B, 1000) == want


def test_lora_trains_the_adapters_alone():
  model = QWEN_7B.replace(lora_rank=32)
  per_layer = 2 * (3584 + 3584) + 2 * (3584 + 512) + 3 * (3584 + 18944)
  assert plan_lib.trained_params(model) == 32 * 28 * per_layer


def test_says_by_how_much_it_does_not_fit():
  found = _plan(QWEN_7B, {'fsdp': 8}, device_gb=20)
  assert not found['fits']
  short = found['need_bytes'] - 20e9 * 0.92
  assert found['short_bytes'] == pytest.approx(short)
  advice = f'short by {short / 1e9:.1f} GB a device: '
  assert found['advice'] == advice + 'raise mesh.fsdp'
  found = _plan(
    QWEN_7B.replace(remat='none'),
    {'fsdp': 8},
    device_gb=60,
    micro_batch_tokens=4096,
  )
  assert found['advice'].endswith(
    'set model.remat=full; halve rl.micro_batch_tokens; raise mesh.fsdp'
  )
  moved = _plan(QWEN_7B, {'fsdp': 8}, offload=('reference',))
  assert 'reference' not in moved['memory_per_device']
  assert moved['host_memory_per_device']['reference'] > 0


def test_a_device_passes_its_own_tokens_or_one_longer_row():
  def activations(**options):
    found = _plan(QWEN_7B, {'data': 2, 'fsdp': 8}, **options)
    return found['memory_per_device']['activations']

  # As many on one device alone: the mesh does not divide them.
  alone = _plan(QWEN_7B, {'fsdp': 8}, micro_batch_tokens=8192)
  assert (
    activations(micro_batch_tokens=8192)
    == (alone['memory_per_device']['activations'])
  )
  longer = activations(micro_batch_tokens=2048, tokens_per_sample=8192.0)
  assert longer == activations(micro_batch_tokens=8192)


def test_a_reference_in_bfloat16_is_half():
  full = _plan(QWEN_7B, {'fsdp': 8})['memory_per_device']
  half = _plan(QWEN_7B, {'fsdp': 8}, reference_dtype='bfloat16')
  assert half['memory_per_device']['reference'] == full['reference'] / 2


def test_what_is_offloaded_counts_where_it_is_used():
  def of(*roles):
    return _plan(QWEN_7B, {'fsdp': 8}, offload=roles)

  whole = of()
  sizes = whole['memory_per_device']
  # Beside the activations of its own pass.
  found = of('reference')
  assert found['memory_per_device']['brought_back'] == sizes['reference']
  assert found['need_bytes'] == pytest.approx(whole['need_bytes'])
  # Two that are not used together; moments come when activations have gone.
  found = of('reference', 'value', 'policy_optimizer', 'value_optimizer')
  together = sizes['value'] + sizes['value_optimizer']
  brought = found['memory_per_device']['brought_back']
  assert brought == pytest.approx(
    max(together - sizes['activations'], sizes['reference'])
  )
  saved = whole['need_bytes'] - found['need_bytes']
  assert saved > sizes['policy_optimizer']


def test_the_policys_copy_is_not_there_where_it_is_donated():
  donated = _plan(QWEN_7B, {'fsdp': 8}, donate=True)
  assert donated['memory_per_device']['policy_copy'] == 0


def test_refuses_a_mesh_that_does_not_divide():
  with pytest.raises(ValueError, match='num_attention_heads=28.*tensor=8'):
    _plan(QWEN_7B, {'tensor': 8})
  with pytest.raises(ValueError, match='device='):
    _plan(QWEN_7B, {}, device='abacus')


def test_command_prints_the_plan():
  out = subprocess.run(
    [
      sys.executable,
      '-m',
      'jaxagent.plan',
      '--config=configs/stepwise_ppo.py:qwen2.5-7b',
    ],
    capture_output=True,
    text=True,
  )
  assert '7.616B parameters' in out.stdout, out.stderr
  assert 'policy_optimizer' in out.stdout


def test_with_adapters_all_roles_share_one_base():
  model = QWEN_7B.replace(
    lora_rank=32, dtype='bfloat16', param_dtype='bfloat16'
  )
  found = _plan(model, {'fsdp': 1})
  trained, memory = plan_lib.trained_params(model), found['memory_per_device']
  assert memory['policy'] == 2 * 7_615_616_512 + 4 * trained
  assert memory['value'] == 4 * (trained + 3584)
  assert memory['reference'] == memory['gradients'] == 4 * trained
  # What samples has kernels of its own, and new ones beside them for a moment; vLLM's
  # client keeps them for a server that comes again.
  kernels = 28 * (2 * 3584 * (3584 + 512) + 3 * 3584 * 18944)
  assert plan_lib.merged_params(model) == kernels
  for slots in (0, 4):
    served = _plan(model, {'fsdp': 1}, engine_slots=slots)['memory_per_device']
    assert served['engine_weights'] == 2 * kernels
    more = 2 * kernels - served['activations']
    assert served['engine_merge'] == pytest.approx(more)


def test_a_full_sft_before_adapters_is_planned_where_it_needs_more():
  config = rl_for_mle.get_config('qwen2.5-7b-lora')
  ranked = dry_run.plan_of(config)
  assert ranked['need_bytes'] < 50e9
  config.model.lora.stages = ('rl',)
  # The variant has no SFT, so nothing makes room for one.
  assert dry_run.plan_of(config) == ranked
  config.solution.programs, config.sft.epochs = 8, 1
  found = dry_run.plan_of(config)
  memory, weights = found['memory_per_device'], found['params']
  assert memory['policy'] == 4 * weights
  assert memory['policy_optimizer'] == 8 * weights
  assert memory['engine_weights'] == 2 * weights  # rounded, for the sampler
  config.rollout.engine = 'native'
  native = dry_run.plan_of(config)['memory_per_device']
  assert native['policy_copy'] == 0 and native['engine_cache'] > 0
  assert not {'value', 'reference'} & set(memory)
  assert not found['fits'] and found['need_bytes'] == sum(memory.values())
  assert 'short by' in found['advice']
  assert 'SFT of all weights' in plan_lib.memory_lines(found)[0]


def test_no_gradient_of_a_frozen_table_is_planned():
  """Nor anything of an engine's own where no adapters are."""
  table = 2 * 4 * 3584 * 152064
  full, ranked = QWEN_7B.replace(remat='full'), QWEN_7B.replace(lora_rank=8)
  peaks = [
    plan_lib.activation_bytes(m.replace(remat='full'), 2048, 1024)
    for m in (full, ranked)
  ]
  assert peaks[0] - peaks[1] == pytest.approx(table)
  found = _plan(full, {'fsdp': 8}, engine_slots=4)['memory_per_device']
  assert not {'engine_weights', 'engine_merge'} & set(found)
