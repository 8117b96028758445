"""Trackers get each step once, from a run's files, and stop no run."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys

import pytest

from jaxagent.trackers import __main__ as command
from jaxagent.trackers import adapters, follow, start
from tests.live import written

PYTHON = os.environ.get(start.PYTHON) or sys.executable


class Fake:
  """A tracker that keeps what it gets; `fails` is raised by it."""

  made: list['Fake'] = []
  fails: Exception | None = None

  def __init__(self, folder, name, run_id, config):
    self.run_id, self.config, self.told = run_id, config, []
    self.steps, self.tables, self.files = [], [], []
    self.closed = False
    Fake.made.append(self)

  def log(self, step, time_s, metrics):
    if Fake.fails:
      raise Fake.fails
    self.steps.append((step, metrics))

  def table(self, name, step, columns, rows):
    assert step >= 0, 'W&B leaves out what it gets at another step'
    self.tables.append((name, columns, rows))

  def artifact(self, name, path):
    self.files.append(path.name)

  def close(self):
    self.closed = True


@pytest.fixture(autouse=True)
def own_variables(monkeypatch):
  """An adapter sets what its library reads, for the process that it has alone."""
  for name in ('TRACKIO_DIR', 'WANDB_MODE'):
    monkeypatch.setenv(name, '')  # so that its absence comes back
    monkeypatch.delenv(name)


@pytest.fixture
def work(tmp_path, monkeypatch):
  monkeypatch.setattr(Fake, 'made', [])
  monkeypatch.setattr(Fake, 'fails', None)
  monkeypatch.setitem(follow.TRACKERS, 'wandb', Fake)
  return _run(tmp_path / 'run')


def _run(work: pathlib.Path) -> pathlib.Path:
  """A run of four updates with two evaluated trajectories and a report."""
  written.add(work, written.METRICS, *(written.metrics(i) for i in range(4)))
  (work / 'config.json').write_text('{"seed": 7}')
  (work / 'report.html').write_text('<p>report</p>')
  (work / 'eval').mkdir()
  step = {'outcome': 'ok', 'reward': 0.5, 'response': 'Action: \ud800 look'}
  one = {'task': 'wine', 'index': 0, 'split': 'heldin', 'score': 0.9}
  found = [one | {'steps': [step]}, one | {'score': None, 'steps': []}]
  found += [
    3,
    one | {'index': 'x'},
    one | {'score': '?'},
    one | {'steps': {'a': {}}},
  ]
  (work / 'eval' / 'rl.json').write_text(json.dumps(found))
  return work


def _steps() -> list[int]:
  return [step for fake in Fake.made for step, _ in fake.steps]


def test_metrics_have_their_names_and_values(work):
  assert command.main([str(work), '--to', 'wandb']) == 0
  (fake,) = Fake.made
  assert fake.config == {'seed': 7} and fake.closed
  for step, logged in fake.steps:
    line = written.metrics(step)
    assert logged == {
      k: v for k, v in line.items() if k not in ('step', 'time')
    }


def test_a_value_that_is_no_finite_number_is_left_out(work):
  written.add(
    work, written.METRICS, {'step': 4, 'time': 1.0, 'a/b': None, 'a/c': 'x'}
  )
  command.main([str(work), '--to', 'wandb'])
  assert Fake.made[0].steps[-1] == (4, {})


def test_a_resumed_run_adds_no_step_twice(work):
  command.main([str(work), '--to', 'wandb'])
  # As metrics.truncate_records and the repeated updates leave it.
  file = work / written.METRICS
  file.write_text(file.read_text().split('\n')[0] + '\n')
  written.add(work, written.METRICS, *(written.metrics(i) for i in range(1, 6)))
  command.main([str(work), '--to', 'wandb'])
  assert _steps() == list(range(6))
  assert Fake.made[0].run_id == Fake.made[1].run_id


def test_a_training_begun_anew_is_told_and_adds_no_step_twice(work, capsys):
  command.main([str(work), '--to', 'wandb'])
  (work / written.METRICS).unlink()
  written.add(work, written.METRICS, *(written.metrics(i) for i in range(4)))
  assert capsys.readouterr().err == ''
  command.main([str(work), '--to', 'wandb'])
  assert _steps() == list(range(4))
  said = capsys.readouterr().err
  assert said.count('\n') == 1 and 'updates up to 3 were logged before' in said
  assert f'remove {work / "trackers" / "wandb"} and' in said


def test_steps_are_logged_while_the_run_goes_on(work):
  follower = follow.Follower(work, 'wandb')
  follower.look()
  assert _steps() == [0, 1, 2, 3]
  written.add(work, written.METRICS, b'{"step": 4, "time": 1.0, "a/')
  follower.look()
  assert _steps() == [0, 1, 2, 3]
  written.add(work, written.METRICS, b'b": 1}\n')
  follower.look()
  assert _steps() == [0, 1, 2, 3, 4]


def test_evaluated_trajectories_and_report_are_kept_once(work):
  for _ in range(2):
    command.main([str(work), '--to', 'wandb'])
  first, second = Fake.made
  ((name, columns, rows),) = first.tables
  assert (name, first.files) == ('evaluated', ['report.html'])
  row = dict(zip(columns, rows[0]))
  assert (row['task'], row['score'], row['reward']) == ('wine', 0.9, 0.5)
  assert row['last response'] == 'Action: \\ud800 look'
  assert len(rows) == 2
  assert not second.tables and not second.files


def test_a_run_without_rl_has_its_evaluated_trajectories_at_step_0(work):
  (work / written.METRICS).unlink()
  assert command.main([str(work), '--to', 'wandb']) == 0
  (fake,) = Fake.made
  assert len(fake.tables) == 1 and fake.steps == []


@pytest.mark.parametrize(
  'name, admitted',
  [
    ('val-core/wine/reward/mean@2', 'val-core/wine/reward/mean_2'),
    ('a//b/../c', 'a/b/c'),
    ('/', '_'),
    ('x' * 300, 'x' * 250),
  ],
)
def test_a_name_that_mlflow_refuses_is_another_there_which_is_told_once(
  name, admitted
):
  tracker = object.__new__(adapters.MLflow)
  tracker.told = []
  assert [tracker._name(name) for _ in range(2)] == [admitted] * 2
  assert len(tracker.told) == 1 and admitted in tracker.told[0]


@pytest.mark.parametrize(
  'error', [OSError(28, 'No space left'), RuntimeError('no login\nat all')]
)
def test_a_tracker_that_fails_is_told_in_one_line(work, capsys, error):
  Fake.fails = error
  assert command.main([str(work), '--to', 'wandb']) == 1
  said = capsys.readouterr().err
  assert said.count('\n') == 1 and 'the run goes on without it' in said


def test_two_processes_do_not_log_one_run_at_once(work, capsys, monkeypatch):
  monkeypatch.setattr(follow, 'LOCK_S', 0.3)
  with contextlib.closing(follow.Follower(work, 'wandb')):
    assert command.main([str(work), '--to', 'wandb']) == 1
  assert 'logs this run already' in capsys.readouterr().err


def test_a_missing_library_is_one_line_with_the_command(
  tmp_path, capsys, monkeypatch
):
  monkeypatch.setitem(sys.modules, 'trackio', None)
  work = _run(tmp_path / 'run')
  assert command.main([str(work), '--to', 'trackio']) == 2
  said = capsys.readouterr().err
  assert (
    said
    == "tracker trackio: trackio is missing: pip install 'jaxagent[trackio]'\n"
  )


@pytest.mark.parametrize('name', ['', 'x' * 300])
def test_a_folder_without_a_run_is_refused(tmp_path, capsys, name):
  assert command.main([str(tmp_path / name), '--to', 'wandb']) == 2
  assert 'is no run' in capsys.readouterr().err


@pytest.mark.parametrize('python', ['/no/such/python', '/bin/false'])
def test_a_tracker_that_cannot_start_stops_no_run(
  tmp_path, monkeypatch, python
):
  monkeypatch.setenv(start.PYTHON, python)
  with start.following(_run(tmp_path / 'run'), ('tensorboard', 'wandb')):
    went = True
  assert went


# Real libraries ------------------------------------------------------------------

# Each prints [[step, value of critic/score/mean], ...] by the library's own reader.
_BACK = {
  'trackio': """
