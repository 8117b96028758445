"""A base's digest: the same however the weights lie, another for any other value."""

from __future__ import annotations

import jax
import pytest

from jaxagent.devices import sharding
from jaxagent.models import hf, identity, init_decoder
from tests.models.conftest import make_config, shake


def _flat(params):
  leaves = jax.tree_util.tree_flatten_with_path(params)[0]
  return {sharding.path_of(path): leaf for path, leaf in leaves}


@pytest.fixture(scope='module')
def saved(tmp_path_factory):
  """(config, weights that bfloat16 can hold, their folder in bfloat16)."""
  config = make_config('qwen3', tied=False)
  params = shake(init_decoder(config, 0)[1])
  params = jax.tree.map(
    lambda a: a.astype('bfloat16').astype('float32'), params
  )
  folder = tmp_path_factory.mktemp('hf') / 'model'
  hf.save_hf(folder, config, params, dtype='bfloat16')
  return config, params, folder


@pytest.mark.slow
def test_neither_layout_nor_type_nor_place_changes_it(saved):
  config, params, folder = saved
  want = identity.digest(config, _flat(params))
  assert len(want) == 32
  narrow = jax.tree.map(lambda a: a.astype('bfloat16'), params)
  assert identity.digest(config, _flat(narrow)) == want
  for scan in (False, True):
    made, _, loaded = hf.load_hf(folder, scan_layers=scan)
    assert identity.digest(made, _flat(loaded)) == want
  for dtype in ('float32', 'bfloat16'):
    stored = config.replace(param_dtype=dtype)
    assert identity.folder_digest(folder, stored) == want


def test_adapters_beside_a_base_do_not_count(saved):
  config, params, _ = saved
  flat = _flat(params)
  beside = flat | {'layers/0/q/lora_a': flat['embed']}
  ranked = config.replace(lora_rank=4)
  assert identity.digest(ranked, beside) == identity.digest(config, flat)


@pytest.mark.parametrize('path', ['embed', 'layers/1/q/kernel', 'norm/scale'])
def test_one_other_element_gives_another_digest(saved, path):
  config, params, _ = saved
  flat = _flat(params)
  value = flat[path]
  last = (-1,) * value.ndim
  other = flat | {path: value.at[last].add(2.0**-6)}
  assert identity.digest(config, other) != identity.digest(config, flat)


def test_the_same_values_in_another_order_give_another_digest(saved):
  config, params, _ = saved
  flat = _flat(params)
  want = identity.digest(config, flat)
  a, b = 'layers/0/up/kernel', 'layers/0/gate/kernel'
  assert identity.digest(config, flat | {a: flat[b], b: flat[a]}) != want
  assert identity.digest(config, flat | {a: flat[a][:, ::-1]}) != want


def test_a_digest_takes_less_room_than_the_layers_it_is_of():
  """Nothing else may be on a device that a base just fits."""
  layers = jax.ShapeDtypeStruct((32, 128, 256), 'float32')
  made = identity._sums.lower(layers, True).compile()
  assert made.memory_analysis().temp_size_in_bytes < 0.25 * layers.size * 4
