"""A folder laid out as in MLAgentBench's repository, used unchanged."""

import dataclasses
import hashlib
import pathlib
import subprocess
import sys

import pytest

from jaxagent import types
from jaxagent.envs import parser, workspace
from jaxagent.envs import tasks as lib
from jaxagent.envs.execution import ExecutionOptions
from jaxagent.envs.grading import Grader
from jaxagent.envs.specs import mlagentbench_tasks
from jaxagent.envs.step_env import StepEnvironment, StepRules, TextModels
from jaxagent.sandbox import SandboxPool
from jaxagent.stand_ins.editor import ScriptedEditor
from jaxagent.stand_ins.reader import NoHelper, ScriptedReader

NAME = 'house-price'
MODELS = TextModels(ScriptedEditor(), ScriptedReader(), NoHelper())
STARTER = """
import json
import pandas as pd
import features

train = pd.read_csv('train.csv')
rate = json.load(open('rates/rate.json'))['rate']
test = pd.read_csv('test.csv')
test['SalePrice'] = features.guess(train, test) * rate
test[['Id', 'SalePrice']].to_csv('submission.csv', index=False)
open('seen.bin', 'wb').write(open('photo.bin', 'rb').read()[:4])
"""
PREPARE = """
import os
import pandas as pd

rows = pd.DataFrame({'Id': range(40), 'Area': range(40)})
rows['SalePrice'] = rows.Area * 2.0
rows[:30].to_csv('../env/train.csv', index=False)
rows[30:][['Id', 'Area']].to_csv('../env/test.csv', index=False)
rows[30:][['Id', 'SalePrice']].to_csv('answer.csv', index=False)
"""
EVAL = """
import os
import sys
sys.path.append('../env')
import pandas as pd
from features import SCALE

def get_score(submission_folder='../env'):
  answers = pd.read_csv(os.path.join(os.path.dirname(__file__), 'answer.csv'))
  given = pd.read_csv(os.path.join(submission_folder, 'submission.csv'))
  return float(abs(given['SalePrice'] - answers['SalePrice']).mean()) * SCALE
"""
FILES = {
  'env/train.py': STARTER,
  'env/features.py': 'SCALE = 1\ndef guess(train, test):\n  return test.Area\n',
  'env/notes/data_description.txt': 'Area: square feet\n',
  'env/rates/rate.json': '{"rate": 1.5}',
  'scripts/research_problem.txt': 'Lower the mean absolute error.\n',
  'scripts/prepare.py': PREPARE,
  'scripts/eval.py': EVAL,
  'scripts/read_only_files.txt': './train.csv\n./test.csv\n',
}


def _lay_out(folder: pathlib.Path, name: str = NAME, **changes) -> pathlib.Path:
  root = folder / name
  for relative, text in {**FILES, **changes}.items():
    path = root / relative
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
  (root / 'env/photo.bin').write_bytes(bytes(range(200, 256)))
  (root / 'env/rates/table.npy').write_bytes(b'\x93NUMPY')
  return root


def _content(root: pathlib.Path) -> dict[str, str]:
  return {
    str(p.relative_to(root)): hashlib.sha256(p.read_bytes()).hexdigest()
    for p in root.rglob('*')
    if p.is_file()
  }


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  home = tmp_path_factory.mktemp('benchmarks')
  _lay_out(home)
  return home


@pytest.fixture(scope='module')
def prepared(folder, tmp_path_factory):
  before = _content(folder / NAME)
  task = lib.prepare_task(
    lib.load_task(NAME, folder), tmp_path_factory.mktemp('prepared')
  )
  assert _content(folder / NAME) == before
  return task


@pytest.fixture(scope='module')
def grader(prepared):
  with Grader({NAME: prepared}) as worker:
    yield worker


def test_the_published_direction_is_known(folder):
  spec = lib.load_task(NAME, folder)
  assert (spec.metric, spec.higher_is_better) == ('mae', False)
  assert spec.research_problem == 'Lower the mean absolute error.'
  assert spec.layout == 'mlagentbench'
  assert not spec.has_scale
  assert [s.name for s in lib.list_tasks(folder)] == [NAME]