import os, sys, json
os.environ['TRACKIO_DIR'] = sys.argv[1] + '/trackers/trackio/store'
from trackio.sqlite_storage import SQLiteStorage
(run,) = SQLiteStorage.get_runs('jaxagent')
logs = SQLiteStorage.get_logs('jaxagent', run)
name = 'critic/score/mean'
print(json.dumps([[l['step'], l[name]] for l in logs if l.get(name) is not None]))
""",
  'mlflow': """
import sys, json, mlflow
client = mlflow.MlflowClient(f'sqlite:///{sys.argv[1]}/trackers/mlflow/mlflow.db')
(run,) = client.search_runs([client.get_experiment_by_name('jaxagent').experiment_id])
found = client.get_metric_history(run.info.run_id, 'critic/score/mean')
names = {one.path for one in client.list_artifacts(run.info.run_id)}
assert {'config.json', 'evaluated.json', 'report.html'} <= names, names
print(json.dumps([[m.step, m.value] for m in found]))
""",
  # Its files are LevelDB's logs of protobuf records.
  'wandb': """
import glob, json, struct, sys
from wandb.proto import wandb_internal_pb2 as pb
found, files = [], glob.glob(sys.argv[1] + '/trackers/wandb/wandb/offline-*/*.wandb')
for path in sorted(files):
  data, at, part = open(path, 'rb').read(), 7, b''
  while at + 7 <= len(data):
    if (left := 32768 - at % 32768) < 7:
      at += left
      continue
    _, size, kind = struct.unpack('<IHB', data[at : at + 7])
    part += data[at + 7 : at + 7 + size]
    at += 7 + size
    if kind in (1, 4):
      record, part = pb.Record.FromString(part), b''
      items = record.history.item
      line = {i.key or '/'.join(i.nested_key): i.value_json for i in items}
      if 'critic/score/mean' in line:
        found.append([int(line['_step']), float(line['critic/score/mean'])])
