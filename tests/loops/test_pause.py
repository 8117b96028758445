"""What a person takes out of a stopped trajectory, and puts back."""

import dataclasses
import json

import pytest

from jaxagent import pause, types
from jaxagent.envs import workspace
from jaxagent.envs.snapshots import Snapshots
from jaxagent.loops import walked

PLAN = 'Research Plan and Status: tune it\nAction: List Files'
STATE = types.State(
  's', 'wine', {'train.py': 'x = 1\n', '.backup/000001/train.py': 'x = 0\n'},
  0.5, 0.5, history=(types.PastStep('List Files', 'ok', PLAN, 'train.py'),),
)  # fmt: skip


@pytest.fixture
def work(tmp_path):
  """A work directory whose run was stopped after two steps of one trajectory."""
  home = tmp_path / 'work'
  store = Snapshots(home / 'snapshots.sqlite')
  model = store.put_bytes(b'\x80\x00\xff')
  later = dataclasses.replace(
    STATE, files={**STATE.files, 'out/m.bin': model}, step=2
  )
  log = walked.StepLog(walked.path_of(home, 'agent'))
  for state in (STATE, later):
    key = store.put(state)
    record = {'action': 'List Files', 'outcome': 'ok', 'workspace_id': key}
    line = {'record': record, 'best': [None, 0.5], 'done': False}
    log.append('wine', 3, {**line, 'workspace_id': key})
  log.append('wine', 4, {**line, 'workspace_id': key, 'done': True})
  store.close()
  return home


def _call(work, *args):
  return pause.main([str(work), *map(str, args)])


def _state(work):
  store = Snapshots(work / 'snapshots.sqlite')
  lines = walked.StepLog(walked.path_of(work, 'agent')).read()[('wine', 3)]
  _, after = walked.states(lines, STATE, store)
  store.close()
  return after[-1]


def test_there_and_back(work, tmp_path, capsys):
  assert _call(work, 'list') == 0
  assert 'agent  wine 3  2 steps  List Files: ok' in capsys.readouterr().out
  folder = tmp_path / 'mine'
  assert _call(work, 'out', 'wine', 3, folder) == 0
  inside = {
    str(p.relative_to(folder)) for p in folder.rglob('*') if p.is_file()
  }
  assert inside == {'files/train.py', 'files/out/m.bin', 'response.txt'}
  assert (folder / 'files/out/m.bin').read_bytes() == b'\x80\x00\xff'
  assert (folder / 'response.txt').read_text() == PLAN
  assert _call(work, 'in', 'wine', 3, folder) == 2
  assert 'nothing to take in' in capsys.readouterr().err
  before = _state(work)
  (folder / 'files/train.py').write_text('x = 2\n')
  (folder / 'files/new').mkdir()
  (folder / 'files/new/w.npy').write_bytes(b'\x93NUMPY')
  (folder / 'response.txt').write_text(PLAN.replace('tune', 'rewrite'))
  assert _call(work, 'in', 'wine', 3, folder) == 0
  after = _state(work)
  assert after.files['train.py'] == 'x = 2\n'
  assert after.files['.backup/000001/train.py'] == 'x = 0\n'
  assert isinstance(after.files['new/w.npy'], types.Blob)
  assert 'rewrite' in after.history[-1].response
  assert (after.step, after.score) == (2, 0.5)
  assert after.state_id != before.state_id


def _as_it_was(folder):
  pass


def _without_script(folder):
  (folder / 'files/train.py').unlink()


def _without_files(folder):
  (folder / 'files').rename(folder / 'elsewhere')


def _too_much(folder):
  for number in range(9):
    text = 'x' * workspace.MAX_FILE_BYTES
    (folder / f'files/{number}.txt').write_text(text)


def _reserved_name(folder):
  (folder / 'files/.repl').write_text('x')


def _odd_name(folder):
  (folder / 'files/a\nb').write_text('x')


def _no_text(folder):
  (folder / 'response.txt').write_bytes(b'\xff')


@pytest.mark.parametrize(
  'change, said',
  [
    (_as_it_was, 'nothing to take in'),
    (_without_script, 'lacks train.py'),
    (_without_files, 'is no folder'),
    (_too_much, workspace.TOO_MUCH),
    (_reserved_name, 'no name that a workspace'),
    (_odd_name, 'no name that a workspace'),
    (_no_text, 'not UTF-8'),
  ],
)
def test_what_cannot_be_taken_in_changes_nothing(
  work, tmp_path, capsys, change, said
):
  folder, before = tmp_path / 'mine', _state(work)
  assert _call(work, 'out', 'wine', 3, folder) == 0
  change(folder)
  assert _call(work, 'in', 'wine', 3, folder) == 2
  assert said in capsys.readouterr().err
  assert _state(work) == before


