"""Actions that fake runs can show: changing, noting, asking, what an edit does."""

from __future__ import annotations

import dataclasses

import pytest

from jaxagent.envs import actions, workspace
from jaxagent.types import Outcome
from tests.envs.test_step_env import START, edit, environment, say


def walk(env, state, *responses):
  """The last step's result."""
  for response in responses:
    result = env.step(state, response)
    assert result.outcome is Outcome.OK, result.observation
    state = result.state
  return result


def test_write_append_and_undo(tmp_path):
  env = environment(tmp_path)
  state = env.initial_state('t')
  result = walk(
    env,
    state,
    say('Write File', file_name='lib/a.py', content='x = 1\n'),
    say('Append File', file_name='lib/a.py', content='y = 2\n'),
  )
  assert result.state.files['lib/a.py'] == 'x = 1\ny = 2\n'
  assert not result.is_edit and result.score is None
  result = walk(
    env, result.state, say('Undo Edit Script', script_name='lib/a.py')
  )
  assert result.state.files['lib/a.py'] == 'x = 1\n'
  made = walk(
    env, state, say('Append File', file_name='new.txt', content='first')
  )
  assert made.state.files['new.txt'] == 'first'


def test_an_edit_that_ran_can_be_undone(tmp_path):
  """By default, too, where one that failed is undone by itself."""
  env = environment(tmp_path)
  undo = say('Undo Edit Script', script_name='train.py')
  state = walk(
    env, env.initial_state('t'), edit('0.5 -> 0.6'), edit('0.6 -> 0.7')
  ).state
  for score in ('0.6', '0.5'):
    state = walk(env, state, undo).state
    assert score in state.files['train.py']
  assert env.step(state, undo).outcome is Outcome.INVALID_ACTION


def test_undo_copies_are_few_and_not_listed(tmp_path):
  env = environment(tmp_path)
  state = env.initial_state('t')
  for number in range(workspace.MAX_BACKUPS + 5):
    state = walk(
      env, state, edit(f'model = {1 + number} -> model = {2 + number}')
    )
    state = state.state
  copies = [name for name in state.files if workspace.within(name, '.backup')]
  assert len(copies) == workspace.MAX_BACKUPS
  listed = env.step(state, say('List Files', dir_path='.')).observation
  assert 'backup' not in listed


def test_many_files_of_a_kind_are_listed_by_their_number(tmp_path):
  env = environment(tmp_path)
  data = env.prepared['t'].public_dir
  there = len(list(data.iterdir()))
  for number in range(workspace.MOST_LISTED + 1):
    (data / f'{number:03}.png').touch()
    (data / f'patient_{number:03}').mkdir()
  state = env.initial_state('t')
  names = env.step(state, say('List Files', dir_path='data')).observation
  lines = names.splitlines()
  assert len(lines) == there + 6
  assert lines[:3] == ['000.png', '001.png', '*.png (21 in all)']
  assert lines[3:6] == ['patient_000/', 'patient_001/', '*/ (21 in all)']
  (data / '020.png').unlink()
  names = env.step(state, say('List Files', dir_path='data')).observation
  assert '019.png' in names and '*.png' not in names


def test_editing_a_file_that_is_not_there_begins_it(tmp_path):
  env = environment(tmp_path, after_edit='nothing')
  env.editor.edit = lambda script, instruction: START if not script else '?'
  result = env.step(
    env.initial_state('t'), edit('write it', name='b.py', save='b.py')
  )
  assert result.outcome is Outcome.OK and result.state.files['b.py'] == START


def test_a_score_that_only_the_reward_sees(tmp_path):
  """Paper 000: the edit answers with its diff, Execute Script tells the run."""
  env = environment(tmp_path, after_edit='measure')
  state = env.initial_state('t')
  result = env.step(state, edit('2.0 0.5 -> 2.0 0.75'))
  assert (result.score_before, result.score) == (0.5, 0.75)
  assert result.state.score == 0.75 and result.exec_s == 2.0
  assert '0.75' in result.diff and 'Status' not in result.observation
  broken = env.step(state, edit('ok 2.0 0.5 -> script_error 1'))
  assert broken.outcome is Outcome.SCRIPT_ERROR
  assert (
    'script_error' in broken.state.files['train.py']
  )  # for the agent to mend
  assert 'Status' not in broken.observation


def test_the_original_is_told_of_an_edit_that_was_undone(tmp_path):
  """Where its own dialect runs an edit: there it has no words for it."""
  env = environment(tmp_path, dialect='mlagentbench')
  change = edit('ok 2.0 0.5 -> timeout 1', save='new.py')
  result = env.step(env.initial_state('t'), change)
  assert result.undone and 'new.py' not in result.state.files
  assert result.observation.endswith(f'\n{actions.UNDONE}')
  assert 'in executing new.py' in result.observation


@pytest.mark.parametrize(
  'dialect, head',
  [
    ('jaxagent', 'Lines 80000-80002 of 100001:\n'),
    ('mlagentbench', 'Here are the lines (the file ends at line 100001):\n\n'),
  ],
)
def test_lines_are_shown_from_anywhere_in_a_long_text(tmp_path, dialect, head):
  env = environment(tmp_path, dialect=dialect)
  text = ''.join(f'row {number}\n' for number in range(1, 100_001))
  (tmp_path / 'public' / 'long.txt').write_text(text)
  state = env.initial_state('t')
  log = env.store.put_bytes(text.encode())
  state = dataclasses.replace(state, files={**state.files, 'log.txt': log})
  for name in ('data/long.txt', 'log.txt'):
    result = env.step(state, say(
      'Inspect Script Lines', script_name=name, start_line_number='80000',
      end_line_number='80002',
    ))  # fmt: skip
    assert result.observation == f'{head}row 80000\nrow 80001\nrow 80002'


