"""Adapters of a run: from the config to a checkpoint, back, and out as folders."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from configs import stepwise_ppo
from jaxagent import types
from jaxagent.checkpoint import CheckpointManager
from jaxagent.config import settings
from jaxagent.errors import UserError
from jaxagent.models import __main__ as cli
from jaxagent.models import hf, identity, lora
from jaxagent.recipes.solutions.recipe import TreeSearch
from jaxagent.rollout.engines import native_engine
from jaxagent.testing import small_hf
from jaxagent.training import device, multi_process
from tests import runs
from tests.models.conftest import shake


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  where = tmp_path_factory.mktemp('hf') / 'model'
  return small_hf.make(where, vocab_size=600, hidden_size=16)


def _host(work, model='', **changes):
  config = stepwise_ppo.get_config('tiny').unlock()
  config.model.path = str(model)
  config.model.hf.update(hidden_size=32, num_hidden_layers=1)
  config.model.lora.rank = 2
  config.model.lora.alpha = 8.0
  config.model.lora.targets = ('q', 'down')
  config.rl.estimator, config.rl.group_size = 'grpo', 4
  config.rollout.max_prompt_tokens = config.rollout.max_new_tokens = 32
  for key, value in changes.items():
    setattr(config.model.lora, key, value)
  return SimpleNamespace(work=work, config=config)


def _learner(host):
  tokenizer = device.make_tokenizer(host, ['some text to learn from'] * 20)
  return device.make_learner(host, tokenizer)


def _save(host, learner, stage, step=1):
  manager = CheckpointManager(host.work / stage / 'checkpoints')
  state = {'learner': learner.host_state()}
  multi_process.save(learner, manager, step, state)
  return manager


def _trained(host):
  """A learner whose adapters have moved, saved as RL does."""
  learner = _learner(host)
  learner.start_rl()
  _move(learner)
  _save(host, learner, 'rl')
  return learner


def _move(learner):
  """Moves the adapters as an update would, which would take longer."""
  roles = learner._roles
  roles.policy = shake(roles.policy, 3)


@pytest.fixture(scope='module')
def run(folder, tmp_path_factory):
  host = _host(tmp_path_factory.mktemp('run'), folder)
  (host.work / 'config.json').write_text('{"rollout": {"temperature": 0.7}}')
  return host, _trained(host)


def _export(host, out, *options):
  given = ['export', f'--model={host.work}', f'--out={out}', *options]
  return cli.main(given)


def _equal(a, b, atol=0.0):
  a, b = jax.tree.leaves(a), jax.tree.leaves(b)
  assert len(a) == len(b)
  for x, y in zip(a, b):
    np.testing.assert_allclose(x, y, atol=atol)


def test_run_json_names_adapters_and_where_their_base_is(run, folder):
  host, learner = run
  noted = hf.read_adapters(host.work / 'model')
  assert noted == {
    'rank': 2,
    'alpha': 8.0,
    'targets': ['q', 'down'],
    'stages': ['sft', 'rl'],
    'base': str(folder),
  }
  assert hf.read_config(host.work / 'model').lora_targets == ('q', 'down')
  assert learner.sampled_config.lora_rank == 0


def test_run_json_of_all_weights_is_as_it_was(folder, tmp_path):
  host = _host(tmp_path, folder, rank=0)
  _learner(host)
  noted = json.loads((tmp_path / 'model' / hf.RUN_FILE).read_text())
  assert noted == {'scan_layers': False, 'param_dtype': 'float32'}


def test_an_export_has_the_policy_merged(run, tmp_path):
  host, learner = run
  assert _export(host, tmp_path / 'out') == 0
  _equal(hf.load_hf(tmp_path / 'out')[2], learner.policy_params)


def test_an_exported_adapter_goes_on_where_it_was(run, folder, tmp_path):
  host, learner = run
  assert _export(host, tmp_path / 'out', '--adapter') == 0
  card = (tmp_path / 'out' / 'README.md').read_text()
  assert 'library_name: peft' in card and 'Adapters of rank 2' in card
  record = json.loads((tmp_path / 'out' / 'adapter_config.json').read_text())
  assert record['base_model_name_or_path'] == str(folder)
  assert not (tmp_path / 'out' / 'base').exists()
  config, _, base = hf.load_hf(folder)
  config, _, params = lora.load_peft(tmp_path / 'out', config, base)
  _equal(lora.merge_lora(config, params)[2], learner.policy_params, 1e-6)
  next_host = _host(tmp_path / 'next', folder, path=str(tmp_path / 'out'))
  settings.validate_devices(next_host.config)
  _equal(_learner(next_host).policy_params, learner.policy_params)


@pytest.mark.slow
def test_an_adapter_on_a_full_sft_is_exported_with_its_base(tmp_path, capsys):
  host = _host(tmp_path / 'work', stages=('rl',))
  learner = _learner(host)
  _save(host, learner, 'sft')
  full = jax.tree.map(np.asarray, learner.policy_params)
  (host.work / 'config.json').write_text('{}')
  learner.start_rl()
  _move(learner)
  _save(host, learner, 'rl')
  assert _export(host, tmp_path / 'out', '--adapter') == 0
  record = json.loads((tmp_path / 'out' / 'adapter_config.json').read_text())
  assert record['base_model_name_or_path'] == str(tmp_path / 'out' / 'base')
  config, _, base = hf.load_hf(tmp_path / 'out' / 'base')
  _equal(base, full)
  config, _, params = lora.load_peft(tmp_path / 'out', config, base)
  _equal(lora.merge_lora(config, params)[2], learner.policy_params, 1e-6)
  named = tmp_path / 'named'
  assert _export(host, named, '--adapter', '--base=me/base') == 0
  record = json.loads((named / 'adapter_config.json').read_text())
  assert record['base_model_name_or_path'] == 'me/base'
  assert 'base_model: me/base\n' in (named / 'README.md').read_text()
  assert not (named / 'base').exists()
  for file in named.rglob('*'):
    assert str(tmp_path).encode() not in file.read_bytes(), file
  assert _export(host, tmp_path / 'sft', '--stage=sft') == 0
  _equal(hf.load_hf(tmp_path / 'sft')[2], full)
  assert _export(host, tmp_path / 'no', '--stage=sft', '--adapter') == 2
  said = capsys.readouterr().err
  assert 'has no adapters' in said and said.count('\n') == 1


def test_without_sft_no_weight_of_the_base_is_made_trainable(folder, tmp_path):
  """SFT of all weights has 16 bytes a weight, which only SFT needs."""
  host = _host(tmp_path / 'work', folder, stages=('rl',))
  host.config.sft.epochs = 0
  learner = _learner(host)
  assert all('lora_' in path for path in learner.state()['policy'])
  (host.work / 'config.json').write_text('{}')
  learner.start_rl()
  _move(learner)
  _save(host, learner, 'rl')
  device.check_base(host.config, host.work)
  assert _export(host, tmp_path / 'out', '--adapter') == 0
  record = json.loads((tmp_path / 'out' / 'adapter_config.json').read_text())
  assert record['base_model_name_or_path'] == str(folder)
  assert not (tmp_path / 'out' / 'base').exists()


def test_an_adapter_and_its_base_are_exported_in_their_own_precision(
  run, tmp_path, capsys
):
  host, _ = run
  out = tmp_path / 'out'
  assert _export(host, out, '--adapter', '--dtype=bfloat16') == 2
  said = capsys.readouterr().err
  assert '--dtype=bfloat16 is of merged weights' in said
  assert said.count('\n') == 1 and not out.exists()


def test_a_run_of_adapters_resumes_on_its_base(run, folder):
  host, learner = run
  again = _learner(host)
  again.start_rl()
  manager = device.checkpoints_of(host.work)
  assert multi_process.restore(again, manager).step == 1
  _equal(again.policy_params, learner.policy_params)
  device.check_base(host.config, host.work)


@pytest.fixture(scope='module')
def other(tmp_path_factory):
  """Another model of the same shape."""
  where = tmp_path_factory.mktemp('hf') / 'other'
  return small_hf.make(where, vocab_size=600, hidden_size=16, seed=1)


def _refused(call) -> str:
  with pytest.raises(UserError) as error:
    call()
  assert '\n' not in str(error.value)
  return str(error.value)


def test_a_resume_on_another_base_is_refused(run, other):
  host, _ = run
  moved = _host(host.work, other)
  said = _refused(lambda: device.check_base(moved.config, host.work))
  assert re.search(r'adapters of another base .*other.*--work_dir', said)
  search = TreeSearch(moved.config)  # around a policy that was trained
  assert _refused(lambda: search.check_work_dir(host.work)) == said


def test_a_copied_sft_of_all_weights_is_named_before_the_run(folder, tmp_path):
  full = _host(tmp_path / 'full', folder, rank=0)
  _save(full, _learner(full), 'sft')
  host = _host(tmp_path / 'full', folder)
  said = _refused(lambda: device.check_base(host.config, host.work))
  assert re.search('has all weights, and config.model.lora.rank=2 trains', said)
  # Where SFT trains all weights it is what is wanted.
  host.config.model.lora.stages = ('rl',)
  device.check_base(host.config, host.work)


def test_a_resume_of_rl_on_another_full_sft_is_refused(tmp_path):
  host = _host(tmp_path, stages=('rl',))
  _trained(host)
  host.config.seed += 1  # as if SFT had ended elsewhere
  again = _learner(host)
  again.start_rl()
  manager = device.checkpoints_of(host.work)
  said = _refused(lambda: multi_process.restore(again, manager))
  assert re.search("adapters' base was .* folder sft", said)


def test_an_adapter_of_another_base_is_refused(run, other, tmp_path):
  host, _ = run
  assert _export(host, tmp_path / 'out', '--adapter') == 0
  config = _host(tmp_path, other, path=str(tmp_path / 'out')).config
  said = _refused(lambda: settings.validate_devices(config))
  assert 'adapters of another base' in said and str(other) in said
  # The learner looks, too.
  with pytest.raises(UserError, match='adapters of another base'):
    _learner(_host(tmp_path, other, path=str(tmp_path / 'out')))


@pytest.mark.parametrize(
  'change, said',
  [
    ({'rank': 4}, r'lora.rank=4 is not 2, which the adapters of .* have; set'),
    ({'alpha': 4.0}, r'lora.alpha=4.0 is not 8.0, which the adapters'),
    ({'targets': ('q',)}, r"lora.targets=\('q',\) is not \('q', 'down'\)"),
  ],
)
def test_options_that_are_not_the_adapters_own_are_refused(
  run, folder, tmp_path, change, said
):
  host, _ = run
  assert _export(host, tmp_path / 'out', '--adapter') == 0
  config = _host(tmp_path, folder, path=str(tmp_path / 'out'), **change).config
  assert re.search(said, _refused(lambda: settings.validate_devices(config)))


def test_an_adapter_that_is_no_plain_one_is_refused(run, folder, tmp_path):
  host, _ = run
  assert _export(host, tmp_path / 'out', '--adapter') == 0
  file = tmp_path / 'out' / 'adapter_config.json'
  record = json.loads(file.read_text())
  file.write_text(json.dumps(record | {'modules_to_save': ['lm_head']}))
  config = _host(tmp_path, folder, path=str(tmp_path / 'out')).config
  said = _refused(lambda: settings.validate_devices(config))
  assert "modules_to_save=['lm_head']" in said


def test_an_export_without_its_base_says_so(run, folder, tmp_path, capsys):
  host, _ = run
  file = host.work / 'model' / hf.RUN_FILE
  noted = file.read_text()
  try:
    file.write_text(noted.replace(str(folder), str(tmp_path / 'gone')))
    assert _export(host, tmp_path / 'out') == 2
  finally:
    file.write_text(noted)
  assert 'gone' in capsys.readouterr().err


def test_the_base_lies_in_the_precision_of_the_model(folder, tmp_path):
  host = _host(tmp_path, folder)
  host.config.model.dtype = 'bfloat16'
  learner = _learner(host)
  plan = learner.model_config
  assert plan.param_dtype == plan.dtype == 'bfloat16'
  adapters = learner.state()['policy']
  assert {leaf.dtype.name for leaf in adapters.values()} == {'float32'}
  told = learner.host_state()['adapters']['base']
  assert told == identity.folder_digest(folder, plan)
  assert dataclasses.asdict(plan)['lora_rank'] == 2


@pytest.mark.slow
def test_a_run_trains_adapters_on_a_full_sft_and_is_taken_up_again(tmp_path):
  options = (
    *runs.SMALL,
    "--config.tasks.heldin=('wine',)",
    "--config.tasks.heldout=('diabetes',)",
    '--config.model.lora.rank=4',
    "--config.model.lora.stages=('rl',)",
    '--config.rl.batch_size=8',
    '--config.rl.checkpoint_every=1',
    '--config.rl.updates=2',
  )
  work = tmp_path / 'work'
  run = runs.start(work, *options)
  said = run.communicate(timeout=900)[0]
  assert run.returncode == 0, said[-4000:]
  manager = device.checkpoints_of(work)
  assert manager.steps()[-1] == 2
  host = manager.latest().host['learner']
  assert host['adapters']['rank'] == 4
  summary = json.loads((work / 'summary.json').read_text())
  # As after a kill between the two updates.
  shutil.rmtree(manager.path(2))
  shutil.rmtree(work / 'eval')
  again = runs.start(work, *options)
  said = again.communicate(timeout=900)[0]
  assert again.returncode == 0, said[-4000:]
  assert manager.latest().host['learner']['adapters'] == host['adapters']
  assert (
    json.loads((work / 'summary.json').read_text())['config_sha']
    == (summary['config_sha'])
  )
  assert cli.main(['export', f'--model={work}', f'--out={tmp_path / "a"}']) == 0
  # Without what SFT has left there is no base.
  shutil.rmtree(work / 'sft')
  out = ['export', f'--model={work}', f'--out={tmp_path / "b"}']
  assert cli.main([*out, '--adapter']) == 2


def _gap(learner, engine):
  """Largest distance in nats between an engine's log-probs and the learner's."""
  (done,) = engine.generate(
    [
      types.Request(
        'r', np.arange(3, 12, dtype=np.int32), 7, types.Sampling(8, 1.0)
      )
    ]
  )
  sample = types.Sample(
    prompt_id='0/0/0',
    group_id='0',
    prompt_ids=done.prompt_ids,
    token_ids=done.token_ids,
    loss_mask=np.ones(len(done.token_ids), bool),
    behaviour_logprobs=done.logprobs,
    version=0,
    outcome=types.Outcome.OK,
    reward=0.0,
    exec_s=1.0,
  )
  found = learner.logprobs([sample])[0, : len(done.token_ids)]
  return np.abs(found - done.logprobs).max()


def test_the_native_engine_says_what_the_learner_says_from_sft_to_rl(tmp_path):
  host = _host(tmp_path, stages=('rl',))
  learner = _learner(host)
  engine = native_engine.NativeEngine(
    learner.graphdef,
    learner.policy_params,
    learner.sampled_config,
    native_engine.Shapes((16,), (1,), max_new_tokens=8),
  )
  try:
    assert _gap(learner, engine) < 1e-4
    learner.start_rl()
    engine.update_weights(learner.policy_params, 1)
    assert _gap(learner, engine) < 1e-4
    _move(learner)
    assert _gap(learner, engine) > 1e-2  # the engine has the base
    engine.update_weights(learner.policy_params, 2)
    assert _gap(learner, engine) < 1e-4
  finally:
    engine.close()
