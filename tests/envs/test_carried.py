"""What scripts leave behind, carried on and kept, in a real sandbox."""

from __future__ import annotations

import dataclasses
import random
import time

import pytest

from jaxagent import types
from jaxagent.data import records
from jaxagent.envs import carried, parser, step_env, workspace
from jaxagent.envs.snapshots import Snapshots
from jaxagent.testing import fake_runs
from jaxagent.types import Outcome
from tests.envs.test_mlagentbench import pool, start  # noqa: F401

WRITES = """\
import pathlib
pathlib.Path('submission.csv').write_text('0.5')
pathlib.Path('out').mkdir(exist_ok=True)
pathlib.Path('out/log.txt').write_text('epoch 1\\n')
pathlib.Path('model.bin').write_bytes(bytes(range(256)) * 10)
pathlib.Path('notes.md').unlink(missing_ok=True)
"""
READS = """\
import pathlib
print(len(pathlib.Path('model.bin').read_bytes()), end=' ')
print(pathlib.Path('out/log.txt').read_text().strip(), end=' ')
print(pathlib.Path('notes.md').exists())
pathlib.Path('submission.csv').write_text('0.6')
"""


@pytest.fixture
def walk(tmp_path, pool):  # noqa: F811
  """A session in our own dialect, on two scripts of ours."""
  walk = start(
    tmp_path,
    pool,
    dialect='jaxagent',
    actions=tuple(
      ('Execute Script', 'Read File', 'Copy File', 'List Files', 'Python REPL')
    ),
  )
  files = {**walk.state.files, 'a.py': WRITES, 'b.py': READS}
  walk.state = types.State('s', 't', files, None, None)
  return walk


def test_files_go_on_to_the_next_run(walk):
  walk.execute('Execute Script', {'script_name': 'a.py'})
  files = walk.state.files
  assert files['out/log.txt'] == 'epoch 1\n'
  assert isinstance(files['model.bin'], types.Blob)
  assert 'notes.md' not in files
  told = walk.execute('Execute Script', {'script_name': 'b.py'})
  assert '2560 epoch 1 False' in told
  again = records.state_from_json(records.state_to_json(walk.state))
  assert again == walk.state


def test_a_submission_is_read_and_no_next_run_gets_it(walk):
  walk.execute('Execute Script', {'script_name': 'a.py'})
  asks = "import os\nprint(os.path.exists('submission.csv'))\n"
  files = {**walk.state.files, 'c.py': asks}
  walk.state = dataclasses.replace(walk.state, files=files)
  told = walk.execute('Execute Script', {'script_name': 'c.py'})
  assert 'False' in told
  assert walk.results[-1].outcome is Outcome.NO_SUBMISSION
  assert walk.execute('Read File', {'file_name': 'submission.csv'}) == '0.5'
  command = "open('submission.csv', 'w').write('0.9')"
  told = walk.execute('Python REPL', {'command': command})
  assert 'submission.csv: a submission is written by running' in told
  assert walk.execute('Read File', {'file_name': 'submission.csv'}) == '0.5'


def test_a_binary_file_is_copied_and_not_read(walk):
  walk.execute('Execute Script', {'script_name': 'a.py'})
  told = walk.execute('Read File', {'file_name': 'model.bin'})
  assert 'no text (2560 bytes)' in told
  walk.execute('Copy File', {'source': 'model.bin', 'destination': 'c.bin'})
  assert walk.state.files['c.bin'] == walk.state.files['model.bin']
  assert 'c.bin' in walk.execute('List Files', {'dir_path': '.'})


def test_a_command_runs_in_the_workspace(walk):
  told = walk.execute('Python REPL', {'command': '6 * 7'})
  assert told == '42\n'
  walk.execute('Python REPL', {'command': "open('x.txt', 'w').write('y')"})
  assert walk.state.files['x.txt'] == 'y'
  assert not any(name.startswith('.repl') for name in walk.state.files)
  told = walk.execute('Python REPL', {'command': '1 / 0'})
  assert 'division by zero' in told
  assert walk.results[-1].outcome is Outcome.SCRIPT_ERROR


def test_put_back_and_run_again_it_says_the_same(walk, tmp_path):
  store = Snapshots(tmp_path / 'kept.sqlite')
  walk.execute('Execute Script', {'script_name': 'a.py'})
  key = store.put(walk.state)
  first = walk.execute('Execute Script', {'script_name': 'b.py'})
  walk.state = Snapshots(tmp_path / 'kept.sqlite').get(key)
  assert walk.execute('Execute Script', {'script_name': 'b.py'}) == first


