"""What a task needs and a machine lacks is told before anything runs."""

from __future__ import annotations

import dataclasses
import pathlib
import sys

import pytest

from jaxagent.envs import tasks as lib
from jaxagent.envs.specs import requirements
from jaxagent.types import TaskEnvironment
from tests.tasks import published


@pytest.fixture
def spec(tmp_path):
  published.write(tmp_path)
  return lib.load_task('pizza', tmp_path)


def _complaint(
  spec, need: dict | None = None, *, gpus=(), image='', memory_mb=0, count=0
):
  """Of a task with such an environment and so many GPUs an execution."""
  details = dataclasses.replace(
    spec.details, gpus=count, environment=TaskEnvironment(**need or {})
  )
  spec = dataclasses.replace(spec, details=details)
  return requirements.complaint(
    spec, gpus=gpus, image=image, memory_mb=memory_mb
  )


def test_a_task_that_asks_for_what_is_here_is_let_in(spec):
  assert _complaint(spec) == ''
  numpy = {
    'packages': ('numpy', 'scikit-learn', 'sklearn'),
    'interpreter': sys.executable,
  }
  assert _complaint(spec, numpy) == ''
  assert _complaint(spec, {'image': 'x'}, image='x') == ''


@pytest.mark.parametrize(
  ('need', 'message'),
  [
    ({'packages': ('numpy', 'no_such_package')}, 'no_such_package, not inst'),
    ({'packages': ('..',)}, 'pip install'),
    ({'image': 'other'}, 'docker_image=other'),
    ({'interpreter': '/no/python'}, 'no program here'),
    ({'interpreter': '/bin/sh'}, 'start jaxagent with the first'),
  ],
)
def test_an_environment_that_is_not_here_is_named(spec, need, message):
  found = _complaint(spec, need)
  assert message in found and 'task pizza' in found and '\n' not in found


def test_two_gpus_on_a_machine_with_one_are_refused(spec):
  one = _complaint(spec, gpus=('0',), count=2)
  assert 'asks for 2 GPUs' in one and 'has 1' in one and 'sandbox.gpus' in one
  assert _complaint(spec, gpus=('0', '1'), count=2) == ''


def test_memory_that_no_machine_has_is_refused(spec):
  limits = dataclasses.replace(spec.limits, memory_mb=44 * 10**6)
  large = dataclasses.replace(spec, limits=limits)
  assert 'asks for 44,000,000 MB of memory' in _complaint(large)
  assert _complaint(large, memory_mb=2048) == ''


def test_another_virtual_environment_of_the_same_python_is_named(
  spec, tmp_path
):
  """Its interpreter is a link to the same file, its packages are others."""
  home = tmp_path / 'env'
  (home / 'bin').mkdir(parents=True)
  (home / 'pyvenv.cfg').write_text('')
  (home / 'bin/python').symlink_to(pathlib.Path(sys.executable).resolve())
  need = {'interpreter': str(home / 'bin/python')}
  assert 'start jaxagent with the first' in _complaint(spec, need)
