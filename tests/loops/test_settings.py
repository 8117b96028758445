"""Bad configs and work directories stop before any work, with a remedy."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from configs import common, stepwise_ppo
from jaxagent.loops import settings
from jaxagent.loops.errors import UserError

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


@pytest.mark.parametrize('path', sorted(settings.CHOICES))
def test_unknown_choice_is_named_with_the_choices(path):
  config = _config(**{path.replace('.', '__'): 'nonsense'})
  with pytest.raises(UserError) as error:
    settings.validate(config)
  text = str(error.value)
  assert path in text and 'nonsense' in text
  assert all(choice in text for choice in settings.CHOICES[path])


@pytest.mark.parametrize('path', settings.POSITIVE)
def test_zero_is_refused(path):
  with pytest.raises(UserError, match=path.replace('.', r'\.')):
    settings.validate(_config(**{path.replace('.', '__'): 0}))


@pytest.mark.parametrize(
  'changes, text',
  [
    ({'rl__oversample': 0.5}, 'oversample=0.5'),
    ({'rl__minibatches': 5}, 'does not divide'),
    ({'rl__estimator': 'grpo'}, 'group_size=1 must be at least 2'),
    ({'sandbox__timeout_s': 100.0}, 'deadlines nest'),
    ({'rollout__top_p': 0.9}, 'truncated sampling'),
    ({'rollout__max_prompt_tokens': 4000}, 'max_position_embeddings'),
    ({'tasks_dir': 'nowhere'}, 'not a folder'),
  ],
)
def test_contradictions_are_refused(changes, text):
  with pytest.raises(UserError, match=text):
    settings.validate(_config(**changes))


@pytest.mark.parametrize('variant', ['tiny', 'qwen2.5-7b'])
def test_shipped_variants_are_valid(variant):
  config = stepwise_ppo.get_config(variant).unlock()
  config.tasks_dir = str(ROOT / 'tasks')
  settings.validate(config)


def test_work_dir_of_another_config_is_refused(tmp_path):
  settings.open_work_dir(_config(tmp_path))
  settings.open_work_dir(_config(tmp_path))  # the same one is reopened
  with pytest.raises(UserError, match=r'rl\.policy_lr: 0.0003 -> 0.5'):
    settings.open_work_dir(_config(tmp_path, rl__policy_lr=0.5))


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
    env={**os.environ, 'JAX_PLATFORMS': 'cpu'},
  )


def test_unknown_key_lists_the_known_ones():
  done = _main('--config=configs/stepwise_ppo.py', '--config.rl.nokey=1')
  assert done.returncode == 1
  assert "has no 'nokey'" in done.stderr and 'policy_lr' in done.stderr


def test_missing_config_file_is_named():
  done = _main('--config=configs/nothing.py')
  assert done.returncode == 1
  assert 'configs/nothing.py: no such file' in done.stderr


def test_dry_run_prints_the_plan_and_makes_nothing(tmp_path):
  work = tmp_path / 'work'
  done = _main(
    '--config=configs/stepwise_ppo.py:qwen2.5-7b',
    '--dry_run',
    f'--work_dir={work}',
  )
  assert done.returncode == 0, done.stderr
  assert '7,615,616,512 parameters' in done.stdout  # Qwen2.5-7B's own count
  for word in ('collect', 'sft', 'rl', 'evaluate', 'value Adam moments'):
    assert word in done.stdout
  assert not work.exists()


def test_config_record_is_json(tmp_path):
  json.dumps(settings.config_record(_config(tmp_path)))