def test_code_is_text_and_data_is_shown(prepared):
  assert set(prepared.mounts) == {'rates'}
  texts = {k for k, v in prepared.starter_files.items() if isinstance(v, str)}
  assert texts == {
    'train.py', 'features.py', 'train.csv', 'test.csv',
    'notes/data_description.txt',
  }  # fmt: skip
  assert set(prepared.starter_files) - texts == {'photo.bin'}
  assert 'rates' in prepared.spec.read_only_files
  listed = workspace.listing(prepared.starter_files, prepared.mounts, 'rates')
  assert listed == ['rate.json', 'table.npy']
  read = workspace.read(
    prepared.starter_files, prepared.mounts, 'rates/rate.json'
  )
  assert read == '{"rate": 1.5}'
  with pytest.raises(workspace.ActionFailed):
    workspace.read(
      prepared.starter_files, prepared.mounts, 'rates/../../scripts'
    )


def test_a_folder_of_data_is_data_however_small(tmp_path):
  root = _lay_out(tmp_path, **{'env/data/train.csv': 'Id\n1\n'})
  shown = mlagentbench_tasks.workspace_of(root / 'env')
  assert set(shown.folders) == {'data', 'rates'}
  assert not any(name.startswith('data') for name in shown.texts)


def test_a_file_that_no_run_would_be_given_is_refused(tmp_path, monkeypatch):
  root = _lay_out(tmp_path)
  (root / 'scripts/prepared').write_text('success')
  monkeypatch.setattr(mlagentbench_tasks, 'MAX_FILE_MB', 0)
  with pytest.raises(
    ValueError, match='photo.bin has 56 bytes.*a folder of env/'
  ):
    lib.prepare_task(lib.load_task(NAME, tmp_path), tmp_path / 'made')


def test_an_empty_folder_in_a_task_is_refused_by_name(tmp_path):
  root = _lay_out(tmp_path)
  for name in ('rates/empty', 'notes/__pycache__', '.git'):
    (root / 'env' / name).mkdir()  # shown where it is, or nobody's
  mlagentbench_tasks.workspace_of(root / 'env')
  (root / 'env/notes/out').mkdir()
  with pytest.raises(ValueError, match='notes/out is an empty folder'):
    mlagentbench_tasks.workspace_of(root / 'env')
  (root / 'env/notes/out/.gitkeep').touch()
  shown = mlagentbench_tasks.workspace_of(root / 'env')
  assert shown.texts['notes/out/.gitkeep'] == ''


def _submission(rows) -> bytes:
  return ('Id,SalePrice\n' + ''.join(f'{i},{v}\n' for i, v in rows)).encode()


def test_its_own_score_is_the_score(grader):
  whole = _submission((i, 2.0 * i + 3.0) for i in range(30, 40))
  for split in ('valid', 'private'):
    found = grader.grade(NAME, whole, split)
    assert (found.outcome, found.score) == (types.Outcome.OK, 3.0)


def test_a_submission_in_a_folder_is_where_its_own_score_looks_for_it(tmp_path):
  eval_py = EVAL.replace("'submission.csv'", "'out/s.csv'")
  root = _lay_out(tmp_path, **{'scripts/eval.py': eval_py})
  root.with_name(f'{NAME}.yaml').write_text('submission: out/s.csv\n')
  task = lib.prepare_task(lib.load_task(NAME, tmp_path), tmp_path / 'made')
  with Grader({NAME: task}) as grader:
    data = _submission((i, 2.0 * i + 3.0) for i in range(30, 40))
    found = grader.grade(NAME, data)
  assert (found.outcome, found.score) == (types.Outcome.OK, 3.0)


@pytest.mark.parametrize(
  'data, why',
  [
    (b'', 'EmptyDataError'),
    (b'Id,Price\n1,2\n', 'KeyError'),
    (b'\xff\xfe\x00', 'Error'),
    (_submission([(30, 'x')]), 'Error'),
    (_submission([(30, 'nan')]), 'not a finite number'),
  ],
)
def test_a_submission_that_cannot_be_scored_is_invalid(grader, data, why):
  found = grader.grade(NAME, data)
  assert found.outcome is types.Outcome.INVALID_SUBMISSION
  assert found.score is None
  assert why in found.reason