def test_files_that_no_action_could_write_are_taken_back(work, tmp_path):
  """A long table, and more files than a workspace takes on."""
  store = Snapshots(work / 'snapshots.sqlite')
  long = store.put_bytes(b'1,2\n' * 70_000)
  many = {f'lib/{n}.py': 'y = 1\n' for n in range(workspace.MAX_FILES)}
  state = dataclasses.replace(
    _state(work), files={**STATE.files, **many, 'train.csv': long}
  )
  log = walked.StepLog(walked.path_of(work, 'agent'))
  log.append('wine', 3, {walked.EDITED: store.put(state)})
  store.close()
  folder = tmp_path / 'mine'
  assert _call(work, 'out', 'wine', 3, folder) == 0
  (folder / 'files/lib/0.py').write_text('y = 2\n')
  assert _call(work, 'in', 'wine', 3, folder) == 0
  after = _state(work)
  assert after.files == {**state.files, 'lib/0.py': 'y = 2\n'}
  with (folder / 'files/train.csv').open('a') as table:
    table.write('3,4\n')
  assert _call(work, 'in', 'wine', 3, folder) == 0
  assert _state(work).files['train.csv'].size == long.size + 4


def test_what_is_not_under_way_is_named(work, tmp_path, capsys):
  folder = tmp_path / 'mine'
  assert _call(work, 'out', 'wine', 9, folder) == 2
  assert 'those that have: wine 3, wine 4' in capsys.readouterr().err
  assert _call(work, 'out', 'wine', 4, folder) == 2
  assert 'final answer' in capsys.readouterr().err
  folder.mkdir()
  (folder / 'mine.txt').write_text('')
  assert _call(work, 'out', 'wine', 3, folder) == 2
  assert 'is not empty' in capsys.readouterr().err
  assert _call(tmp_path / 'nowhere', 'out', 'wine', 3, tmp_path / 'x') == 2
  assert '0 evaluations are under way' in capsys.readouterr().err


def test_a_response_keeps_its_line_ends(work, tmp_path):
  folder = tmp_path / 'mine'
  assert _call(work, 'out', 'wine', 3, folder) == 0
  (folder / 'response.txt').write_bytes(b'a\rb\r\nc')
  assert _call(work, 'in', 'wine', 3, folder) == 0
  assert _state(work).history[-1].response == 'a\rb\r\nc'


@pytest.mark.parametrize(
  'limits, ended',
  [
    ({'max_steps': 2, 'time_limit_s': 9}, 'its last step'),
    ({'max_steps': 3, 'time_limit_s': 0}, 'its time'),
    ({'max_steps': 3, 'time_limit_s': 9}, ''),
  ],
)
def test_what_its_limits_have_ended_does_not_go_on(
  work, tmp_path, capsys, limits, ended
):
  (work / 'config.json').write_text(json.dumps({'eval': limits}))
  code = _call(work, 'out', 'wine', 3, tmp_path / 'mine')
  assert code == (2 if ended else 0)
  assert ended in capsys.readouterr().err


def test_a_name_that_a_policy_made_up_does_nothing_to_a_terminal(work, capsys):
  log = walked.StepLog(walked.path_of(work, 'agent'))
  record = {'action': '\x1b[2J\nFly', 'outcome': 'invalid_action'}
  log.append('wine', 5, {'record': record, 'done': False})
  assert _call(work, 'list') == 0
  assert '1 steps  ?[2J Fly: invalid_action' in capsys.readouterr().out


def test_steps_of_another_version_are_one_line(work, capsys):
  path = walked.path_of(work, 'agent')
  path.write_text(
    path.read_text().replace('"record": {', '"record": {"format": 2, ')
  )
  assert _call(work, 'list') == 2
  (line,) = capsys.readouterr().err.splitlines()
  assert 'steps.jsonl:1: ' in line and 'format 2, and known is 1' in line


def test_a_damaged_store_is_one_line(work, tmp_path, capsys):
  (work / 'snapshots.sqlite').write_bytes(b'no database ' * 99)
  assert _call(work, 'out', 'wine', 3, tmp_path / 'mine') == 2
  (line,) = capsys.readouterr().err.splitlines()
  assert line.startswith('error: ') and 'is damaged' in line
