"""Adapters of PEFT: plain ones are read, every other kind stops by its name.

The right values were taken with peft 0.21.2, which is not among the tests'
packages; what it saves is written here by hand.
"""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest
from flax import nnx

from jaxagent.models import init_decoder, lora
from tests.models.conftest import make_config, shake

CONFIG = make_config(lora_rank=2, lora_alpha=8.0, lora_targets=('q', 'down'))
# adapter_config.json of peft 0.21.2 for a plain adapter, whole.
PLAIN = {
  'alora_invocation_tokens': None, 'alpha_pattern': {}, 'arrow_config': None,
  'auto_mapping': None, 'base_model_name_or_path': 'Qwen/Qwen2.5-0.5B',
  'bias': 'none', 'corda_config': None, 'ensure_weight_tying': False,
  'eva_config': None, 'exclude_modules': None, 'fan_in_fan_out': False,
  'inference_mode': True, 'init_lora_weights': True, 'kasa_config': None,
  'layer_replication': None, 'layers_pattern': None, 'layers_to_transform': None,
  'loftq_config': {}, 'lora_alpha': 8, 'lora_bias': False, 'lora_dropout': 0.05,
  'lora_ga_config': None, 'megatron_config': None,
  'megatron_core': 'megatron.core', 'modules_to_save': None,
  'monteclora_config': None, 'peft_type': 'LORA', 'peft_version': '0.21.2',
  'qalora_group_size': 16, 'r': 2, 'rank_pattern': {}, 'revision': None,
  'target_modules': ['down_proj', 'q_proj'], 'target_parameters': None,
  'task_type': 'CAUSAL_LM', 'trainable_token_indices': None, 'use_bdlora': None,
  'use_dora': False, 'use_qalora': False, 'use_rslora': False,
  'velora_config': None,
}  # fmt: skip


@pytest.fixture(scope='module')
def base():
  return shake(init_decoder(CONFIG.replace(lora_rank=0), 0)[1])


@pytest.fixture
def folder(tmp_path, base):
  _save(tmp_path, base, CONFIG)
  return tmp_path


def _save(folder, base, config):
  params = shake(lora.add_lora(config, base, seed=1)[2], 5)
  lora.save_peft(folder, config, params)
  (folder / 'adapter_config.json').write_text(json.dumps(PLAIN))
  return params


def _load(folder, base, **changes):
  record = {k: v for k, v in (PLAIN | changes).items() if v != 'DROP'}
  (folder / 'adapter_config.json').write_text(json.dumps(record))
  return lora.load_peft(folder, CONFIG.replace(lora_rank=0), base)


def test_fresh_adapters_begin_as_those_of_peft(base):
  """`init_lora_weights=True`: A is uniform up to 1 / sqrt(fan-in), B is zero."""
  config = CONFIG.replace(lora_rank=64)
  made = dict(nnx.to_flat_state(lora.add_lora(config, base, seed=1)[2]))
  for target in ('q', 'down'):
    for layer in range(config.num_hidden_layers):
      at = ('layers', layer, target)
      a, b = (np.asarray(made[*at, n][...]) for n in ('lora_a', 'lora_b'))
      bound = a.shape[0] ** -0.5
      assert 0.99 * bound < abs(a).max() <= bound and not b.any()
      assert a.std() == pytest.approx(bound / 3**0.5, rel=0.05)


@pytest.mark.parametrize('scan_layers', (True, False))
def test_no_fresh_adapter_has_the_order_of_a_weight_of_its_seed(scan_layers):
  config = CONFIG.replace(scan_layers=scan_layers)
  base = init_decoder(config.replace(lora_rank=0), 3)[1]
  drawn: dict[str, list] = {'lora_a': [], 'kernel': [], 'embed': []}
  for path, leaf in nnx.to_flat_state(lora.add_lora(config, base, seed=3)[2]):
    if path[-1] in drawn:
      drawn[path[-1]].append(np.asarray(leaf[...]).ravel()[:90].argsort())
  assert drawn['lora_a'] and drawn['kernel'] and drawn['embed']
  for order in drawn.pop('lora_a'):
    for other in sum(drawn.values(), []):
      assert (order == other).mean() < 0.2


