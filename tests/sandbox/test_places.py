"""The sandbox does not care where the project lies, nor under which umask it
was laid down: a copy of the package with a virtual environment of its own is
put at each place and runs one job there."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tempfile

import pytest

REPO = pathlib.Path(__file__).resolve().parents[2]
NOBODY = 65534
_PROBE = f'''
import json, sys
sys.path[:0] = [sys.argv[1], {str(REPO)!r}, {sysconfig.get_path('purelib')!r}]
from jaxagent import sandbox
from jaxagent.types import Job
script = """
import json, os, sys, zipfile
above = [r for r, _, names in os.walk('/usr/src') if names]
print(json.dumps([sys.prefix, sys.base_prefix, above]))
"""
with sandbox.SandboxPool(
  1, min_tier='T1', zygote=False, disable=sys.argv[2:]
) as pool:
  job = Job('one', 'main.py', files={{'main.py': script}})
  result = pool.submit(job).result()
  print(json.dumps({{
    'tier': pool.tier, 'outcome': result.outcome.value,
    'output': result.output, 'message': result.message,
    'notes': pool.stats()['launcher']['notes'],
  }}))
'''

needs_root = pytest.mark.skipif(
  os.geteuid() != 0, reason='makes folders that only root can make'
)


@pytest.fixture
def lay_down():
  """lay_down(folder, umask) -> the copy's folder; all removed afterwards."""
  made = []

  def make(folder: pathlib.Path, umask: int = 0o022) -> pathlib.Path:
    before = os.umask(umask)
    try:
      folder.mkdir(parents=True)
      made.append(folder)
      shutil.copytree(
        REPO / 'jaxagent',
        folder / 'jaxagent',
        ignore=shutil.ignore_patterns('__pycache__'),
      )
      shutil.copy(REPO / 'setup.py', folder)
      (folder / 'probe.py').write_text(_PROBE)
      subprocess.run(
        [sys.executable, '-m', 'venv', '--without-pip', folder / '.venv'],
        check=True,
      )
    finally:
      os.umask(before)
    return folder

  yield make
  for folder in made:
    shutil.rmtree(folder, ignore_errors=True)


def run_at(folder: pathlib.Path, *disable: str, user: str = '') -> dict:
  command = [
    str(folder / '.venv/bin/python'),
    str(folder / 'probe.py'),
    str(folder),
    *disable,
  ]
  if user:
    command = [
      sys.executable,
      '-m',
      'tests.sandbox.as_user',
      user,
      '--also',
      str(folder.parents[1]),
      *command,
    ]
  done = subprocess.run(
    command,
    capture_output=True,
    text=True,
    timeout=120,
    cwd=REPO if user else folder,
  )
  assert done.returncode == 0, done.stderr
  return json.loads(done.stdout)


def check_inside(record: dict) -> None:
  assert record['outcome'] == 'ok', record
  prefix, base, above = json.loads(record['output'])
  assert prefix == '/opt/venv'
  assert base == '/opt/python' or base.startswith('/usr')
  assert above == []


def test_below_tmp_and_in_a_path_with_a_space(lay_down):
  with tempfile.TemporaryDirectory(dir='/tmp') as top:
    check_inside(run_at(lay_down(pathlib.Path(top) / 'my clone')))


@needs_root
@pytest.mark.parametrize('parent', ['/usr/src', '/usr/local/lib', '/home'])
def test_a_checkout_in_a_system_folder_is_hidden(lay_down, parent):
  with tempfile.TemporaryDirectory(dir=parent) as top:
    os.chmod(top, 0o755)
    folder = lay_down(pathlib.Path(top) / 'clone')
    probe = (folder / 'probe.py').read_text()
    probe = probe.replace("'/usr/src'", repr(str(folder)))
    (folder / 'probe.py').write_text(probe)
    check_inside(run_at(folder))


def test_an_installed_package_is_hidden(lay_down):
  """With its bundled tasks, whose scripts make the labels."""
  with tempfile.TemporaryDirectory(dir='/tmp') as top:
    os.chmod(top, 0o755)
    folder = lay_down(pathlib.Path(top) / 'home')
    (packages,) = folder.glob('.venv/lib/python3*/site-packages')
    installed = (folder / 'jaxagent').rename(packages / 'jaxagent')
    task = installed / '_bundled/tasks/wine'
    shutil.copytree(REPO / 'tasks/wine', task)
    probe = (folder / 'probe.py').read_text()
    seen = "os.path.join(sys.prefix, 'lib')"
    probe = probe.replace("'/usr/src'", seen).replace(
      'if names]', "if names and 'jaxagent' in r]"
    )
    (folder / 'probe.py').write_text(
      probe.replace('sys.argv[1]', repr(str(packages)))
    )
    check_inside(run_at(folder))


@needs_root
def test_umask_077_as_root_costs_the_user_id_per_slot_and_says_so(lay_down):
  with tempfile.TemporaryDirectory() as top:
    record = run_at(lay_down(pathlib.Path(top) / 'clone', 0o077))
    check_inside(record)
    assert record['tier'] == 'T2'
    assert any('chmod -R go+rX' in note for note in record['notes'])


@needs_root
@pytest.mark.parametrize('disable', [(), ('namespaces',)])
def test_an_ordinary_user_below_a_closed_home(lay_down, disable):
  with tempfile.TemporaryDirectory() as top:
    folder = lay_down(pathlib.Path(top) / 'home/clone', 0o077)
    for path in (folder.parent, folder, *folder.rglob('*')):
      os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    folder.parent.chmod(0o700)
    os.chmod(top, 0o755)
    record = run_at(folder, *disable, user='nobody')
    assert record['outcome'] == 'ok', record
    assert record['tier'] == ('T1' if disable else 'T2')
    if not disable:
      check_inside(record)
