"""The dialect `mlagentbench` against what the original answered."""

from __future__ import annotations

import json
import pathlib

import pytest

from jaxagent import types
from jaxagent.envs import mlagentbench, session, step_env
from jaxagent.sandbox import SandboxPool
from jaxagent.stand_ins.reader import NoHelper, ScriptedReader
from jaxagent.testing import fake_runs

GOLDEN = json.loads(
  pathlib.Path(__file__)
  .parents[1]
  .joinpath('golden', 'mlagentbench_observations.json')
  .read_text()
)


class FixedEditor:
  """Answers as the edit model of the golden run was made to."""

  name, is_stand_in = 'fixed_editor', True

  def edit(self, script: str, instruction: str) -> str:
    return GOLDEN['edited_script']


@pytest.fixture(scope='module')
def pool():
  with SandboxPool(1, min_tier='T1') as one:
    yield one


def start(tmp_path, pool, **options) -> session.Session:
  """The golden task, at its start."""
  data = tmp_path / 'data'
  data.mkdir()
  files = dict(GOLDEN['files'])
  (data / 'train.csv').write_text(files.pop('data/train.csv'))
  spec = fake_runs.task_spec(
    root=tmp_path,
    read_only_files=tuple(GOLDEN['read_only']),
    limits=types.Limits(timeout_s=60.0),
  )
  env = step_env.StepEnvironment(
    {'t': fake_runs.FakePrepared(spec, data, files)},
    pool,
    FixedEditor(),
    fake_runs.FakeGrader(),
    reader=ScriptedReader(),
    helper=NoHelper(),
    **{
      'dialect': 'mlagentbench',
      'actions': mlagentbench.ACTIONS,
      'after_edit': 'nothing',
      'zygote': False,
    }
    | options,
  )
  state = types.State('s', 't', files, None, None)
  return session.Session(env, state)


def test_every_golden_observation_byte_for_byte(tmp_path, pool):
  walk = start(tmp_path, pool)
  for number, step in enumerate(GOLDEN['steps']):
    told = walk.execute(step['action'], step['args'])
    # Scripts ran in <WORK>/goldtask there, under their own name here.
    want = step['observation'].replace('<WORK>/goldtask/', '')
    assert told == want, (number, step['action'], step['args'])
