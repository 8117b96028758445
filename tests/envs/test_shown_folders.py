"""Folders that a workspace shows read-only, whatever they are called."""

from __future__ import annotations

import dataclasses

import pytest

from jaxagent.envs import workspace
from jaxagent.testing import fake_runs
from jaxagent.types import Outcome
from tests.envs.test_step_env import environment, say


class Shown(fake_runs.FakePrepared):
  """As a folder of MLAgentBench's that has `env/images/`."""

  @property
  def mounts(self):
    return {'images': self.public_dir}


@pytest.fixture
def env(tmp_path):
  made = environment(tmp_path, dialect='mlagentbench')
  old = made.prepared['t']
  spec = dataclasses.replace(old.spec, read_only_files=('images',))
  made.prepared['t'] = Shown(spec, old.public_dir, old.starter_files)
  return made


@pytest.mark.parametrize(
  'name, why',
  [
    ('images', ''),
    ('images/new.csv', ' because it is a read-only file.'),
    ('.repl', ''),
    ('.backup', ''),
  ],
)
def test_no_file_takes_its_place(env, name, why):
  write = say('Write File', file_name=name, content='x')
  result = env.step(env.initial_state('t'), write)
  assert result.outcome is Outcome.INVALID_ACTION
  assert result.observation == f'EnvError: cannot write file {name}{why}'


def test_an_edit_of_what_is_shown_reaches_no_run(env):
  change = say(
    'Edit Script (AI)', script_name='images/train.csv', save_name='train.py',
    edit_instruction='id,y -> # fake: ok 2.0 0.75',
  )  # fmt: skip
  result = env.step(env.initial_state('t'), change)
  assert (result.outcome, result.score) == (Outcome.OK, 0.75)
  # And a state of before, when a file could.
  files = {**result.state.files, 'images': 'x', '.repl': 'x'}
  state = dataclasses.replace(result.state, files=files)
  again = env.step(state, say('Execute Script', script_name='train.py'))
  assert again.outcome is Outcome.OK
  for job in env.pool.jobs:
    assert not any(
      workspace.is_at(name, ('images', '.repl')) for name in job.files
    )
