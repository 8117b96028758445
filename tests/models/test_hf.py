"""Folders in and out: what is damaged is named before a weight is loaded."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
import sys

import jax
import numpy as np
import pytest
from flax import nnx
from safetensors import numpy as stnp

from jaxagent.checkpoint import CheckpointManager
from jaxagent.data import bpe
from jaxagent.devices import sharding
from jaxagent.files import readings
from jaxagent.models import __main__ as cli
from jaxagent.models import hf, init_decoder, lora
from tests.models.conftest import make_config, shake

SCANS = pytest.mark.parametrize(
  'scan', (pytest.param(False, marks=pytest.mark.slow), True)
)


@pytest.fixture
def saved(tmp_path):
  config = make_config('qwen3', tied=False, bias=True)
  graphdef, params = init_decoder(config, 0)
  params = shake(params)
  hf.save_hf(tmp_path / 'm', config, params)
  return config, graphdef, params, tmp_path / 'm'


def _rewrite(folder, change):
  file = folder / 'model.safetensors'
  tensors = stnp.load_file(file)
  change(tensors)
  stnp.save_file(tensors, file)


def _equal(a, b):
  return all(
    jax.tree.leaves(jax.tree.map(lambda x, y: bool((x == y).all()), a, b))
  )


@SCANS
def test_round_trip_in_shards_is_exact(tmp_path, scan):
  config = make_config('qwen2', scan_layers=scan)
  _, params = init_decoder(config, 0)
  params = shake(params)
  hf.save_hf(tmp_path / 'm', config, params, max_shard_bytes=30_000)
  assert len(list((tmp_path / 'm').glob('*.safetensors'))) > 2
  got, _, loaded = hf.load_hf(tmp_path / 'm', scan_layers=scan)
  assert got == config and _equal(params, loaded)


def test_bfloat16_on_disk(tmp_path):
  config = make_config()
  _, params = init_decoder(config, 0)
  hf.save_hf(tmp_path / 'm', config, params, dtype='bfloat16')
  _, _, loaded = hf.load_hf(tmp_path / 'm')
  np.testing.assert_allclose(loaded['embed'], params['embed'], rtol=1e-2)


def test_all_wrong_names_are_reported_at_once(saved):
  folder = saved[3]

  def change(t):
    del t['model.norm.weight']
    t['model.layers.0.mlp.up_proj.weight'] = np.zeros((3, 3), np.float32)
    t['model.layers.0.mlp.down_proj.weight'] = np.zeros((48, 80), np.int8)
    t['model.extra.weight'] = np.zeros(2, np.float32)

  _rewrite(folder, change)
  with pytest.raises(ValueError) as error:
    hf.load_hf(folder)
  text = str(error.value)
  for part in (
    'missing model.norm.weight (48,)',
    'misshapen model.layers.0.mlp.up_proj.weight: (3, 3), not (80, 48)',
    'wrong dtype model.layers.0.mlp.down_proj.weight: I8',
    'unknown model.extra.weight',
  ):
    assert part in text


def test_truncated_shard(saved):
  file = saved[3] / 'model.safetensors'
  file.write_bytes(file.read_bytes()[:-100])
  with pytest.raises(ValueError, match='truncated'):
    hf.load_hf(saved[3])


def test_pickle_is_refused(saved):
  (saved[3] / 'model.safetensors').rename(saved[3] / 'pytorch_model.bin')
  with pytest.raises(FileNotFoundError, match='pickle'):
    hf.load_hf(saved[3])


def test_missing_shard(tmp_path):
  config = make_config()
  hf.save_hf(
    tmp_path / 'm', config, init_decoder(config, 0)[1], max_shard_bytes=30_000
  )
  next((tmp_path / 'm').glob('*-00002-*')).unlink()
  with pytest.raises(FileNotFoundError, match='00002'):
    hf.load_hf(tmp_path / 'm')


def test_tokenizer_of_another_model(saved):
  (saved[3] / 'tokenizer.json').write_text(
    json.dumps({'model': {'vocab': {'a': 0, 'b': 500}}})
  )
  with pytest.raises(ValueError, match='id 500.*vocab_size is 101'):
    hf.load_hf(saved[3])


def test_tied_config_with_another_head(saved):
  folder = saved[3]
  raw = json.loads((folder / 'config.json').read_text())
  raw['tie_word_embeddings'] = True
  (folder / 'config.json').write_text(json.dumps(raw))
  with pytest.raises(ValueError, match='lm_head.weight.*differs'):
    hf.load_hf(folder)


def test_export_never_overwrites(saved):
  with pytest.raises(FileExistsError, match='new folder'):
    hf.save_hf(saved[3], saved[0], saved[2])


@SCANS
def test_lora_merge_and_peft_round_trip(tmp_path, scan):
  config = make_config('qwen3', scan_layers=scan)
  graph, base = init_decoder(config, 0)
  ranked = config.replace(lora_rank=4, lora_alpha=8.0, lora_targets=('q', 'up'))
  ranked, graphdef, params = lora.add_lora(ranked, base, seed=1)
  rows = (np.ones((1, 5), np.int32), np.arange(5)[None], np.ones((1, 5), 'i4'))
  before = nnx.merge(graph, base)(*rows)
  np.testing.assert_array_equal(nnx.merge(graphdef, params)(*rows), before)
  adapters, frozen = lora.split_lora(params)
  assert len(jax.tree.leaves(adapters)) == (4 if scan else 8)
  assert len(jax.tree.leaves(frozen)) == len(jax.tree.leaves(base))
  adapters = shake(adapters)
  want = nnx.merge(graphdef, adapters, frozen)(*rows)
  params = nnx.merge_state(adapters, frozen)
  plain, merged_graph, merged = lora.merge_lora(ranked, params)
  assert plain == config.replace(lora_alpha=8.0, lora_targets=('q', 'up'))
  got = nnx.merge(merged_graph, merged)(*rows)
  np.testing.assert_allclose(got, want, atol=1e-5)
  assert np.abs(want - before).max() > 1e-3
  lora.save_peft(tmp_path, ranked, params)
  again, graph2, params2 = lora.load_peft(tmp_path, config, base)
  assert again == ranked
  np.testing.assert_array_equal(nnx.merge(graph2, params2)(*rows), want)
  names = stnp.load_file(tmp_path / 'adapter_model.safetensors')
  key = 'base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight'
  assert names[key].shape == (4, 48)


def test_cli_import_export_score(saved, tmp_path, capsys):
  config, graphdef, params, folder = saved
  assert not cli.main(
    ['import', '--model', str(folder), '--out', str(tmp_path / 'ours')]
  )
  assert not cli.main(
    ['export', '--model', str(tmp_path / 'ours'), '--out', str(tmp_path / 'b')]
  )
  assert (tmp_path / 'b/model.safetensors').read_bytes() == (
    folder / 'model.safetensors'
  ).read_bytes()
  assert 'not trained by it' in (tmp_path / 'b' / 'README.md').read_text()
  rows = np.random.default_rng(0).integers(0, 101, (3, 6))
  np.save(tmp_path / 't.npy', rows)
  command = ['score', '--model', str(folder), '--tokens']
  command += [str(tmp_path / 't.npy'), '--out', str(tmp_path / 'o.npy')]
  assert not cli.main([*command, '--batch', '2'])
  model = nnx.merge(graphdef, params)
  hidden = model(rows, np.tile(np.arange(6), (3, 1)), np.ones((3, 6), 'i4'))
  logp = jax.nn.log_softmax(hidden @ model.unembed.T)[:, :-1]
  want = np.take_along_axis(np.asarray(logp), rows[:, 1:, None], -1)[..., 0]
  got = np.load(tmp_path / 'o.npy')
  assert got.shape == (3, 5)
  np.testing.assert_allclose(got, want, atol=1e-5)
  np.save(tmp_path / 't.npy', rows + 100)
  assert cli.main(command) == 2
  assert 'vocabulary' in capsys.readouterr().err


def test_a_models_own_ends_come_through(tmp_path):
  config = make_config(eos_token_id=3)
  hf.save_hf(tmp_path / 'm', config, init_decoder(config, 0)[1])
  path = tmp_path / 'm' / 'generation_config.json'
  told = json.loads(path.read_text())
  path.write_text(json.dumps(told | {'eos_token_id': [3, 7]}))
  steps = (('import', 'm', 'a'), ('export', 'a', 'b'))
  for command, source, out in steps:
    places = [f'--model={tmp_path / source}', f'--out={tmp_path / out}']
    assert not cli.main([command, *places])
  for name in ('config.json', 'generation_config.json'):
    assert json.loads((tmp_path / 'b' / name).read_text())['eos_token_id'] == [
      3,
      7,
    ]


def test_cli_bad_folder_in_one_line(tmp_path):
  command = [sys.executable, '-m', 'jaxagent.models', 'import', '--model']
  command += [str(tmp_path), '--out', str(tmp_path / 'x')]
  done = subprocess.run(command, capture_output=True, text=True)
  assert done.returncode == 2
  assert 'error: no ' in done.stderr and 'Traceback' not in done.stderr


def _checkpoint(work, stage, step, params, score=None):
  leaves = jax.tree_util.tree_flatten_with_path(params)[0]
  policy = {sharding.path_of(path): leaf for path, leaf in leaves}
  state = {'policy': policy, 'opt': np.zeros(3), 'counters': {'n': np.int64(1)}}
  manager = CheckpointManager(work / stage / 'checkpoints')
  manager.save(step, state, score=score)


@SCANS
def test_export_of_a_run_takes_its_newest_policy(tmp_path, capsys, scan):
  config = make_config(scan_layers=scan).replace(vocab_size=300)
  work = tmp_path / 'work'
  policies = [shake(init_decoder(config, 0)[1], seed) for seed in range(4)]
  hf.write_config(work / 'model', config)
  (work / 'config.json').write_text('{"rollout": {"temperature": 0.7}}')
  bpe.train(['some text'], 300).save(work / 'tokenizer')
  vocab = (work / 'tokenizer' / 'tokenizer.json').read_text()
  export = ['export', f'--model={work}']
  assert cli.main([*export, f'--out={tmp_path / "none"}']) == 2
  assert 'holds no checkpoint of rl or sft' in capsys.readouterr().err
  for (stage, step), policy in zip(
    (('sft', 9), ('rl', 1), ('rl', 2)), policies
  ):
    _checkpoint(work, stage, step, policy)
  for name, options, want in (
    ('rl', [], policies[2]),
    ('sft', ['--stage=sft'], policies[0]),
  ):
    assert cli.main([*export, f'--out={tmp_path / name}', *options]) == 0
    assert (tmp_path / name / 'tokenizer.json').read_text() == vocab
    told = json.loads((tmp_path / name / 'generation_config.json').read_text())
    assert told['temperature'] == 0.7
    got, _, loaded = hf.load_hf(tmp_path / name, scan_layers=scan)
    assert got == config and _equal(loaded, want)
  best = [*export, '--stage=best']
  assert cli.main([*best, f'--out={tmp_path / "none"}']) == 2
  assert 'keeps no best checkpoint' in capsys.readouterr().err
  _checkpoint(work, 'rl', 1, policies[1], score=0.5)
  _checkpoint(work, 'rl', 2, policies[2], score=0.25)
  assert cli.main([*best, f'--out={tmp_path / "best"}']) == 0
  assert 'step_00000001' in capsys.readouterr().out
  loaded = hf.load_hf(tmp_path / 'best', scan_layers=scan)[2]
  assert _equal(loaded, policies[1])
  commit = work / 'rl' / 'checkpoints' / 'step_00000002' / 'COMMIT'
  commit.write_text('damaged')
  assert cli.main([*export, f'--out={tmp_path / "before"}']) == 0
  assert _equal(
    hf.load_hf(tmp_path / 'before', scan_layers=scan)[2], policies[1]
  )


@pytest.fixture(scope='module')
def ran(tmp_path_factory):
  """The folder of a run with a policy, its own tokenizer and its texts."""
  work = tmp_path_factory.mktemp('ran')
  library = pathlib.Path(json.__file__).parents[1]
  texts = [
    f.read_text(errors='replace') for f in sorted(library.glob('[a-b]*.py'))
  ]
  tokenizer = bpe.train(texts, 600)
  tokenizer.save(work / 'tokenizer')
  config = make_config().replace(vocab_size=640)
  hf.write_config(work / 'model', config)
  _checkpoint(work, 'rl', 1, init_decoder(config, 0)[1])
  (work / 'collect').mkdir()
  steps = [{'response': text} for text in texts]
  (work / 'collect' / 'trajectories.jsonl').write_text(
    json.dumps({'steps': steps})
  )
  return work


def test_an_exported_run_has_its_ids_in_transformers(ran, tmp_path):
  transformers = pytest.importorskip('transformers')
  assert cli.main(['export', f'--model={ran}', f'--out={tmp_path / "o"}']) == 0
  card = (tmp_path / 'o' / 'README.md').read_text()
  assert '`rl/checkpoints/step_00000001`' in card
  theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / 'o')
  own = bpe.load(ran / 'tokenizer')
  texts = [*readings.PROBES, *readings.texts_of_run(ran)]
  assert len(texts) > len(readings.PROBES)
  for text in texts:
    ids = own.encode(text)
    assert theirs(text, add_special_tokens=False)['input_ids'] == ids
    assert theirs.decode(ids) == own.decode_response(ids)


def _cuts_otherwise(file):
  """Makes a tokenizer.json cut its words as GPT-2 does."""
  raw = json.loads(file.read_text())
  raw['pre_tokenizer'] = {
    'type': 'ByteLevel', 'add_prefix_space': False, 'trim_offsets': True,
    'use_regex': True,
  }  # fmt: skip
  raw['normalizer'] = None
  file.write_text(json.dumps(raw))


def test_ids_that_transformers_does_not_give_are_refused(ran, tmp_path, capsys):
  """In and out, before a weight is read or a file is written."""
  pytest.importorskip('transformers', '5.0')
  work = shutil.copytree(ran, tmp_path / 'work')
  assert cli.main(['export', f'--model={work}', f'--out={tmp_path / "m"}']) == 0
  for folder, command in (
    (work / 'tokenizer', 'export'),
    (tmp_path / 'm', 'import'),
  ):
    _cuts_otherwise(folder / 'tokenizer.json')
    source = work if command == 'export' else folder
    capsys.readouterr()
    assert (
      cli.main([command, f'--model={source}', f'--out={tmp_path / "o"}']) == 2
    )
    said = capsys.readouterr().err
    assert said.count('\n') == 1 and f'{folder}: transformers ' in said
    assert 'gives ' in said and ' the ids [' in said
    assert not (tmp_path / 'o').exists()


def test_export_of_another_model_than_the_checkpoint(tmp_path, capsys):
  config = make_config()
  _checkpoint(tmp_path, 'rl', 1, init_decoder(config, 0)[1])
  hf.write_config(tmp_path / 'model', config.replace(hidden_size=32))
  assert cli.main(['export', f'--model={tmp_path}', f'--out={tmp_path}/o']) == 2
  said = capsys.readouterr().err
  assert 'another model' in said and said.count('\n') == 1
  assert not (tmp_path / 'o').exists()


@pytest.mark.parametrize(
  'options, said',
  [
    (['--push=me/policy'], 'set HF_TOKEN'),
    (['--push='], '--push=: '),
    (['--public'], '--public is of --push OWNER/NAME'),
    (['--base=me/base'], '--base=me/base is of --adapter'),
    (['--adapter', '--base=/home/me'], '--base=/home/me: '),
    (['--adapter', '--base='], '--base=: '),
  ],
)
def test_an_export_that_cannot_be_pushed_writes_nothing(
  ran, tmp_path, capsys, monkeypatch, options, said
):
  monkeypatch.setattr('huggingface_hub.get_token', lambda: None)
  monkeypatch.setattr('huggingface_hub.constants.HF_HUB_OFFLINE', False)
  export = ['export', f'--model={ran}', f'--out={tmp_path / "o"}', *options]
  assert cli.main(export) == 2
  assert said in capsys.readouterr().err and not (tmp_path / 'o').exists()


def test_adapters_are_pushed_with_the_name_of_their_base_alone(
  ran, tmp_path, capsys, monkeypatch
):
  monkeypatch.setattr(cli.push, 'check', lambda name: None)
  out = tmp_path / 'o'
  export = ['export', f'--model={ran}', f'--out={out}', '--adapter']
  assert cli.main([*export, '--push=me/policy']) == 2
  said = capsys.readouterr().err
  assert '--push=me/policy with --adapter needs --base OWNER/NAME' in said
  assert not out.exists()


def test_an_export_is_pushed_when_it_is_whole(
  ran, tmp_path, capsys, monkeypatch
):
  pushed = []

  def push(folder, repository, *, public):
    pushed.append(
      (sorted(f.name for f in folder.iterdir()), repository, public)
    )
    return 'https://hub/me/policy'

  monkeypatch.setattr(cli.push, 'check', lambda name: None)
  monkeypatch.setattr(cli.push, 'push', push)
  export = ['export', f'--model={ran}', f'--out={tmp_path / "o"}']
  assert cli.main([*export, '--push=me/policy']) == 0
  ((files, *rest),) = pushed
  assert {'README.md', 'config.json', 'model.safetensors'} <= {*files}
  assert rest == ['me/policy', False]
  assert capsys.readouterr().out.endswith('https://hub/me/policy\n')