def test_a_plain_adapter_is_scaled_by_alpha_over_r(tmp_path, base):
  config, _, params = lora.add_lora(CONFIG, base, seed=1)
  params = shake(params, 5)
  lora.save_peft(tmp_path, config, params)
  got, _, loaded = _load(tmp_path, base, lora_alpha=6)
  assert (got.lora_rank, got.lora_alpha, got.lora_targets) == (
    2,
    6.0,
    ('q', 'down'),
  )
  leaves = dict(nnx.to_flat_state(loaded))
  at = ('layers', 1, 'q')
  a, b = (np.asarray(leaves[*at, n][...]) for n in ('lora_a', 'lora_b'))
  kernel = np.asarray(leaves[*at, 'kernel'][...])
  merged = dict(nnx.to_flat_state(lora.merge_lora(got, loaded)[2]))
  np.testing.assert_allclose(
    merged[*at, 'kernel'][...], kernel + 3.0 * a @ b, atol=1e-5
  )


def test_a_rank_stabilized_adapter_is_scaled_by_alpha_over_the_root(
  folder, base
):
  got, _, params = _load(folder, base, use_rslora=True)
  assert got.lora_alpha / got.lora_rank == pytest.approx(8 / 2**0.5)
  plain = _load(folder, base)[2]
  jax.tree.map(np.testing.assert_array_equal, params, plain)
  with pytest.raises(ValueError, match="use_rslora='yes' must be true"):
    _load(folder, base, use_rslora='yes')


@pytest.mark.parametrize(
  'init', (True, False, None, 'gaussian', 'orthogonal', 'eva', 'mica', 'DROP')
)
def test_ways_to_begin_that_leave_the_base_are_read(folder, base, init):
  want = _load(folder, base)[2]
  got = _load(folder, base, init_lora_weights=init)[2]
  jax.tree.map(np.testing.assert_array_equal, got, want)


@pytest.mark.parametrize(
  'change',
  [
    {'init_lora_weights': 'pissa'},
    {'init_lora_weights': 'pissa_niter_4'},
    {'init_lora_weights': 'olora'},
    {'init_lora_weights': 'corda'},
    {'init_lora_weights': 'loftq'},
    {'init_lora_weights': 'lora_ga'},
    {'alora_invocation_tokens': [151644, 77091]},
    {'use_dora': True},
    {'use_qalora': True},
    {'use_bdlora': {'nblocks': 2}},
    {'rank_pattern': {'q_proj': 4}},
    {'alpha_pattern': {'q_proj': 4}},
    {'modules_to_save': ['lm_head']},
    {'bias': 'all'},
    {'bias': 'lora_only'},
    {'lora_bias': True},
    {'layers_to_transform': [0]},
    {'layers_to_transform': 0},
    {'layer_replication': [[0, 2], [0, 2]]},
    {'trainable_token_indices': [3]},
    {'target_parameters': ['mlp.up_proj.weight']},
    {'fan_in_fan_out': True},
    {'megatron_config': {'a': 1}},
    {'corda_config': {'sample_count': 1}},
    {'loftq_config': {'loftq_bits': 4}},
    {'lora_ga_config': {'scale': 'stable'}},
    {'kasa_config': {'beta': 1e-4}},
    {'velora_config': {'rank': 1}},
    {'monteclora_config': {'num_samples': 8}},
    {'arrow_config': {'top_k': 3}},
    {'ensure_weight_tying': True},
    {'task_type': 'SEQ_CLS'},
    {'some_later_option': 0.5},
    {'some_later_number': 0},
  ],
)
def test_what_is_no_plain_adapter_stops_by_its_name(folder, base, change):
  ((key, value),) = change.items()
  with pytest.raises(
    ValueError, match='not implemented.*merge_and_unload'
  ) as error:
    _load(folder, base, **change)
  assert f'{key}={value!r}' in str(error.value)
  assert '\n' not in str(error.value)


