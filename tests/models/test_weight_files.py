"""Which weights count, that they are copies, and what is wrong with a file."""

from __future__ import annotations

import json
import logging
import re
import shutil

import jax
import ml_dtypes
import numpy as np
import pytest
from safetensors import numpy as stnp

from jaxagent.models import __main__ as cli
from jaxagent.models import hf, init_decoder, lora
from jaxagent.models import safetensors_io as st
from tests.models.conftest import make_config, shake
from tests.subset import fast

POINTER = (
  'version https://git-lfs.github.com/spec/v1\n'
  'oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n'
  'size 12345\n'
)
INDEX = 'model.safetensors.index.json'


@pytest.fixture(scope='module')
def saved(tmp_path_factory):
  """(config, folder) of a model in one file."""
  config = make_config()
  folder = tmp_path_factory.mktemp('weights') / 'm'
  hf.save_hf(folder, config, shake(init_decoder(config, 0)[1]))
  return config, folder


@pytest.fixture
def folder(saved, tmp_path):
  return shutil.copytree(saved[1], tmp_path / 'm')


def _shards(folder, values=0.0):
  """Two shards with the same names, all elements `values`, and their index."""
  old = stnp.load_file(folder / st.WHOLE)
  names = sorted(old)
  shards = {
    n: f'model-0000{1 + i % 2}-of-00002.safetensors'
    for i, n in enumerate(names)
  }
  for shard in set(shards.values()):
    tensors = {
      n: np.full_like(old[n], values) for n in names if shards[n] == shard
    }
    stnp.save_file(tensors, folder / shard)
  index = {'metadata': {}, 'weight_map': shards}
  (folder / INDEX).write_text(json.dumps(index))


@pytest.mark.parametrize('there', (True, False))
def test_a_whole_file_counts_before_an_older_index(folder, there, caplog):
  _shards(folder)
  if not there:
    for shard in folder.glob('model-0*'):
      shard.unlink()
  with caplog.at_level(logging.WARNING):
    _, _, params = hf.load_hf(folder)
  want = stnp.load_file(folder / st.WHOLE)['model.embed_tokens.weight']
  np.testing.assert_array_equal(params['embed'], want)
  assert st.WHOLE in caplog.text and INDEX in caplog.text


def test_the_same_file_counts_in_transformers(folder):
  transformers = pytest.importorskip('transformers')
  pytest.importorskip('torch')
  _shards(folder)
  theirs = transformers.AutoModelForCausalLM.from_pretrained(folder)
  got = theirs.get_input_embeddings().weight.detach().numpy()
  np.testing.assert_array_equal(hf.load_hf(folder)[2]['embed'], got)


def test_shards_count_where_there_is_no_whole_file(folder):
  _shards(folder, 0.5)
  (folder / st.WHOLE).unlink()
  assert bool((hf.load_hf(folder)[2]['embed'][...] == 0.5).all())


@pytest.mark.parametrize(
  'name', ('model-00001-of-00002.safetensors', 'x.safetensors')
)
def test_a_file_that_nothing_names_is_not_loaded(folder, name):
  (folder / st.WHOLE).rename(folder / name)
  with pytest.raises(FileNotFoundError, match=f'no {st.WHOLE} and no .*{name}'):
    hf.load_hf(folder)


def _aligned(file):
  """Makes the data of a file begin at a multiple of 64 bytes."""
  raw = file.read_bytes()
  length = int.from_bytes(raw[:8], 'little')
  more = -(8 + length) % 64
  header = raw[8 : 8 + length] + b' ' * more
  file.write_bytes(
    len(header).to_bytes(8, 'little') + header + raw[8 + length :]
  )


def _write_over(file):
  """Other values at the same place: what a second save in place does."""
  length = int.from_bytes(file.read_bytes()[:8], 'little')
  with open(file, 'r+b') as handle:
    handle.seek(8 + length)
    handle.write(b'\0' * (file.stat().st_size - 8 - length))


