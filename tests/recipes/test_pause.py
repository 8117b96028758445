"""What a person takes out of a stopped trajectory, and puts back."""

import dataclasses
import json

import pytest

from jaxagent import pause, types
from jaxagent.envs import workspace
from jaxagent.envs.snapshots import Snapshots
from jaxagent.records import SolutionRecord, StepRecord
from jaxagent.rollout import events, under_way
from jaxagent.rollout.journal import Journal
from jaxagent.rollout.requests import ExecutionResult, Key
from jaxagent.training import rollouts

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
  for number, state in enumerate((STATE, later)):
    _add(home, 'wine-3', number, state)
  _add(home, 'wine-4', 0, None)  # Final Answer
  store.close()
  return home


def _journal(work):
  return Journal(rollouts.journal_of(work, 'agent'))


def _add(work, prompt_id, number, state, kind='executed', action='List Files'):
  """Adds a step that leads to `state` to what is under way."""
  record = StepRecord(outcome=types.Outcome.OK, action=action)
  executed = types.Executed(types.Outcome.OK, 1.0, state, record=record)
  result = ExecutionResult(Key(prompt_id, 1, 2 * number + 1), 1, executed)
  journal = _journal(work)
  journal.begin()
  if not number:
    journal.append(events.begun(prompt_id, 1))
  journal.append(events.of_result(result) | {'e': kind})
  journal.close()


def _call(work, *args):
  return pause.main([str(work), *map(str, args)])


def _state(work):
  return under_way.executions(_journal(work))['wine-3'][-1].executed.state


