"""The dialect `mlagentbench` against what the original answered."""

from __future__ import annotations

import json
import pathlib

import pytest

from jaxagent import types
from jaxagent.envs import mlagentbench, parser, session, step_env
from jaxagent.envs.execution import ExecutionOptions
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


def start(tmp_path, pool, **rules) -> session.Session:
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
    fake_runs.FakeGrader(),
    step_env.TextModels(FixedEditor(), ScriptedReader(), NoHelper()),
    step_env.StepRules(
      **{
        'dialect': 'mlagentbench',
        'actions': mlagentbench.ACTIONS,
        'after_edit': 'nothing',
      }
      | rules
    ),
    ExecutionOptions(zygote=False),
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


@pytest.mark.parametrize(
  'steps, told',
  [
    # As the original's source (5d71205) says; not in the golden run.
    (
      [('Copy File', ('train.py', 'c.py'))] * 2
      + [('Undo Edit Script', ('c.py',))],
      'EnvError: There is no change to undo.',
    ),
    (
      [('Execute Script', ('../x.py',))],
      'EnvError: cannot access file ../x.py because it is not in the work '
      'directory.',
    ),
    # Its list of read-only files is made of paths as it walks them, which the
    # task's './data/*' does not match.
    (
      [('Write File', ('data/train.csv', 'x'))],
      'File data/train.csv written successfully.',
    ),
    (
      [
        ('Write File', ('./data/train.csv', 'x')),
        ('Read File', ('data/train.csv',)),
      ],
      'x',
    ),
    ([('Reflection', ('all',))], 'EnvError: cannot read file research_log.log'),
    (
      [
        ('Append Summary to Research Log', ('Tried.',)),
        ('Read File', ('research_log.log',)),
      ],
      'Tried.\n',
    ),
    (
      [
        ('Edit Script (AI)', ('new.py', 'write', 'new.py')),
        ('Undo Edit Script', ('new.py',)),
      ],
      'Content of new.py after undo the most recent edit:\n',
    ),
    (
      [('Inspect Script Lines', ('train.py', 'a', '2'))],
      'EnvError: start_line_number and end_line_number must be integers',
    ),
    (
      [('Inspect Script Lines', ('train.py', '0', '1'))],
      'Here are the lines (the file ends at line 4):\n\nimport sys',
    ),
    ([('Python REPL', ('1 +',))], 'invalid syntax (<input>, line 1)'),
    ([('Python REPL', ('print(2)',))], '2\n'),
    (
      [
        ('Write File', ('o.py', 'import sys\nsys.stderr.write("e")\n')),
        ('Execute Script', ('o.py',)),
      ],
      'The script has been executed. Here is the output:\ne',
    ),
  ],
)
def test_what_the_originals_source_says(tmp_path, pool, steps, told):
  walk = start(tmp_path, pool)
  for action, args in steps:
    names = parser.ACTION_ARGS[action]
    last = walk.execute(action, dict(zip(names, args, strict=True)))
  assert last == told


def test_a_write_into_the_data_reaches_no_script(tmp_path, pool):
  walk = start(tmp_path, pool)
  content = "print(open('data/train.csv').read())"
  walk.execute('Write File', {'file_name': 'see.py', 'content': content})
  walk.execute(
    'Write File', {'file_name': './data/train.csv', 'content': 'hack'}
  )
  told = walk.execute('Execute Script', {'script_name': 'see.py'})
  assert 'id,y' in told and 'hack' not in told