def test_a_data_file_that_is_no_text_is_not_read(tmp_path):
  env = environment(tmp_path)
  (tmp_path / 'public' / '1.png').write_bytes(b'\x89PNG\x00')
  read = say('Read File', file_name='data/1.png')
  result = env.step(env.initial_state('t'), read)
  assert result.outcome is Outcome.INVALID_ACTION
  assert 'is no text (5 bytes)' in result.observation


def test_a_file_that_is_too_long_is_not_cut_without_a_word(tmp_path):
  env = environment(tmp_path)
  big = tmp_path / 'public' / 'big.csv'
  big.write_text('x' * (workspace.MAX_FILE_BYTES + 10))
  state = env.initial_state('t')
  copied = env.step(
    state, say('Copy File', source='data/big.csv', destination='big.csv')
  )
  assert copied.outcome is Outcome.INVALID_ACTION
  assert str(workspace.MAX_FILE_BYTES) in copied.observation
  env.dialect.max_observation_chars = None
  read = env.step(state, say('Read File', file_name='data/big.csv'))
  assert read.observation.endswith('[... 10 bytes left out ...]')


def test_a_binary_data_file_is_copied_as_it_is(tmp_path, monkeypatch):
  env = environment(tmp_path)
  data = b'\xff\xfe\x00' * 100_000
  (tmp_path / 'public' / 'raw.bin').write_bytes(data)
  state = env.initial_state('t')
  copy = say('Copy File', source='data/raw.bin', destination='raw.bin')
  copied = walk(env, state, copy).state.files['raw.bin']
  assert env.store.get_bytes(copied) == data
  fixed = say('Copy File', source='data/raw.bin', destination='data/b.bin')
  assert 'read-only' in env.step(state, fixed).observation
  monkeypatch.setattr(workspace, 'MAX_BINARY_BYTES', len(data) - 1)
  assert str(len(data)) in env.step(state, copy).observation


def test_the_research_log_and_reflection(tmp_path):
  env = environment(tmp_path)
  note = say('Append Summary to Research Log', content='Ridge gave 0.71')
  asked = say('Retrieval from Research Log', current_plan='Tune Ridge further')
  empty = env.step(env.initial_state('t'), asked)
  assert empty.observation == 'The research log is empty.'
  state = walk(env, env.initial_state('t'), note, note).state
  assert state.files[actions.RESEARCH_LOG] == 'Ridge gave 0.71\n' * 2
  assert '0.71' in env.step(state, asked).observation
  thought = say('Reflection', things_to_reflect_on='what was tried')
  assert '0.71' in env.step(state, thought).observation
  long = say('Append Summary to Research Log', content='x' * 501)
  assert env.step(state, long).outcome is Outcome.INVALID_ACTION


def test_help_is_answered_even_where_there_is_none(tmp_path):
  env = environment(tmp_path)
  state = env.initial_state('t')
  result = env.step(state, say('Request Help', request='a library'))
  assert result.outcome is Outcome.OK and 'No help' in result.observation


def test_a_workspace_has_a_size(tmp_path):
  env = environment(tmp_path)
  state = env.initial_state('t')
  content = 'x' * workspace.MAX_FILE_BYTES
  for number in range(20):
    response = say('Write File', file_name=f'{number}.txt', content=content)
    result = env.step(state, response)
    if result.outcome is not Outcome.OK:
      break
    state = result.state
  assert result.outcome is Outcome.INVALID_ACTION
  assert workspace.TOO_MUCH in result.observation
  assert workspace.text_bytes(state.files) <= workspace.MAX_TEXT_BYTES


def test_undo_copies_give_way_to_text():
  text = 'x' * (240 << 10)
  files = {'a.txt': text}
  for number in range(workspace.MAX_BACKUPS + 2):
    files = workspace.with_backup(files, 'a.txt')
    files = workspace.with_file(files, 'a.txt', f'{number}{text[1:]}')
    assert workspace.text_bytes(files) <= workspace.MAX_TEXT_BYTES
  assert len(files) == 8  # as many as fit, the last ones
  for number in range(8, 1, -1):
    files = workspace.undone(files, 'a.txt')
    assert files['a.txt'][0] == f'{number}'
  assert list(files) == ['a.txt']


def test_no_workspace_holds_a_file_in_a_file():
  for given, name in (('m.py', 'm.py/x'), ('m.py/x', 'm.py')):
    with pytest.raises(workspace.ActionFailed, match="'m.py' is a"):
      workspace.with_file({given: ''}, name, '')
    with pytest.raises(workspace.ActionFailed, match="'m.py' is a"):
      workspace.undone({given: '', f'.backup/000001/{name}': ''}, name)


@pytest.mark.parametrize('option', ['dialect', 'after_edit', 'on_failure'])
def test_unknown_choices_are_named(tmp_path, option):
  with pytest.raises(ValueError, match=f"{option}='x'; choose one of"):
    environment(tmp_path, **{option: 'x'})