def test_an_edited_trajectory_is_written_out_and_taken_back(
  work, tmp_path, capsys
):
  assert _call(work, 'list') == 0
  assert 'agent  wine 3  2 steps  List Files: ok' in capsys.readouterr().out
  folder = tmp_path / 'mine'
  assert _call(work, 'out', 'wine', 3, folder) == 0
  inside = {
    str(p.relative_to(folder)) for p in folder.rglob('*') if p.is_file()
  }
  assert inside == {
    'files/train.py',
    'files/out/m.bin',
    'response.txt',
    'state_id.txt',
  }
  assert (folder / 'files/out/m.bin').read_bytes() == b'\x80\x00\xff'
  assert (folder / 'response.txt').read_text() == PLAN
  assert _call(work, 'in', 'wine', 3, folder) == 2
  assert 'is unchanged; edit files/' in capsys.readouterr().err
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
    (_as_it_was, 'is unchanged; edit files/ or response.txt'),
    (_without_script, 'lacks train.py'),
    (_without_files, 'is not a folder'),
    (_too_much, workspace.TOO_MUCH),
    (_reserved_name, 'is not a valid file name'),
    (_odd_name, 'is not a valid file name'),
    (_no_text, 'not UTF-8'),
  ],
)
def test_a_folder_that_is_refused_changes_nothing(
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
  store.close()
  _add(work, 'wine-3', 1, state, 'replaced')
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


def test_only_a_trajectory_under_way_can_be_edited(work, tmp_path, capsys):
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


def test_a_trajectory_before_its_first_step_is_listed_as_that(work, capsys):
  journal = _journal(work)
  journal.begin()
  journal.append(events.begun('wine-10', 1))
  journal.close()
  assert _call(work, 'list') == 0
  assert 'agent  wine 10  0 steps\n' in capsys.readouterr().out


def test_a_run_that_goes_on_is_left_alone(work, tmp_path, capsys):
  folder = tmp_path / 'mine'
  assert _call(work, 'out', 'wine', 3, folder) == 0
  (folder / 'files/train.py').write_text('x = 2\n')
  running = _journal(work)
  running.begin()
  for command, place in (('in', folder), ('out', tmp_path / 'other')):
    assert _call(work, command, 'wine', 3, place) == 2
    assert 'its run goes on; stop it first' in capsys.readouterr().err
  running.close()
  assert _call(work, 'in', 'wine', 3, folder) == 0


def test_a_folder_is_taken_back_into_the_state_that_it_is_of(
  work, tmp_path, capsys
):
  folder = tmp_path / 'mine'
  assert _call(work, 'out', 'wine', 3, folder) == 0
  for number in (2, 3):  # edited twice
    (folder / 'files/train.py').write_text(f'x = {number}\n')
    assert _call(work, 'in', 'wine', 3, folder) == 0
  later = dataclasses.replace(_state(work), step=3, state_id='later')
  _add(work, 'wine-3', 2, later)
  (folder / 'files/train.py').write_text('x = 4\n')
  assert _call(work, 'in', 'wine', 3, folder) == 2
  assert 'has gone on since' in capsys.readouterr().err


def test_half_a_character_in_a_response_is_taken_out_and_back(work, tmp_path):
  odd = dataclasses.replace(STATE.history[0], response='Plan \udcff')
  state = dataclasses.replace(STATE, history=(odd,), step=3, state_id='odd')
  _add(work, 'wine-3', 2, state)
  folder = tmp_path / 'mine'
  assert _call(work, 'out', 'wine', 3, folder) == 0
  (folder / 'files/train.py').write_text('x = 2\n')
  assert _call(work, 'in', 'wine', 3, folder) == 0
  assert _state(work).history == (odd,)


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
def test_a_trajectory_ended_by_its_limits_cannot_be_edited(
  work, tmp_path, capsys, limits, ended
):
  (work / 'config.json').write_text(json.dumps({'eval': limits}))
  code = _call(work, 'out', 'wine', 3, tmp_path / 'mine')
  assert code == (2 if ended else 0)
  assert ended in capsys.readouterr().err


def test_a_name_that_a_policy_made_up_does_nothing_to_a_terminal(work, capsys):
  _add(work, 'wine-5', 0, STATE, action='\x1b[2J\nFly')
  assert _call(work, 'list') == 0
  assert '1 steps  ?[2J Fly: ok' in capsys.readouterr().out


def test_steps_of_another_version_are_refused_in_one_line(work, capsys):
  segment = min(rollouts.journal_of(work, 'agent').iterdir())
  segment.write_text(
    segment.read_text().replace(
      '"kind":"step","format":1', '"kind":"step","format":2'
    )
  )
  assert _call(work, 'list') == 2
  (line,) = capsys.readouterr().err.splitlines()
  assert 'format 2, and known is 1' in line


def test_a_damaged_store_or_journal_is_refused_in_one_line(
  work, tmp_path, capsys
):
  good = work / 'snapshots.sqlite'
  data = good.read_bytes()
  good.write_bytes(b'no database ' * 99)
  assert _call(work, 'out', 'wine', 3, tmp_path / 'mine') == 2
  (line,) = capsys.readouterr().err.splitlines()
  assert line.startswith('error: ') and 'is damaged' in line
  good.write_bytes(data)
  segment = min(rollouts.journal_of(work, 'agent').iterdir())
  segment.write_bytes(b'{"e":\n' + segment.read_bytes())
  assert _call(work, 'out', 'wine', 3, tmp_path / 'mine') == 2
  (line,) = capsys.readouterr().err.splitlines()
  assert f'{segment}, line 1: damaged' in line


def test_solutions_have_no_trajectory_to_pause(work, capsys):
  record = SolutionRecord(outcome=types.Outcome.OK)
  executed = types.Executed(types.Outcome.OK, 1.0, record=record)
  journal = _journal(work)
  journal.begin()
  journal.append(events.begun('scratch-wine-0', 1))
  result = ExecutionResult(Key('scratch-wine-0', 1, 2), 1, executed)
  journal.append(events.of_result(result))
  journal.close()
  assert _call(work, 'list') == 0
  assert 'scratch' not in capsys.readouterr().out


@pytest.mark.parametrize('name', ['wine/0', 'wine', 'a-b', '-²', ''])
def test_rollouts_of_a_recipe_of_ones_own_do_not_end_the_list(
  work, capsys, name
):
  journal = _journal(work)
  journal.begin()
  journal.append(events.begun(name, 1))
  journal.close()
  assert _call(work, 'list') == 0
  out, error = capsys.readouterr()
  assert 'wine 3' in out and not error