def test_no_grade_leaves_anything(grader, tmp_path, monkeypatch):
  import tempfile

  before = set(pathlib.Path(tempfile.gettempdir()).iterdir())
  grader.grade(NAME, _submission((i, 1) for i in range(30, 40)))
  left = set(pathlib.Path(tempfile.gettempdir()).iterdir()) - before
  assert not [p for p in left if list(p.glob('submission.csv'))]


@pytest.fixture(scope='module')
def env(prepared, grader):
  with SandboxPool(1, min_tier='T0') as pool:
    yield StepEnvironment(
      {NAME: prepared},
      pool,
      grader,
      MODELS,
      options=ExecutionOptions(zygote=False),
    )


def test_the_starter_runs_on_its_data(env):
  state = env.initial_state(NAME)
  # 1.5 instead of 2 times an area of 34.5 on average.
  assert state.score == pytest.approx(17.25)
  result = _act(env, state, 'Execute Script', script_name='train.py')
  assert result.score == pytest.approx(17.25)
  assert isinstance(result.state.files['seen.bin'], types.Blob)
  for name in ('train.csv', 'rates/rate.json'):
    result = _act(env, state, 'Write File', file_name=name, content='x')
    assert result.outcome is types.Outcome.INVALID_ACTION


@pytest.mark.parametrize('dialect', ['jaxagent', 'mlagentbench'])
def test_a_long_table_is_read_where_it_lies(tmp_path, grader, dialect):
  """Beside the scripts: it is in no folder that could be shown."""
  rows = 'Id,Area\n' + '1,22\n' * 160_000
  root = _lay_out(tmp_path, **{'env/test.csv': rows})
  (root / 'scripts/prepared').write_text('success')
  task = lib.prepare_task(lib.load_task(NAME, tmp_path), tmp_path / 'made')
  env = StepEnvironment(
    {NAME: task}, None, grader, MODELS, StepRules(dialect=dialect)
  )
  env.dialect.max_observation_chars = None
  files = env.starter(NAME)
  assert isinstance(files['test.csv'], types.Blob)
  state = types.State('s', NAME, files, None, None)
  told = _act(env, state, 'Read File', file_name='test.csv').observation
  assert told.startswith(rows[:1000])
  left_out = len(rows) - workspace.MAX_FILE_BYTES
  assert told.endswith(f'\n[... {left_out} bytes left out ...]')
  lines = {'start_line_number': '2', 'end_line_number': '2'}
  read = _act(
    env, state, 'Inspect Script Lines', script_name='test.csv', **lines
  )
  assert read.observation.endswith('\n1,22')


def _act(env, state, action, **args):
  return env.act(state, parser.Response({}, action, args))


def test_what_the_folder_does_not_tell_stands_beside_it(tmp_path):
  _lay_out(tmp_path, 'own')
  with pytest.raises(ValueError, match='higher_is_better: true or false into'):
    lib.load_task('own', tmp_path)
  beside = tmp_path / 'own.yaml'
  beside.write_text(
    'higher_is_better: true\nm_init: 0.1\nlimits: {timeout_s: 9}\n'
  )
  spec = lib.load_task('own', tmp_path)
  assert (spec.higher_is_better, spec.m_init) == (True, 0.1)
  assert spec.limits.timeout_s == 9
  for line, why in (
    ('metric: mae\nhigher_is_better: true', 'better when lower'),
    ('higher_is_better: true\nm_init: 2\nm_best: 1', 'worse than m_init'),
    ('higher_is_better: maybe', 'higher_is_better'),
    ('higher: true', "key='higher'"),
    ('higher_is_better: true\nsplit: both', "split='both'"),
    ('higher_is_better: true\nmetric: 3', 'must be a name'),
  ):
    beside.write_text(line + '\n')
    with pytest.raises(ValueError, match=why):
      lib.load_task('own', tmp_path)


def test_limits_that_the_file_beside_does_not_name_keep_their_defaults(
  tmp_path,
):
  _lay_out(tmp_path)
  usual = lib.load_task(NAME, tmp_path)
  assert usual.limits.timeout_s == 5 * 3600
  assert usual.limits.output_kb >= 1 << 20  # progress bars
  beside = tmp_path / f'{NAME}.yaml'
  beside.write_text(
    'limits: {memory_mb: 99}\nexposed:\nsubmission:\nm_best_source:\n'
  )
  spec = lib.load_task(NAME, tmp_path)
  changed = dataclasses.replace(usual.limits, memory_mb=99)
  assert spec == dataclasses.replace(usual, limits=changed)
  assert (spec.exposed, spec.submission) == ('', 'submission.csv')
  beside.write_text('limits: {memory_mb: 0}\n')
  with pytest.raises(ValueError, match=f'{NAME}.yaml: limits.memory_mb=0'):
    lib.load_task(NAME, tmp_path)


