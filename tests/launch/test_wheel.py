"""A wheel brings configs and tasks along: a run needs no checkout."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys
import sysconfig
import zipfile

import pytest

from tests.runs import environment

ROOT = pathlib.Path(__file__).parents[2]
PARTS = ('setup.py', 'pyproject.toml', 'MANIFEST.in', 'README.md', 'LICENSE')
TREES = ('jaxagent', 'configs', 'tasks')
# Starts a program of the installed package: its folder and the libraries of this
# interpreter are on the path, without the hooks of editable installs.
_START = f"""
import runpy, sys
target, module = sys.argv[1:3]
del sys.argv[:2]
sys.path[:] = [p for p in sys.path if 'site-packages' not in p and p not in ('', '.')]
sys.path += [target, {sysconfig.get_path('purelib')!r}]
import jaxagent
assert jaxagent.__file__.startswith(target), jaxagent.__file__
runpy.run_module(module, run_name='__main__', alter_sys=True)
"""
CONFIG = """
from configs import common
def get_config(arg=''):
  config = common.base()
  config.recipe = 'stepwise'
  config.work_dir = 'work'
  return config.lock()
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope='module')
def wheel(tmp_path_factory):
  """A wheel made of an sdist of this checkout."""
  folder = tmp_path_factory.mktemp('wheel')
  source = folder / 'source'
  source.mkdir()
  for name in PARTS:
    shutil.copy(ROOT / name, source)
  for name in TREES:
    shutil.copytree(ROOT / name, source / name)
  for made in ('.prepared', '__pycache__/train.cpython-311.pyc'):
    path = source / 'tasks/wine/env' / made
    path.parent.mkdir(exist_ok=True)
    path.write_text('of an earlier run')
  _do([sys.executable, 'setup.py', '-q', 'sdist'], source)
  (made,) = (source / 'dist').glob('*.tar.gz')
  _pip('wheel', '--no-deps', '--no-build-isolation', '-w', folder, made)
  (found,) = folder.glob('*.whl')
  return found


@pytest.fixture(scope='module')
def target(wheel):
  folder = wheel.parent / 'installed'
  _pip('install', '--no-deps', '--target', folder, wheel)
  return folder


def _do(command, cwd):
  done = subprocess.run(
    command, cwd=cwd, capture_output=True, text=True, timeout=300
  )
  assert done.returncode == 0, done.stdout + done.stderr


def _pip(*arguments):
  pip = [sys.executable, '-m', 'pip', '--quiet', '--disable-pip-version-check']
  _do([*pip, *map(str, arguments)], '/')


def _start(target, cwd, module, *arguments):
  """Runs a module of the installed package in `cwd`, without the checkout."""
  return subprocess.run(
    [sys.executable, '-I', '-S', '-c', _START, target, module, *arguments],
    cwd=cwd,
    capture_output=True,
    text=True,
    timeout=240,
    env={k: v for k, v in environment().items() if k != 'PYTHONPATH'},
  )


def _tracked():
  """Names of the files that git has, or would take, of the bundled folders."""
  take = ('--cached', '--others', '--exclude-standard')
  listed = subprocess.run(
    ['git', 'ls-files', '-z', *take, 'configs', 'tasks'],
    cwd=ROOT,
    capture_output=True,
    text=True,
  )
  if listed.returncode:
    pytest.skip('needs a git checkout')
  return {name for name in listed.stdout.split('\0') if name}


def test_a_wheel_has_each_file_of_configs_and_tasks_once_and_no_other(wheel):
  with zipfile.ZipFile(wheel) as packed:
    names = packed.namelist()
  start = 'jaxagent/_bundled/'
  inside = sorted(n.removeprefix(start) for n in names if n.startswith(start))
  assert inside == sorted(_tracked())
  tops = {name.partition('/')[0] for name in names}
  assert tops == {'jaxagent', 'jaxagent-0.1.0.dist-info'}
  assert wheel.stat().st_size < 3 << 20


def test_a_config_outside_of_the_checkout_is_read_with_the_bundled_tasks(
  target, tmp_path
):
  (tmp_path / 'x.py').write_text(CONFIG)
  here = tmp_path / 'elsewhere'
  here.mkdir()
  config = f'--config={tmp_path}/x.py'
  done = _start(target, here, 'jaxagent.main', config, '--dry_run')
  assert done.returncode == 0, done.stderr
  assert 'digits' in done.stdout and not [*here.iterdir()]


def test_bundled_configs_and_tasks_are_found_by_name(target, tmp_path):
  listed = _start(target, tmp_path, 'jaxagent.tasks', 'list')
  assert listed.returncode == 0, listed.stderr
  assert {'digits', 'wine', 'vectorization'} <= set(listed.stdout.split())
  helped = _start(target, tmp_path, 'jaxagent.cli', 'train', '--help')
  assert 'stepwise_ppo' in helped.stdout, helped.stderr
  config = f'{target}/jaxagent/_bundled/configs/stepwise_ppo.py'
  done = _start(
    target, tmp_path, 'jaxagent.main', f'--config={config}', '--dry_run'
  )
  assert done.returncode == 0, done.stderr