@pytest.mark.parametrize('kind', ('IA3', 'LOHA', 'DROP', None))
def test_another_kind_of_adapter_stops_by_its_name(folder, base, kind):
  with pytest.raises(ValueError, match="peft_type=.*only 'LORA'"):
    _load(folder, base, peft_type=kind)


@pytest.mark.parametrize(
  'change',
  (
    {'r': '2'}, {'r': True}, {'r': 0}, {'r': 2.0}, {'r': 'DROP'},
    {'lora_alpha': None}, {'lora_alpha': '8'}, {'lora_alpha': 0},
    {'lora_alpha': float('nan')}, {'lora_alpha': float('inf')},
    {'lora_alpha': 10**400}, {'r': 10**400}, {'r': 2**40},
  ),
)  # fmt: skip
def test_rank_and_alpha_are_numbers(folder, base, change):
  with pytest.raises(
    ValueError, match=f'{next(iter(change))}=.*number above 0'
  ):
    _load(folder, base, **change)


ALL = ('q', 'k', 'v', 'o', 'gate', 'up', 'down')


@pytest.mark.parametrize(
  'wanted, without, targets',
  [
    (r'.*\.(q|v)_proj', None, ('q', 'v')),
    (r'model\.layers\.\d+\.mlp\.(up|down)_proj', None, ('up', 'down')),
    (r'.*_proj', None, ALL),
    (r'.*_proj', r'.*mlp.*', ('q', 'k', 'v', 'o')),
    ('all-linear', None, ALL),
    ('ALL-LINEAR', ['o_proj'], ('q', 'k', 'v', 'gate', 'up', 'down')),
    (['self_attn.q_proj', 'up_proj'], None, ('q', 'up')),
    (['q_proj', 'v_proj'], ['v_proj'], ('q',)),
    (
      [f'model.layers.{i}.self_attn.q_proj' for i in range(2)],
      [],
      ('q',),
    ),
  ],
)
def test_modules_are_found_as_peft_finds_them(
  tmp_path, base, wanted, without, targets
):
  config = CONFIG.replace(lora_targets=targets)
  want = _save(tmp_path, base, config)
  got, _, params = _load(
    tmp_path, base, target_modules=wanted, exclude_modules=without
  )
  assert got.lora_targets == targets
  got, want = lora.split_lora(params)[0], lora.split_lora(want)[0]
  jax.tree.map(np.testing.assert_array_equal, got, want)


@pytest.mark.parametrize(
  'wanted, said',
  [
    (r'model\.layers\.1\..*_proj', 'model.layers.1.self_attn.q_proj but not'),
    (['layers.0.mlp.up_proj'], 'model.layers.0.mlp.up_proj but not'),
    (['q_proj', 'lm_head'], 'lm_head but not'),
    (['embed_tokens'], 'model.embed_tokens but not'),
    (r'.*', 'lm_head but not'),
    (['q_proj', 'c_attn'], r"\['c_attn'\] unknown; choose from"),
    ('q_proj', 'q_proj unknown; choose from'),
    ([], r'\[\] unknown; choose from'),
    (None, 'must be a list of names or a regular expression'),
    ('(q_proj', 'must be a list of names or a regular expression'),
    ([3], 'must be a list of names or a regular expression'),
  ],
)
def test_modules_that_cannot_be_are_named(folder, base, wanted, said):
  with pytest.raises(ValueError, match=said):
    _load(folder, base, target_modules=wanted)


def test_pickle_is_refused(folder, base):
  file = folder / 'adapter_model.safetensors'
  file.rename(folder / 'adapter_model.bin')
  with pytest.raises(FileNotFoundError, match='pickle'):
    _load(folder, base)
