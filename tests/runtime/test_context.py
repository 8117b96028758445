"""What a run's sandbox is opened with, and what the data of a run must have."""

from __future__ import annotations

import pathlib
import shlex
import threading
import time
import types as stubs

import pytest

from configs import stepwise_ppo
from jaxagent.errors import UserError
from jaxagent.runtime import context
from jaxagent.tasks import __main__ as tasks_command
from tests.tasks import published

ROOT = pathlib.Path(__file__).parents[2]


def _config(tasks_dir=ROOT / 'tasks', **changes):
  config = stepwise_ppo.get_config('tiny').unlock()
  config.tasks_dir = str(tasks_dir)
  for path, value in changes.items():
    section, name = path.split('__')
    config[section][name] = value
  return config


def _opened(monkeypatch, tmp_path, config) -> dict:
  given = {}
  monkeypatch.setattr(
    context, 'SandboxPool', lambda slots, **options: given.update(options)
  )
  context._open_pool(config, tmp_path, {})
  return given


def test_the_folder_of_published_data_is_hidden_from_scripts(
  monkeypatch, tmp_path
):
  """mle-bench's folder holds the private answers beside the public files."""
  data = tmp_path / 'mle-bench'
  plain = _opened(monkeypatch, tmp_path, _config())
  assert data not in plain['hidden'] and tmp_path in plain['hidden']
  config = _config(tasks__data='mlebench', tasks__data_dir=str(data))
  assert data in _opened(monkeypatch, tmp_path, config)['hidden']


def test_the_sandbox_has_the_gpus_of_the_config(monkeypatch, tmp_path):
  assert _opened(monkeypatch, tmp_path, _config())['gpus'] == ()
  config = _config(sandbox__gpus=('0', '3'))
  assert _opened(monkeypatch, tmp_path, config)['gpus'] == ('0', '3')


@pytest.fixture
def folder(tmp_path):
  published.write(tmp_path / 'tasks')
  (tmp_path / 'raw').mkdir()
  (tmp_path / 'raw/x.csv').write_text('a')
  return tmp_path


def _on_raw_data(folder, **more):
  return _config(
    folder / 'tasks',
    tasks__heldin=('pizza',),
    tasks__data='raw',
    tasks__data_dir=str(folder / 'raw'),
    **more,
  )


def test_a_run_on_data_that_was_not_measured_ends_at_once(folder):
  config = _on_raw_data(folder)
  with pytest.raises(
    UserError, match='task pizza: .* of its raw data is not m'
  ):
    context.prepare_all(config, folder / 'work')
  config = _config(folder / 'tasks', tasks__heldin=('pizza',))
  prepared = context.prepare_all(config, folder / 'work')
  assert prepared['pizza'].spec.variant == 'standin'


def test_a_reference_without_a_score_is_refused_with_the_file_to_write(folder):
  config = _on_raw_data(folder)
  with pytest.raises(UserError, match='is not measured'):
    context.prepare_all(config, folder / 'work')
  (made,) = (folder / 'work/tasks/pizza').glob('*/done')
  scale = made.with_name('scale.json')
  scale.write_text('{"m_init": 0.5, "m_init_private": 0.5}')
  with pytest.raises(
    UserError, match='gave no score there. Write both'
  ) as said:
    context.prepare_all(config, folder / 'work')
  assert str(scale) in str(said.value)
  scale.write_text('{"m_init": 0.5, "m_best": 0.8, "m_best_private": 0.8}')
  assert (
    context.prepare_all(config, folder / 'work')['pizza'].spec.m_best == 0.8
  )


@pytest.mark.slow
def test_the_command_that_a_refusal_names_measures_the_data_of_that_run(folder):
  script = (
    "open('submission.csv', 'w').write('request_id,requester_received_pizza\\n'"
    " + ''.join(f't3_{k},{v}\\n' for k, v in zip('abcd', %s)))\n"
  )
  root = folder / 'tasks/pizza'
  (root / 'solution').mkdir()
  (root / 'env/train.py').write_text(script % '[1, 1, 1, 1]')
  (root / 'solution/reference.py').write_text(script % '[1, 0, 1, 0]')
  config = _on_raw_data(folder, sandbox__timeout_s=600.0)
  with pytest.raises(UserError) as said:
    context.prepare_all(config, folder / 'work')
  command = shlex.split(str(said.value).split('`')[1])
  assert command[:3] == ['python', '-m', 'jaxagent.tasks']
  assert command[-2:] == ['--timeout_s', '600']  # not the 20 s of the task
  assert tasks_command.main(command[3:]) == 0
  spec = context.prepare_all(config, folder / 'work')['pizza'].spec
  assert (spec.m_init, spec.m_best, spec.m_best_private) == (0.5, 1.0, 1.0)


def test_a_wrong_checksum_is_told_at_the_start_of_a_run(folder, capsys):
  (folder / 'raw/MD5SUMS').write_text('00  x.csv\n')
  config = _on_raw_data(folder)
  with pytest.raises(UserError):
    context.prepare_all(config, folder / 'work')
  assert 'note: task pizza: ' in capsys.readouterr().err


def test_no_data_ends_a_run_in_one_sentence(folder):
  config = _config(
    folder / 'tasks',
    tasks__heldin=('pizza',),
    tasks__data='mlebench',
    tasks__data_dir=str(folder / 'raw'),
  )
  with pytest.raises(UserError, match='mlebench prepare -c') as said:
    context.prepare_all(config, folder / 'work')
  assert '\n' not in str(said.value)


@pytest.mark.parametrize('data, most', [('standin', 2), ('raw', 1)])
def test_tasks_are_prepared_two_at_once_and_published_data_alone(
  tmp_path, monkeypatch, data, most
):
  under_way, seen, lock = [], [], threading.Lock()

  def prepare(spec, target, source):
    with lock:
      under_way.append(spec)
      seen.append(len(under_way))
    time.sleep(0.2)
    with lock:
      under_way.remove(spec)
    return stubs.SimpleNamespace(notes=(), name=spec)

  names = ('d', 'b', 'c', 'a')
  monkeypatch.setattr(context, 'prepare_task', prepare)
  monkeypatch.setattr(context, 'task_of', lambda config, name: name)
  monkeypatch.setattr(context, 'choose_tasks', lambda config: (names, ()))
  monkeypatch.setattr(context, '_check_scales', lambda *given: None)
  monkeypatch.setattr(context.os, 'cpu_count', lambda: 8)
  where = {'tasks__data': data}
  if data == 'raw':
    where['tasks__data_dir'] = str(tmp_path)
  config = _config(tmp_path, sandbox__slots=2, **where)
  prepared = context.prepare_all(config, tmp_path / 'work')
  assert tuple(prepared) == names  # in their order, which decides what is drawn
  assert max(seen) == most


def test_after_a_task_that_cannot_be_prepared_no_other_is_begun(
  tmp_path, monkeypatch
):
  begun = []

  def prepare(spec, target, source):
    begun.append(spec)
    time.sleep(0.05)
    raise ValueError(f'task {spec}: prepare.py failed')

  names = tuple(f't{n}' for n in range(20))
  monkeypatch.setattr(context, 'prepare_task', prepare)
  monkeypatch.setattr(context, 'task_of', lambda config, name: name)
  monkeypatch.setattr(context, 'choose_tasks', lambda config: (names, ()))
  with pytest.raises(UserError, match='task t0: prepare.py failed'):
    context.prepare_all(_config(tmp_path, sandbox__slots=2), tmp_path / 'work')
  assert len(begun) < 8