@pytest.mark.parametrize('scan', (False, True))
def test_loaded_weights_are_no_view_of_the_file(folder, scan):
  _aligned(folder / st.WHOLE)
  _, _, params = hf.load_hf(folder, scan_layers=scan)
  before = jax.tree.map(np.array, params)
  _write_over(folder / st.WHOLE)
  jax.tree.map(np.testing.assert_array_equal, params, before)
  assert all(np.any(leaf) for leaf in jax.tree.leaves(before))


@pytest.mark.parametrize('rank', (1, 4))
def test_loaded_adapters_are_no_view_of_the_file(tmp_path, rank):
  config = make_config(lora_rank=rank, lora_targets=('q', 'down'))
  base = init_decoder(config.replace(lora_rank=0), 0)[1]
  lora.save_peft(
    tmp_path, config, shake(lora.add_lora(config, base, seed=1)[2])
  )
  _aligned(tmp_path / 'adapter_model.safetensors')
  params = lora.load_peft(tmp_path, config, base)[2]
  before = jax.tree.map(np.array, params)
  _write_over(tmp_path / 'adapter_model.safetensors')
  jax.tree.map(np.testing.assert_array_equal, params, before)


@pytest.mark.parametrize('dtype', (np.float32, np.float16, ml_dtypes.bfloat16))
@pytest.mark.parametrize('value', (np.nan, np.inf, -np.inf))
def test_what_is_not_finite_is_named(folder, dtype, value):
  name = 'model.layers.1.mlp.up_proj.weight'
  tensors = stnp.load_file(folder / st.WHOLE)
  tensors = {n: t.astype(dtype) for n, t in tensors.items()}
  stnp.save_file(tensors, folder / st.WHOLE)
  hf.load_hf(folder)
  tensors[name][3, 4] = value
  stnp.save_file(tensors, folder / st.WHOLE)
  for read in (hf.load_hf, hf.check_folder):
    with pytest.raises(ValueError, match=f'{st.WHOLE}: {name} has NaN or inf'):
      read(folder)


def test_what_is_not_finite_in_an_adapter_is_named(tmp_path):
  config = make_config(lora_rank=2, lora_targets=('q',))
  base = init_decoder(config.replace(lora_rank=0), 0)[1]
  lora.save_peft(tmp_path, config, lora.add_lora(config, base, seed=1)[2])
  file = tmp_path / 'adapter_model.safetensors'
  tensors = stnp.load_file(file)
  name = sorted(tensors)[0]
  tensors[name][0, 0] = np.nan
  stnp.save_file(tensors, file)
  with pytest.raises(ValueError, match=f'NaN or infinite elements in {name}'):
    lora.load_peft(tmp_path, config, base)


DAMAGES = (
  (POINTER.encode(), 'Git LFS pointer.*git lfs pull'),
  (b'', 'empty|truncated'),
  (b'{"a": 1', 'not JSON.*copy it again|truncated'),
  ('{"a": "é"}'.encode('latin-1'), 'not UTF-8|truncated'),
  ('{"a": 1}'.encode('utf-16'), 'not UTF-8|truncated'),
  (b'\xef\xbb\xbf{"a": 1}', 'not JSON|truncated'),
  (b'[1, 2]', 'holds a list, not an object|truncated'),
  (b'[' * 20_000, 'not JSON|truncated'),
)


@pytest.mark.parametrize('raw, said', DAMAGES)
@pytest.mark.parametrize(
  'name', ('config.json', INDEX, 'tokenizer.json', st.WHOLE)
)
def test_a_damaged_file_is_named_in_one_line(
  folder, capsys, tmp_path, name, raw, said
):
  if name == INDEX:
    (folder / st.WHOLE).unlink()
  (folder / name).write_bytes(raw)
  command = ['import', f'--model={folder}', f'--out={tmp_path / "out"}']
  assert cli.main(command) == 2
  error = capsys.readouterr().err
  assert error.count('\n') == 1 and f'{folder / name}: ' in error
  assert re.search(said, error), error


