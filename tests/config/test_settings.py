"""Bad configs and work directories stop before any work, with a remedy."""

import json
import pathlib
import re
import subprocess
import sys
import time

import pytest

from configs import common, stepwise_ppo
from jaxagent.config import checks, sections, settings
from jaxagent.errors import UserError
from tests.runs import environment

ROOT = pathlib.Path(__file__).parents[2]


def _config(tmp_path=None, **changes):
  config = stepwise_ppo.get_config('tiny').unlock()
  config.tasks_dir = str(ROOT / 'tasks')
  if tmp_path is not None:
    config.work_dir = str(tmp_path / 'work')
  for path, value in changes.items():
    node = config
    *parents, last = path.split('__')
    for name in parents:
      node = node[name]
    node[last] = value
  return config


@pytest.mark.parametrize('name', ['w[1]', 'w\\1', 'w*', 'w?', 'gs:'])
def test_a_name_in_which_checkpoints_would_be_lost_is_refused(tmp_path, name):
  """Whichever folder above the work directory has it, and before it is made."""
  config = _config(tmp_path / name)
  with pytest.raises(
    UserError, match='Orbax takes for a pattern.* --work_dir'
  ) as no:
    settings.open_work_dir(config)
  assert '\n' not in str(no.value) and not (tmp_path / name).exists()


def test_the_home_folder_is_found_in_every_path(tmp_path, monkeypatch):
  monkeypatch.setenv('HOME', str(tmp_path))
  paths = sections.paths()
  assert {'work_dir', 'model.path', 'rollout.vllm.python'} < set(paths)
  keys = [k.replace('.', '__') for k in paths]
  config = _config(**{key: '~/x' for key in keys})
  settings.prepare(config)
  for key in paths:
    assert checks.get(config, key) == str(tmp_path / 'x')
  own = _config(model__path='a~b')
  settings.prepare(own)
  assert own.model.path == 'a~b' and own.tokenizer.path == ''
  with pytest.raises(
    UserError, match="config.model.path='~nobody-here/x': .*give"
  ):
    settings.prepare(_config(model__path='~nobody-here/x'))


def test_work_dir_of_another_config_is_refused(tmp_path):
  settings.open_work_dir(_config(tmp_path))
  settings.open_work_dir(_config(tmp_path))  # the same one is reopened
  with pytest.raises(UserError, match=r'rl\.policy_lr: 0.0003 -> 0.5'):
    settings.open_work_dir(_config(tmp_path, rl__policy_lr=0.5))


def test_a_run_of_an_older_version_resumes_where_what_is_new_has_its_default(
  tmp_path,
):
  path = settings.open_work_dir(_config(tmp_path)) / 'config.json'
  record = json.loads(path.read_text())
  del record['search'], record['rl']['validate_every'], record['agent']
  path.write_text(json.dumps(record))
  settings.open_work_dir(_config(tmp_path))
  with pytest.raises(UserError, match='rl.validate_every: 0 -> 10'):
    settings.open_work_dir(_config(tmp_path, rl__validate_every=10))
  with pytest.raises(UserError, match="agent: 'research' -> 'react'"):
    settings.open_work_dir(_config(tmp_path, agent='react'))
  record['rl']['gone'] = 1  # an option that this version has no more
  path.write_text(json.dumps(record))
  with pytest.raises(UserError, match='another version .*rl.gone: 1 -> None'):
    settings.open_work_dir(_config(tmp_path))


def test_another_key_of_an_open_option_is_no_other_version(tmp_path):
  for key in ('rollout__chat_template_kwargs', 'model__hf__rope_scaling'):
    work = tmp_path / key
    settings.open_work_dir(_config(work))
    changed = _config(work)
    *parents, last = key.split('__')
    node = changed
    with changed.unlocked():
      for part in parents:
        node = node[part]
      node[last] = {'enable_thinking': False}
    with pytest.raises(UserError, match='was made by another config'):
      settings.open_work_dir(changed)