# Where an action's part of the log ends is amid a character.
LOGS = """\
import pathlib
text = 'x' * 10 + 'epoch 1: b\u00e9tter\\n' * 30000
pathlib.Path('log.txt').write_text(text, encoding='utf-8')
pathlib.Path('latin.txt').write_bytes(text.encode('latin-1'))
pathlib.Path('none.txt').write_text('')
"""
LOG_SIZE = 10 + 17 * 30_000


@pytest.mark.parametrize('dialect', step_env.DIALECTS)
def test_a_long_text_is_read_like_a_data_file(tmp_path, pool, dialect):  # noqa: F811
  walk = start(
    tmp_path, pool, dialect=dialect, actions=tuple(parser.ACTION_ARGS)
  )
  walk.env.dialect.max_observation_chars = None
  files = {**walk.state.files, 'a.py': LOGS}
  walk.state = types.State('s', 't', files, None, None)
  walk.execute('Execute Script', {'script_name': 'a.py'})
  log = walk.state.files['log.txt']
  assert isinstance(log, types.Blob) and log.size == LOG_SIZE
  (tmp_path / 'data/long.txt').write_bytes(walk.env.store.get_bytes(log))
  for action, more in (
    ('Read File', {}),
    ('Understand File', {'things_to_look_for': 'epoch'}),
    ('Inspect Script Lines', {'start_line_number': 1, 'end_line_number': 3}),
  ):
    name = parser.ACTION_ARGS[action][0]
    told = walk.execute(action, {name: 'log.txt', **more})
    assert (
      walk.results[-1].outcome is Outcome.OK and 'epoch 1: b\u00e9t' in told
    )
    assert told == walk.execute(action, {name: 'data/long.txt', **more})
  told = walk.execute('Read File', {'file_name': 'log.txt'})
  left_out = LOG_SIZE - workspace.MAX_FILE_BYTES
  assert told.endswith(f'\n[... {left_out} bytes left out ...]')
  assert walk.execute('Read File', {'file_name': 'none.txt'}) == ''
  for name in ('latin.txt', 'log.txt'):
    walk.execute('Append File', {'file_name': name, 'content': 'x'})
    assert walk.results[-1].outcome is Outcome.INVALID_ACTION
  walk.execute('Read File', {'file_name': 'latin.txt'})
  assert walk.results[-1].outcome is Outcome.INVALID_ACTION


def test_the_dialect_of_the_original_names_what_is_lost(tmp_path, pool):  # noqa: F811
  walk = start(tmp_path, pool, carry_mb=0.001)
  files = {**walk.state.files, 'a.py': WRITES}
  walk.state = types.State('s', 't', files, None, None)
  lost = '\nNot kept for the next step:\nmodel.bin: 2560 bytes, beyond 0.001 MB'
  told = walk.execute('Execute Script', {'script_name': 'a.py'})
  assert told.endswith(lost) and told.startswith(
    'The script has been executed.'
  )
  told = walk.execute(
    'Python REPL', {'command': "open('b', 'w').write('x' * 2000)"}
  )
  assert told.endswith('\nb: 2000 bytes, beyond 0.001 MB')


def test_an_edit_that_is_run_names_what_is_lost(tmp_path, pool):  # noqa: F811
  walk = start(tmp_path, pool, carry_mb=0.001, after_edit='execute')
  walk.env._asking.editor.edit = lambda script, instruction: WRITES
  told = walk.execute('Edit Script (AI)', {
    'script_name': 'train.py', 'edit_instruction': 'x', 'save_name': 'a.py',
  })  # fmt: skip
  assert told.endswith('\nmodel.bin: 2560 bytes, beyond 0.001 MB')


def execution(**changes) -> types.Execution:
  return types.Execution('j', Outcome.OK, 'T3', **changes)


def test_what_is_not_kept_is_told(tmp_path, walk):
  spec = walk.env.task('t').spec
  files = {'train.py': 'x', 'd/e.txt': 'y'}
  ran = execution(
    changed={
      'data/train.csv': b'stolen',
      'submission.csv': b'0.9',
      '.backup/000001/train.py': b'x',
      'd': b'a file now',
      'new\n.txt': b'x',
      'full.bin': b'\x00' * 999,
      'ok.txt': b'fine',
    },
    removed=('train.py',),
    left_out=('huge.bin: 99 MB, beyond 16 MB',),
  )
  store = Snapshots(':memory:', most_bytes=0)
  kept, lines = carried.carry(files, ran, spec, store, ('data',))
  assert kept == {'d/e.txt': 'y', 'ok.txt': 'fine'}
  told = carried.told(lines)
  for part in (
    'huge.bin', "'d' is a folder", 'no sensible', 'no more room',
    'submission.csv: a submission',
  ):  # fmt: skip
    assert part in told
  assert 'data/' not in told
  many = execution(changed={f'{i}.txt': b'x' for i in range(100)})
  kept, lines = carried.carry({}, many, spec, store)
  assert len(kept) == workspace.MAX_FILES and len(lines) == 36


