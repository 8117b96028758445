"""The folders whose submission is a program: data, starter and reference."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from jaxagent.envs import tasks as task_lib
from jaxagent.envs.specs import task_data
from jaxagent.tasks import rounds
from tests.subset import fast
from tests.tasks import catalogue

NAMES = ('llama-inference', 'vectorization')
every_task = pytest.mark.parametrize('name', NAMES)


@pytest.fixture(scope='module')
def standins(tmp_path_factory):
  made = {}
  for name in NAMES:
    home = made[name] = tmp_path_factory.mktemp(name)
    done = catalogue.prepare(name, home, '--standin')
    assert done.returncode == 0, done.stderr
  return made


def arrays(path):
  with np.load(path) as given:
    return {name: given[name] for name in given.files}


def test_every_folder_of_kind_speed_is_tested_here():
  specs = task_lib.list_tasks(catalogue.TASKS, version=2)
  assert sorted(s.name for s in specs if s.kind == 'speed') == sorted(NAMES)
  assert not set(NAMES) & set(catalogue.names())


@every_task
def test_folder_says_what_a_program_is_to_do(name, tasks_dir):
  spec = task_lib.load_task(name, tasks_dir)
  assert spec.details.is_program and spec.details.papers == {'002': 'evaluate'}
  assert spec.m_init > spec.m_best + 1 and abs(spec.m_best) < 0.5
  for words in ('submission.py', 'stand-in', 'INPUT OUTPUT', 'logarithm'):
    assert words in spec.research_problem


@pytest.mark.slow
@every_task
def test_prepared_twice_gives_the_same_bytes(name, standins, tmp_path):
  assert catalogue.prepare(name, tmp_path, '--standin').returncode == 0
  files = {}
  for home in (standins[name], tmp_path):
    files[home] = {
      str(p.relative_to(home)): p.read_bytes()
      for p in home.rglob('*')
      if p.is_file()
    }
  first, second = files.values()
  assert first == second and len(first) == 5


@every_task
def test_rounds_are_all_different_and_halves_have_five_each(name, standins):
  home = standins[name]
  inputs = arrays(home / 'private' / task_data.INPUTS)
  answers = arrays(home / 'private/answers.npz')
  assert list(answers['split']) == ['valid', 'private'] * rounds.EACH
  shown = arrays(home / 'public/example_input.npz')
  assert shown.keys() == inputs.keys()
  for key, values in inputs.items():
    every = [*values, shown[key]]
    assert len({value.tobytes() for value in every}) == rounds.COUNT, key
  task_data.check_prepared(
    task_lib.load_task(name, catalogue.TASKS), standins[name]
  )


@every_task
def test_sizes_are_as_task_yaml_says(name, standins, tasks_dir):
  files = (standins[name] / 'public').rglob('*')
  size = sum(p.stat().st_size for p in files if p.is_file()) / 1e6
  said = task_lib.load_task(name, tasks_dir).details.standin_mb
  assert abs(size - said) < 0.06 + 0.05 * said


def run(script, cwd, *args):
  return subprocess.run(
    [sys.executable, script, *args],
    capture_output=True,
    text=True,
    cwd=cwd,
    env={**os.environ, 'OPENBLAS_NUM_THREADS': '1'},
  )


@every_task
@pytest.mark.parametrize(
  'script', fast(['solution/reference.py', 'env/train.py'], first=1)
)
def test_scripts_hand_over_a_program_that_is_right(
  name, script, standins, tmp_path
):
  home = standins[name]
  (tmp_path / 'data').symlink_to(home / 'public')
  (tmp_path / 'train.py').write_bytes(
    (catalogue.TASKS / name / script).read_bytes()
  )
  done = run('train.py', tmp_path)
  assert done.returncode == 0 and 's of CPU time' in done.stdout, done.stderr
  # What it leaves is the program alone: a state keeps what a run writes.
  assert {p.name for p in tmp_path.iterdir()} == {
    'data', 'train.py', 'submission.py'
  }  # fmt: skip
  inputs = arrays(home / 'private' / task_data.INPUTS)
  answers = arrays(home / 'private/answers.npz')
  one = {key: values[4] for key, values in inputs.items()}
  (tmp_path / 'in.npz').write_bytes(task_data.npz(one))
  done = run('submission.py', tmp_path, 'in.npz', 'out.npy')
  assert done.returncode == 0, done.stderr
  found, wanted = np.load(tmp_path / 'out.npy'), answers['output'][4]
  off = np.abs(found - wanted) / np.maximum(1, np.abs(wanted))
  assert off.max() < answers['tolerance'][4] / 10


@every_task
def test_sample_has_the_right_shape_and_nothing_else(name, standins, tmp_path):
  home = standins[name]
  example = home / 'public/example_input.npz'
  done = run(home / 'public/sample_submission.py', tmp_path, example, 'o.npy')
  assert done.returncode == 0, done.stderr
  found = np.load(tmp_path / 'o.npy')
  assert found.shape == np.load(home / 'public/example_output.npy').shape
  assert not found.any()


@every_task
@pytest.mark.parametrize('source', ['--raw', '--mlebench'])
def test_there_is_no_published_data_to_prepare(name, source, tmp_path):
  done = catalogue.prepare(name, tmp_path, source, str(tmp_path))
  assert done.returncode == 1 and 'choose --standin' in done.stderr
