"""A task whose scripts have another interpreter than the trainer."""

import dataclasses
import types

import pytest

from jaxagent.envs import tasks as lib
from jaxagent.envs.execution import Graded, ScriptRunner
from jaxagent.sandbox import SandboxPool
from jaxagent.tasks import check, measure
from jaxagent.types import Outcome, TaskEnvironment
from tests.second_environment import second_environment
from tests.tasks import published

SCRIPT = """
import only_there
open('submission.csv', 'w').write(only_there.NAME)
"""


@pytest.fixture(scope='module')
def task(tmp_path_factory):
  """A prepared task that names a second environment, and its interpreter."""
  home = tmp_path_factory.mktemp('own')
  python = second_environment(home / 'env')
  published.write(home)
  spec = lib.load_task('pizza', home)
  details = dataclasses.replace(
    spec.details, environment=TaskEnvironment(interpreter=python)
  )
  return types.SimpleNamespace(
    spec=dataclasses.replace(spec, details=details),
    mounts={},
    starter_files={'train.py': SCRIPT},
    public_dir=home,
    python=python,
  )


class Grader:
  """Gives back what it is handed, as a reason."""

  def grade(self, task, submission, split, own_work=False):
    return Graded(1.0, Outcome.OK, submission.decode())


def test_its_scripts_run_with_it_and_those_of_others_do_not(task):
  plain = types.SimpleNamespace(**vars(task))
  plain.spec = dataclasses.replace(task.spec, details=None)
  with SandboxPool(1, min_tier='T1', interpreters=[task.python]) as pool:
    runner = ScriptRunner({'own': task, 'plain': plain}, pool, Grader())
    own, other = (
      runner.run_script(name, {'train.py': SCRIPT}, 'train.py')
      for name in ('own', 'plain')
    )
    checked = pool.submit(check.script_job(task)).result()
  assert (own.outcome, own.message) == (Outcome.OK, 'second')
  assert other.outcome is Outcome.SCRIPT_ERROR
  assert "No module named 'only_there'" in other.execution.output
  assert checked.outcome is Outcome.OK


def test_it_is_measured_with_it(task, tmp_path):
  job = (SCRIPT, str(tmp_path), 30.0, 'submission.csv', task.python)
  data, wall_s, cpu_s, words = measure.run_script(job)
  assert (data, words) == (b'second', '') and 0 < cpu_s < wall_s + 1
  fails = (f'{SCRIPT}\nraise KeyError("what")', *job[1:])
  assert measure.run_script(fails)[3] == "KeyError: 'what'"
  slow = ('while True: pass', str(tmp_path), 0.5, 'submission.csv', task.python)
  assert 'longer than the limit' in measure.run_script(slow)[3]