print(json.dumps(found))
""",
}


@pytest.mark.slow
@pytest.mark.parametrize('name', sorted(_BACK))
def test_a_real_tracker_has_the_values_of_the_file(tmp_path, name):
  """Offline, through its own reader; a resume adds no step twice."""
  there = subprocess.run([PYTHON, '-c', f'import {name}'], capture_output=True)
  if there.returncode:
    pytest.skip(
      f'{name} is in no environment: launch_scripts/trackers_env.sh makes one, '
      f'{start.PYTHON} names it'
    )
  work = _run(tmp_path / 'run')
  odd = written.metrics(4) | {'val-core/wine/reward/mean@2': 0.25}
  _track(work, name)
  written.add(work, written.METRICS, odd)
  _track(work, name)
  env = os.environ | {'TRACKIO_DIR': str(work)}
  done = subprocess.run(
    [PYTHON, '-c', _BACK[name], str(work)],
    capture_output=True, text=True, env=env, timeout=120,
  )  # fmt: skip
  assert done.returncode == 0, done.stderr[-2000:]
  found = json.loads(done.stdout.splitlines()[-1])
  assert [step for step, _ in found] == [0, 1, 2, 3, 4]
  assert [value for _, value in found] == pytest.approx(
    [0.1 * step for step in range(5)]
  )


def _track(work: pathlib.Path, name: str) -> None:
  """Lets a run's tracker follow, as a run starts it."""
  with pytest.MonkeyPatch.context() as patched:
    patched.setenv(start.PYTHON, PYTHON)
    patched.setattr(start, 'WAIT_S', 120.0)
    with start.following(work, (name,)):
      pass
