"""What a task needs and a machine lacks is told before anything runs."""

from __future__ import annotations

import dataclasses
import pathlib
import sys

import pytest

from jaxagent.envs import tasks as lib
from jaxagent.envs.specs import interpreters, label_sources, requirements
from jaxagent.types import TaskEnvironment
from tests.second_environment import second_environment
from tests.tasks import published


@pytest.fixture
def spec(tmp_path):
  published.write(tmp_path)
  return lib.load_task('pizza', tmp_path)


def _complaint(
  spec,
  need: dict | None = None,
  *,
  gpus=(),
  image='',
  memory_mb=0,
  count=0,
  backend='local',
):
  """Of a task with such an environment and so many GPUs an execution."""
  details = dataclasses.replace(
    spec.details, gpus=count, environment=TaskEnvironment(**need or {})
  )
  spec = dataclasses.replace(spec, details=details)
  return requirements.complaint(
    spec, gpus=gpus, image=image, memory_mb=memory_mb, backend=backend
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
    ({'interpreter': '/bin/sh'}, 'is no Python that runs'),
    ({'interpreter': '/usr'}, 'no program here'),
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


def test_a_task_may_have_an_environment_of_its_own(spec, tmp_path):
  """Whose interpreter is a link to the same file, and whose packages are others."""
  python = second_environment(tmp_path / 'env')
  need = {'interpreter': python, 'packages': ('only_there',)}
  assert _complaint(spec, need) == ''
  lacks = _complaint(spec, need | {'packages': ('numpy', 'only_there')})
  assert f'{python} -m pip install numpy`' in lacks and '\n' not in lacks
  elsewhere = _complaint(spec, need, backend='ray')
  assert 'sandbox.backend=local, not ray' in elsewhere


def test_an_interpreter_older_than_the_sandbox_needs_is_named(
  spec, tmp_path, monkeypatch
):
  python = second_environment(tmp_path / 'env')
  monkeypatch.setattr(interpreters, 'OLDEST', (99, 0))
  found = _complaint(spec, {'interpreter': python})
  assert f'is Python 3.{sys.version_info[1]}; the sandbox needs 99.0' in found


def test_what_a_task_hides_is_hidden_in_its_own_environment(spec, tmp_path):
  python = second_environment(tmp_path / 'env')
  folder = pathlib.Path(python).parents[1] / 'lib'
  (data,) = folder.glob('python3*/site-packages')
  (data / 'labels').mkdir()
  hides = dataclasses.replace(spec, hides=('labels',))
  assert label_sources.folders([hides]) == []
  details = dataclasses.replace(
    spec.details, environment=TaskEnvironment(interpreter=python)
  )
  found = label_sources.folders([dataclasses.replace(hides, details=details)])
  assert found == [(data / 'labels').resolve()]
