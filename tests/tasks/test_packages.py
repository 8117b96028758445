"""Stand-ins of files of a package: checked by content, and nothing imported."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
import subprocess
import sys

import pytest

from jaxagent.envs import tasks as lib
from jaxagent.envs.specs import leaderboards
from jaxagent.envs.specs.task_data import DataSource
from jaxagent.files import bundled
from jaxagent.tasks import __main__ as command
from jaxagent.tasks import check, kit
from jaxagent.types import Execution, Outcome
from tests.tasks import published

TEXT = b'0\n1\n0\n1\n1\n0\n1\n0\n'
PACKAGED = kit.Packaged(
  'made-up',
  '1.2',
  {'made_up/data/labels.txt': hashlib.sha256(TEXT).hexdigest()},
)
_PREPARE = """
import pandas as pd
from jaxagent.tasks import kit
from tests.tasks.test_packages import PACKAGED

def standin(files=None):
  text = files['made_up/data/labels.txt'].decode() if files else '0\\n1\\n' * 4
  rows = pd.DataFrame({'request_id': [f't3_{k}' for k in 'abcdefgh'],
                       'requester_received_pizza': text.split()})
  sample = {'requester_received_pizza': 0}
  return kit.labelled(rows, rows, 'request_id', ['requester_received_pizza'], sample)

source = kit.Source('pizza', 'https://example.org', 'none', ('a.csv',))
kit.prepare_from('Pizza.', source, standin, None, None, packaged=PACKAGED)
"""


def _installed(tmp_path, text=TEXT):
  """Writes what `pip install --target` would: importing it ends the process."""
  home = tmp_path / 'target/made_up'
  (home / 'data').mkdir(parents=True)
  (home / '__init__.py').write_text('raise SystemExit("imported")\n')
  (home / 'data/labels.txt').write_bytes(text)
  return tmp_path / 'target'


def _task(tmp_path, packages=('made_up/data',)):
  data = {**published.FOLDER['data'], 'packages': list(packages)}
  root = published.write(tmp_path / 'tasks', data=data)
  (root / 'scripts/prepare.py').write_text(_PREPARE)
  return lib.load_task('pizza', tmp_path / 'tasks')


@pytest.fixture(autouse=True)
def _on_path(monkeypatch):
  monkeypatch.setenv('PYTHONPATH', str(pathlib.Path(__file__).parents[2]))


def test_a_stand_in_of_a_package_has_its_own_data_and_scores(tmp_path):
  spec, target = _task(tmp_path), _installed(tmp_path)
  task = lib.prepare_task(
    spec, tmp_path / 'data', DataSource('packages', target)
  )
  answers = (task.private_dir / 'answers.csv').read_text().splitlines()
  assert [line.split(',')[1] for line in answers[1:]] == list('01011010')
  assert task.spec.variant == 'packages' and task.spec.is_standin
  assert task.spec.m_init is None  # those of the plain stand-in are not its own
  assert task.spec.hides == ('made_up/data',)
  assert 'stand-in' in leaderboards.board_of(task.spec, str(tmp_path)).note
  plain = lib.prepare_task(spec, tmp_path / 'data')
  assert plain.public_dir != task.public_dir and plain.spec.m_init == 0.5


@pytest.mark.parametrize('text', [None, b'0\n'])
def test_a_missing_or_other_file_names_package_version_and_command(
  tmp_path, text
):
  target = tmp_path / 'target'
  if text is None:
    target.mkdir()
  else:
    _installed(tmp_path, text)
  with pytest.raises(ValueError) as error:
    lib.prepare_task(
      _task(tmp_path), tmp_path / 'data', DataSource('packages', target)
    )
  said = str(error.value)
  assert 'made-up 1.2' in said and (text is None or 'SHA-256' in said)
  assert f'pip install --no-deps --target {target} made-up==1.2' in said


def test_a_task_that_takes_no_package_has_its_plain_stand_in(tmp_path):
  spec = _task(tmp_path, ())
  source = DataSource('packages', _installed(tmp_path))
  task = lib.prepare_task(spec, tmp_path / 'data', source)
  assert task.spec.variant == 'standin' and task.spec.m_init == 0.5


def test_the_folder_must_be_there(tmp_path):
  source = DataSource('packages', tmp_path / 'none')
  with pytest.raises(ValueError, match='pip install --no-deps --target DIR'):
    lib.prepare_task(_task(tmp_path), tmp_path / 'data', source)


def test_the_command_line_prepares_it(tmp_path, capsys):
  _task(tmp_path)
  target = _installed(tmp_path)
  code = command.main(
    ['--tasks_dir', str(tmp_path / 'tasks'), '--data_dir', str(tmp_path / 'data'),
     'prepare', 'pizza', '--packages', str(target)]
  )  # fmt: skip
  assert code == 0 and '-packages-' in capsys.readouterr().out


def test_check_searches_what_scripts_see_for_files_of_the_package(tmp_path):
  """A package need not be installed; a file that a script finds is a failure."""
  target = _installed(tmp_path)
  source = DataSource('packages', target)
  spec = lib.prepare_task(_task(tmp_path), tmp_path / 'data', source).spec
  (target / 'made_up/data/empty.txt').touch()
  report, jobs = check.Report(spec.name), []

  def run(found):
    return lambda job: (
      jobs.append(job) or Execution(job.job_id, Outcome.OK, 'T3', output=found)
    )

  check.check_labels(spec, run(''), report)
  check.check_packages(spec, target, run(''), report)
  assert not report.failures and len(jobs) == 1
  wanted = json.loads(jobs[0].files['wanted.json'])
  assert wanted == {str(len(TEXT)): [hashlib.sha256(TEXT).hexdigest()]}
  check.check_packages(spec, target, run('/labels.txt\n'), report)
  assert 'can read the labels' in report.failures[0]
  check.check_packages(spec, tmp_path, run(''), report)
  assert 'has no files in made_up/data' in report.failures[1]
  check.check_packages(
    dataclasses.replace(spec, hides=()), tmp_path, run(''), report
  )
  assert len(report.failures) == 2 and len(jobs) == 2


@pytest.mark.parametrize(
  ('name', 'wanted'),
  [
    ('denoising-dirty-documents', 'scikit-image==0.26.0'),
    ('tweet-sentiment-extraction', 'vaderSentiment==3.3.2'),
    ('leaf-classification', 'aeon==1.6.0'),
    ('imdb', 'vaderSentiment==3.3.2'),
    ('chaii-hindi-and-tamil-question-answering', 'Faker==40.63.0'),
    ('cifar10', 'scikit-image==0.26.0'),
    ('aerial-cactus-identification', 'scikit-image==0.26.0'),
    ('multi-modal-gesture-recognition', 'aeon==1.6.0'),
    ('jigsaw-toxic-comment-classification-challenge', 'vaderSentiment==3.3.2'),
    (
      'jigsaw-unintended-bias-in-toxicity-classification',
      'vaderSentiment==3.3.2',
    ),
  ],
)
def test_each_task_of_the_catalogue_says_which_package_it_wants(
  tmp_path, name, wanted
):
  spec = lib.load_task(name, bundled.folder('tasks'))
  assert spec.details.packages
  done = subprocess.run(
    [sys.executable, str(spec.root / 'scripts/prepare.py'), '--packages', str(tmp_path),
     '--public', str(tmp_path / 'public'), '--private', str(tmp_path / 'private')],
    capture_output=True, text=True, timeout=120,
  )  # fmt: skip
  assert done.returncode == 1 and wanted in done.stderr
  assert not (tmp_path / 'private').exists()