@pytest.mark.parametrize('raw, said', fast(DAMAGES, first=2))
@pytest.mark.parametrize(
  'name', ('adapter_config.json', 'adapter_model.safetensors')
)
def test_a_damaged_adapter_is_named_in_one_line(tmp_path, name, raw, said):
  config = make_config(lora_rank=2, lora_targets=('q',))
  base = init_decoder(config.replace(lora_rank=0), 0)[1]
  lora.save_peft(tmp_path, config, lora.add_lora(config, base, seed=1)[2])
  (tmp_path / name).write_bytes(raw)
  with pytest.raises(ValueError, match=said) as error:
    lora.load_peft(tmp_path, config, base)
  assert str(error.value).startswith(f'{tmp_path / name}: ')
  assert '\n' not in str(error.value)


@pytest.mark.parametrize(
  'header',
  (
    {'a': 3},
    {'a': {'dtype': 'F32', 'shape': [2], 'data_offsets': [0]}},
    {'a': {'dtype': 'F32', 'shape': 2, 'data_offsets': [0, 8]}},
    {'a': {'dtype': 'F32', 'shape': [-2], 'data_offsets': [0, 8]}},
    {'a': {'dtype': 'F32', 'shape': [2], 'data_offsets': [8, 0]}},
    {'a': {'dtype': 'F32', 'shape': [3], 'data_offsets': [0, 8]}},
    {'a': {'dtype': 'F32', 'shape': [2], 'data_offsets': [0, 800]}},
  ),
)
def test_a_damaged_header_is_named(tmp_path, header):
  file = tmp_path / 'x.safetensors'
  raw = json.dumps(header).encode()
  file.write_bytes(len(raw).to_bytes(8, 'little') + raw + b'\0' * 8)
  with pytest.raises(ValueError, match='copy it again') as error:
    st.read_header(file)
  assert str(error.value).startswith(f'{file}: ')


@pytest.mark.parametrize(
  'weight_map', (None, [], {'a': 3}, {'a': '../b.safetensors'})
)
def test_an_index_of_another_form_is_named(folder, weight_map):
  (folder / st.WHOLE).unlink()
  (folder / INDEX).write_text(json.dumps({'weight_map': weight_map}))
  with pytest.raises(ValueError, match=f'{INDEX}: weight_map is not'):
    hf.load_hf(folder)


def _names(folder, change):
  tensors = stnp.load_file(folder / st.WHOLE)
  stnp.save_file({change(n): t for n, t in tensors.items()}, folder / st.WHOLE)


@pytest.mark.parametrize(
  'change, said',
  [
    (lambda n: n.removeprefix('model.'), "lack 'model.'"),
    (lambda n: f'base_model.model.{n}', "begin with 'base_model.model.'"),
    (lambda n: f'_orig_mod.{n}', "begin with '_orig_mod.'"),
  ],
)
def test_a_prefix_is_one_line(folder, capsys, change, said):
  _names(folder, change)
  out = folder.parent / 'out'
  assert cli.main(['import', f'--model={folder}', f'--out={out}']) == 2
  error = capsys.readouterr().err
  assert error.count('\n') == 1 and said in error and st.WHOLE in error


def test_what_else_is_wrong_is_said_beside_the_prefix(folder):
  _names(
    folder, lambda n: 'extra' if n == 'model.norm.weight' else f'module.{n}'
  )
  with pytest.raises(ValueError) as error:
    hf.load_hf(folder)
  for part in (
    "begin with 'module.'",
    'missing model.norm.weight',
    'unknown extra',
  ):
    assert part in str(error.value)
  assert len(str(error.value).splitlines()) == 4


def test_what_is_wrong_in_every_layer_is_one_line(folder):
  """A qwen3's weights under a qwen2's config, say."""
  tensors = stnp.load_file(folder / st.WHOLE)
  for layer in range(2):
    del tensors[f'model.layers.{layer}.self_attn.q_proj.bias']
  stnp.save_file(tensors, folder / st.WHOLE)
  with pytest.raises(ValueError) as error:
    hf.load_hf(folder)
  said = 'missing model.layers.*.self_attn.q_proj.bias (64,) in layers 0 to 1'
  assert said in str(error.value) and '\n' not in str(error.value)