def test_damaged_config_record_is_named(tmp_path):
  path = settings.open_work_dir(_config(tmp_path)) / 'config.json'
  path.write_text('{')
  with pytest.raises(UserError, match='damaged'):
    settings.open_work_dir(_config(tmp_path))


def test_hash_ignores_places_and_sees_the_rest(tmp_path):
  a = settings.config_sha(_config(tmp_path))
  assert a == settings.config_sha(_config())
  assert a != settings.config_sha(_config(seed=1))


def test_unknown_variant_lists_the_choices():
  with pytest.raises(ValueError, match='choose one of: tiny, qwen2.5-7b'):
    stepwise_ppo.get_config('huge')
  assert common.variant('', ('a', 'b')) == 'a'


def _main(*arguments, cwd=ROOT):
  return subprocess.run(
    [sys.executable, '-m', 'jaxagent.main', *arguments],
    cwd=cwd,
    capture_output=True,
    text=True,
    timeout=240,
    env=environment(),
  )


REFUSED = {
  '--config.rl.nokey=1': "has no 'nokey'; it has: .*policy_lr",
  '--config.rl.updates=abc': "updates=abc: 'abc' must be a whole number",
  '--config.rl.shuffle_rewards=maybe': 'shuffle_rewards=maybe',
  '--confg=3': "Unknown command line flag 'confg'",
  'extra': "unexpected argument 'extra'",
  '--config=configs/nothing.py': r'configs/nothing\.py: no such file',
  '--config=configs/stepwise_ppo.py:huge': 'choose one of: tiny',
  '--config.rl.watchdog_s=nan': 'watchdog_s=nan must be finite',
  '--config.tasks.heldin=nope': "unknown task 'nope'; choose from",
  '--config.mesh.fsdp=64': 'needs 64 devices, but 1 is here',
}


@pytest.mark.parametrize('argument', sorted(REFUSED))
def test_refused_in_one_line_before_any_work(argument, tmp_path):
  work = tmp_path / 'work'
  began = time.monotonic()
  config = '--config=configs/stepwise_ppo.py'
  first = [] if argument.startswith('--config=') else [config]
  done = _main(*first, argument, f'--work_dir={work}')
  assert time.monotonic() - began < 30  # whole work takes minutes
  assert done.returncode == 2 and done.stdout == ''
  assert done.stderr.startswith('error: ') and done.stderr.count('\n') == 1
  assert re.search(REFUSED[argument], done.stderr), done.stderr
  assert not work.exists()


def test_a_missing_config_is_asked_for():
  done = _main()
  assert done.returncode == 2
  assert done.stderr.startswith('error: --config is missing')


def test_dry_run_prints_the_plan_and_makes_nothing(tmp_path):
  work = tmp_path / 'work'
  done = _main(
    '--config=configs/stepwise_ppo.py:qwen2.5-7b',
    '--dry_run',
    f'--work_dir={work}',
  )
  assert done.returncode == 0, done.stderr
  assert '7,615,616,512 parameters' in done.stdout  # Qwen2.5-7B's own count
  for word in ('collect', 'sft', 'rl', 'evaluate', 'value_optimizer'):
    assert word in done.stdout
  assert not work.exists()


def test_configs_are_looked_for_here_and_tasks_among_the_bundled_ones(tmp_path):
  done = _main('--config=configs/stepwise_ppo.py', cwd=tmp_path)
  assert (
    done.returncode == 2 and f'{ROOT}/configs/stepwise_ppo.py' in done.stderr
  )
  path = f'--config={ROOT}/configs/stepwise_ppo.py'
  done = _main(path, '--config.tasks_dir=nowhere', cwd=tmp_path)
  assert done.returncode == 2 and f'bundled tasks ({ROOT}/tasks)' in done.stderr
  done = _main(path, '--dry_run', cwd=tmp_path)
  assert done.returncode == 0, done.stderr
  assert 'digits' in done.stdout


def test_config_record_is_json(tmp_path):
  json.dumps(settings.config_record(_config(tmp_path)))