@pytest.mark.parametrize('relative', mlagentbench_tasks.REQUIRED_FILES)
def test_a_missing_file_of_a_task_is_named(tmp_path, relative):
  root = _lay_out(tmp_path)
  (root / relative).unlink()
  with pytest.raises(ValueError, match=relative):
    lib.load_task(NAME, tmp_path)


def test_an_eval_script_without_get_score_is_refused(tmp_path):
  _lay_out(tmp_path, **{'scripts/eval.py': 'def score(a, b): return 0.0\n'})
  with pytest.raises(ValueError, match='no get_score'):
    lib.load_task(NAME, tmp_path)


def test_a_preparation_that_asks_for_input_is_refused(tmp_path):
  _lay_out(tmp_path, **{'scripts/prepare.py': 'input("Consent?")\n'})
  spec = lib.load_task(NAME, tmp_path)
  with pytest.raises(ValueError, match='prepare_task house-price'):
    lib.prepare_task(spec, tmp_path / 'made')
  assert not list((tmp_path / 'made').glob('*/*/done'))


def test_prepared_folders_are_used_where_they_are(tmp_path):
  root = _lay_out(tmp_path)
  (root / 'scripts/prepared').write_text('success')
  task = lib.prepare_task(lib.load_task(NAME, tmp_path), tmp_path / 'made')
  assert task.public_dir == root / 'env'
  assert not (tmp_path / 'made').exists()


def test_a_starter_that_does_not_run_needs_a_given_m_init(tmp_path, grader):
  from jaxagent.envs.execution import StartError

  _lay_out(tmp_path, **{'env/train.py': 'print(model)\n'})
  (tmp_path / f'{NAME}.yaml').write_text('m_init: 60\n')
  given = {}
  for name in ('with', 'without'):
    if name == 'without':
      (tmp_path / f'{NAME}.yaml').unlink()
    spec = lib.load_task(NAME, tmp_path)
    given[name] = lib.prepare_task(spec, tmp_path / 'made')
  with SandboxPool(1, min_tier='T0') as pool:

    def start(task):
      runner = StepEnvironment(
        {NAME: task}, pool, grader, MODELS,
        options=ExecutionOptions(zygote=False),
      )  # fmt: skip
      return runner.initial_state(NAME)

    state = start(given['with'])
    assert (state.score, state.last_outcome) == (60.0, 'script_error')
    with pytest.raises(StartError, match='m_init: NUMBER into'):
      start(given['without'])


def _call(*args):
  return subprocess.run(
    [sys.executable, '-m', *args], capture_output=True, text=True, timeout=300
  )


@pytest.mark.slow
def test_an_agent_is_measured_on_it_and_nothing_trained(folder, tmp_path):
  common = (
    'jaxagent.main',
    '--config=configs/ml_agent.py:evaluate',
    f'--config.tasks_dir={folder}',
    f"--config.tasks.heldout=('{NAME}',)",
    f'--config.work_dir={tmp_path / "work"}',
  )
  done = _call(
    *common, '--config.agent=random', '--config.eval.trajectories_per_task=2',
    '--config.eval.k=2', '--config.eval.max_steps=3',
  )  # fmt: skip
  assert done.returncode == 0, done.stderr[-2000:]
  assert (
    tmp_path / 'work/mlagentbench' / NAME / '0/env_log/trace.json'
  ).is_file()
  done = _call(
    'jaxagent.main',
    '--config=configs/stepwise_ppo.py',
    f'--config.tasks_dir={folder}',
    f"--config.tasks.heldin=('{NAME}',)",
    f'--config.work_dir={tmp_path / "other"}',
  )
  assert done.returncode != 0
  assert 'without task.yaml' in done.stderr
  done = _call('jaxagent.tasks', '--tasks_dir', str(folder), 'check', NAME)
  assert done.returncode == 2
  assert 'no task.yaml' in done.stderr
