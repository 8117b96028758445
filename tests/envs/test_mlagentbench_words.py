"""The dialect `mlagentbench` where fake runs, or none, can show it."""

from __future__ import annotations

import dataclasses

import pytest

from jaxagent import types
from jaxagent.envs import session, workspace
from jaxagent.envs.execution import Run
from jaxagent.envs.mlagentbench import MlAgentBenchActions
from jaxagent.types import Outcome
from tests.envs.test_step_env import START, edit, environment, say

DIED = types.Execution(
  'j',
  Outcome.SCRIPT_ERROR,
  'T3',
  signal=11,
  output='lost',
  errors='a\r\n50%\rb',
)


@pytest.fixture
def env(tmp_path):
  return environment(tmp_path, dialect='mlagentbench')


def test_undo_puts_no_file_in_a_folder_s_place(env):
  files = {'train.py': START, 'm.py/x': 'y', '.backup/000001/m.py': 'x'}
  state = dataclasses.replace(env.initial_state('t'), files=files)
  result = env.step(state, say('Undo Edit Script', script_name='m.py'))
  assert result.outcome is Outcome.INVALID_ACTION
  assert result.state.files == files
  assert result.observation == (
    'EnvError: Cannot undo the edit of file name m.py. Check the file name again.'
  )


def test_what_is_written_over_a_read_only_file_reaches_no_run(env, tmp_path):
  old = env.prepared['t']
  raw = tmp_path / 'fixed.bin'
  raw.write_bytes(b'\xff\x00')
  spec = dataclasses.replace(
    old.spec, read_only_files=('data/*', 'fixed.*', 'gone.csv')
  )
  files = {**old.starter_files, 'fixed.bin': raw}
  env.prepared['t'] = dataclasses.replace(old, spec=spec, starter_files=files)
  state = env.initial_state('t')
  for name in ('fixed.py', 'fixed.bin', 'gone.csv', 'free.csv'):
    write = say('Write File', file_name=name, content='mine')
    state = env.step(state, write).state
    read = env.step(state, say('Read File', file_name=name))
    assert read.observation == 'mine'
  for response in (
    say('Execute Script', script_name='train.py'),
    say('Python REPL', command='1'),
    edit('0.5 -> 0.6'),
  ):
    env.step(state, response)
    given = env.pool.jobs[-1].files
    assert (given['fixed.py'], given['fixed.bin']) == ('x = 1\n', b'\xff\x00')
    assert given['free.csv'] == 'mine' and 'gone.csv' not in given


def test_an_edit_that_no_run_would_be_given_is_refused(env):
  old = env.prepared['t']
  spec = dataclasses.replace(old.spec, read_only_files=('gone.py',))
  env.prepared['t'] = dataclasses.replace(old, spec=spec)
  result = env.step(env.initial_state('t'), edit('0.5 -> 0.6', save='gone.py'))
  assert result.outcome is Outcome.INVALID_ACTION
  why = 'cannot write file gone.py because it is a read-only file.'
  assert result.observation == f'EnvError: {why}'


def test_a_script_that_died_of_a_signal_was_executed():
  told = MlAgentBenchActions()
  run = Run(DIED.outcome, None, DIED, 'it died of signal 11')
  head = 'The script has been executed. Here is the output:\n'
  assert told.report('a.py', run) == f'{head}a\n50%\nb'
  assert told.printed(DIED) == DIED.errors
  stopped = dataclasses.replace(DIED, outcome=Outcome.TIMEOUT)
  run = Run(stopped.outcome, None, stopped, 'killed')
  assert told.report('a.py', run).startswith(
    'EnvError: Something went wrong in'
  )
  assert told.printed(stopped).startswith('EnvError: Something went wrong in')


def test_files_are_read_in_text_mode_and_copied_as_they_are(env, tmp_path):
  (tmp_path / 'public' / 'dos.txt').write_bytes(b'a\r\nb\rc')
  copy = say('Copy File', source='data/dos.txt', destination='x.txt')
  state = env.step(env.initial_state('t'), copy).state
  assert state.files['x.txt'] == 'a\r\nb\rc'
  for name in ('data/dos.txt', 'x.txt'):
    read = env.step(state, say('Read File', file_name=name))
    assert read.observation == 'a\nb\nc'
    lines = say(
      'Inspect Script Lines', script_name=name, start_line_number='2',
      end_line_number='3',
    )  # fmt: skip
    assert env.step(state, lines).observation == (
      'Here are the lines (the file ends at line 3):\n\nb\nc'
    )


def test_a_line_s_end_is_one_wherever_a_file_is_cut(tmp_path, monkeypatch):
  monkeypatch.setattr(workspace, '_READ_BYTES', 3)
  (tmp_path / 'dos.txt').write_bytes(b'ab\r\ncd\re\r')
  given = ({}, {'data': tmp_path}, 'data/dos.txt', 1, 9)
  assert workspace.lines(*given, universal=True) == ('ab\ncd\ne\n', 4)
  assert workspace.lines(*given) == ('ab\r\ncd\re\r', 2)


def test_an_edit_that_cannot_be_written_says_so(env):
  env.prepared['t'].starter_files['lib/a.py'] = START
  state = env.initial_state('t')
  for response, name in (
    (edit('0.5 -> 0.6', save='lib'), 'lib'),
    (edit('0.5 -> 0.6', name='lib', save='b.py'), 'lib'),
    (edit('0.5 -> 0.6', name='no/b.py', save='b.py'), 'no/b.py'),
  ):
    told = env.step(state, response).observation
    assert told == f'EnvError: cannot write file {name}'
  refused = env.step(state, edit('what?')).observation
  assert refused == 'EnvError: the edit was refused: cannot do that.'
  env.editor.edit = lambda script, instruction: (
    'x' * (workspace.MAX_FILE_BYTES + 1)
  )
  told = env.step(state, edit('x')).observation
  assert told == 'EnvError: cannot write file train.py'


@pytest.mark.parametrize(
  'args', [{}, 'text', {'final_answer': 1.5}, {'x': '1'}]
)
def test_a_final_answer_ends_whatever_it_says(env, args):
  walk = session.Session(env, env.initial_state('t'))
  assert walk.execute('Final Answer', args) == 'end'
  assert walk.done and walk.results[-1].outcome is Outcome.OK