def test_a_reserved_name_is_one_at_its_own_place_alone():
  spec = fake_runs.task_spec(read_only_files=('images', './fixed.py'))
  ran = execution(
    changed={
      'aug/images/a.npy': b'\x00',
      'images/a.npy': b'\x00',
      'out/data/m.bin': b'\x00',
      'out/__pycache__/m.pyc': b'\x00',
      '.repl/x': b'\x00',
      'fixed.py': b'y = 1',
    },
    collected={'submission.csv': b'id'},
    removed=('fixed.py',),
  )
  kept, lines = carried.carry(
    {'fixed.py': 'x = 1'}, ran, spec, Snapshots(':memory:'), ('data', 'images')
  )
  assert kept.pop('fixed.py') == 'x = 1'
  assert set(kept) == {'aug/images/a.npy', 'out/data/m.bin', 'submission.csv'}
  assert lines == ['fixed.py: read-only']


def test_a_file_that_no_run_would_be_given_is_told(monkeypatch):
  monkeypatch.setattr(carried, 'MAX_FILE_MB', 1)
  ran = execution(changed={'big.bin': bytes(2 << 20), 'small.bin': bytes(9)})
  kept, lines = carried.carry(
    {}, ran, fake_runs.task_spec(), Snapshots(':memory:')
  )
  assert list(kept) == ['small.bin']
  assert lines == ['big.bin: 2097152 bytes, beyond 1 MB a file']


def test_a_text_that_is_replaced_takes_no_room():
  text = 'x' * workspace.MAX_FILE_BYTES
  full = {f'{n}.txt': text for n in range(8)}
  copy = {'.backup/000001/0.txt': 'old'}
  ran = execution(changed={'0.txt': b'y' * len(text)})
  given = (ran, fake_runs.task_spec(), Snapshots(':memory:'))
  kept, lines = carried.carry({**full, **copy}, *given)
  assert lines == [] and kept == {**full, '0.txt': 'y' * len(text)}
  ran = execution(changed={'new.txt': b'y'})
  kept, lines = carried.carry(full, ran, *given[1:])
  assert lines == [f'new.txt: {workspace.TOO_MUCH}'] and kept == full


def test_states_that_are_missing_and_a_file_that_is_none_of_ours(tmp_path):
  store = Snapshots(tmp_path / 'kept.sqlite')
  key = store.put(types.State('s', 't', {'train.py': 'x'}, None, None))
  assert store.missing([key, 'other', 'other']) == {'other'}
  (tmp_path / 'damaged.sqlite').write_bytes(b'no database ' * 99)
  with pytest.raises(ValueError, match='damaged.sqlite is damaged .*put back'):
    Snapshots(tmp_path / 'damaged.sqlite')


def test_ten_thousand_states_are_small_and_quick(tmp_path):
  """Of trajectories as experts make them: scripts that differ in a line.

  Beside the data: a file of theirs is there once, however many states hold it.
  """
  path = tmp_path / 'kept.sqlite'
  store, script = Snapshots(path), '# a line of a script\n' * 150
  keys, data = [], random.Random(0).randbytes(2_000_000)
  shared = store.put_bytes(data)
  for number in range(500):
    past = types.PastStep(
      'Edit Script (AI)', 'ok 0.5', 'r' * 900, f'{number}' * 99
    )
    files = {
      'train.py': f'{script}model = {number}\n',
      'data.py': script,
      'train.npy': shared,
    }
    state = types.State(
      f'{number}', 't', files, 0.5, 0.4, history=(past,) * 3, step=number
    )
    keys.append(store.put(state))
  assert (path.stat().st_size - len(data)) * 20 < 200e6
  begun = time.perf_counter()
  for key in keys[::5]:
    store.get(key)
  assert (time.perf_counter() - begun) / 100 < 0.05
  assert store.get(keys[-1]) == state and store.put(state) == keys[-1]
  with pytest.raises(KeyError, match='nothing is kept'):
    store.get('nowhere')
