"""Scores of a variant of the data: in the folder, or beside the data."""

from __future__ import annotations

import dataclasses

import pytest
import yaml

from jaxagent.envs import tasks as lib
from jaxagent.envs.grading import GradeResult
from jaxagent.tasks import measure
from jaxagent.tasks.__main__ import main
from jaxagent.types import Outcome, Scale
from tests.tasks import published

_SCRIPT = """
open('submission.csv', 'w').write(
  'request_id,requester_received_pizza\\n' + ''.join(
    f't3_{k},{v}\\n' for k, v in zip('abcd', %r)))
"""


@pytest.fixture
def folder(tmp_path):
  root = published.write(tmp_path / 'tasks', variants=None)
  (root / 'solution').mkdir()
  (root / 'env/train.py').write_text(_SCRIPT % ([1, 1, 1, 1],))
  (root / 'solution/reference.py').write_text(_SCRIPT % ([1, 0, 1, 0],))
  return tmp_path


def _call(folder, *argv):
  return main(
    ['--tasks_dir', str(folder / 'tasks'), '--data_dir', str(folder / 'data')]
    + [str(part) for part in argv]
  )


STARTER = measure.Measured('', 0.5, 0.6, 1.0)
REFERENCE = measure.Measured(measure.REFERENCE, 0.9, 0.8, 1.0)


def test_scores_of_a_stand_in_are_kept_in_the_folder(folder):
  task = lib.prepare_task(
    lib.load_task('pizza', folder / 'tasks'), folder / 'data'
  )
  for results, best in (([STARTER], None), ([STARTER, REFERENCE], 0.9)):
    for _ in range(2):  # the second replaces the first
      measure.record(task, results)
    spec = lib.load_task('pizza', folder / 'tasks')
    assert (spec.m_init, spec.m_best) == (0.5, best)
  assert spec.m_best_private == 0.8
  assert spec.m_best_source == 'solution/reference.py'
  text = (folder / 'tasks/pizza/task.yaml').read_text()
  assert text.count('variants:') == 1
  assert {k: v for k, v in yaml.safe_load(text).items() if k != 'variants'} == {
    k: v for k, v in published.FOLDER.items() if k != 'variants'
  }


def test_a_text_that_is_kept_is_read_as_it_was(folder):
  said = 'the best: of "three", café #1'
  task = lib.prepare_task(
    lib.load_task('pizza', folder / 'tasks'), folder / 'data'
  )
  measure.write_scale(task, Scale(0.5, 0.9, 0.5, 0.9, said))
  spec = lib.load_task('pizza', folder / 'tasks')
  assert (spec.m_best, spec.m_best_source) == (0.9, said)


@pytest.mark.parametrize(
  'score', [1e-05, 4.2e-05, 1e16, 0.0, -3.0, 12345.678901]
)
def test_a_score_that_is_written_is_read_as_the_number_it_is(folder, score):
  root = folder / 'tasks/pizza'
  spec = lib.load_task('pizza', folder / 'tasks')
  task = lib.prepare_task(spec, folder / 'data')
  measure.record(task, [measure.Measured('', score, score, 1.0)])
  spec = lib.load_task('pizza', folder / 'tasks')
  assert (spec.m_init, spec.has_scale) == (
    pytest.approx(score, abs=1e-6),
    False,
  )
  other = root / 'other.yaml'
  other.write_text('m_init: 3\n')
  measure.update_yaml(other, {'m_init': score, 'm_best_source': 'x'})
  found = yaml.safe_load(other.read_text())
  assert found == {
    'm_init': pytest.approx(score, abs=1e-6),
    'm_best_source': 'x',
  }


def test_scores_of_published_data_are_kept_beside_the_data(folder):
  raw = folder / 'raw/pizza'
  raw.mkdir(parents=True)
  (raw / 'x.csv').write_text('a')
  before = (folder / 'tasks/pizza/task.yaml').read_text()
  spec = lib.load_task('pizza', folder / 'tasks')
  source = lib.DataSource('raw', raw.parent)
  task = lib.prepare_task(spec, folder / 'data', source)
  measure.record(task, [STARTER, REFERENCE])
  assert (folder / 'tasks/pizza/task.yaml').read_text() == before
  full = lib.prepare_task(spec, folder / 'data', source)
  assert (full.spec.m_init, full.spec.m_best_private) == (0.5, 0.8)
  assert not lib.prepare_task(spec, folder / 'data').spec.has_scale


@pytest.mark.slow
@pytest.mark.parametrize('asked, seen', [(0, ''), (1, '3')])
def test_a_script_is_measured_on_as_many_gpus_as_its_task_asks_for(
  folder, asked, seen
):
  task = lib.prepare_task(
    lib.load_task('pizza', folder / 'tasks'), folder / 'data'
  )
  details = dataclasses.replace(task.spec.details, gpus=asked)
  task = dataclasses.replace(
    task, spec=dataclasses.replace(task.spec, details=details)
  )
  script = 'import os\nprint(end=os.environ["CUDA_VISIBLE_DEVICES"],'
  script += ' file=open("submission.csv", "w"))\n'

  class Grader:
    """Gives back what is handed over, as a reason."""

    def grade(self, name, data, split):
      return GradeResult(None, Outcome.INVALID_SUBMISSION, data.decode())

  (found,) = measure.measured(task, Grader(), [('', script)], gpus=['3', '4'])
  assert found == ('', seen)


@pytest.mark.slow
def test_starter_and_reference_are_run_and_graded(folder, capsys):
  assert _call(folder, 'measure', 'pizza') == 0, capsys.readouterr()
  spec = lib.load_task('pizza', folder / 'tasks')
  assert (spec.m_init, spec.m_best, spec.m_best_private) == (0.5, 1.0, 1.0)


def test_a_search_over_pipelines_is_for_version_1(folder, capsys):
  assert _call(folder, 'measure', 'pizza', '--search') == 2
  assert 'is solution/reference.py' in capsys.readouterr().err


def test_a_note_on_the_data_is_printed_and_the_task_prepared(folder, capsys):
  raw = folder / 'raw'
  raw.mkdir()
  (raw / 'x.csv').write_text('a')
  (raw / 'MD5SUMS').write_text('00  x.csv\n')
  assert _call(folder, 'prepare', 'pizza', '--raw', raw) == 0
  said = capsys.readouterr()
  assert 'note: pizza: ' in said.err and 'pizza: ' in said.out
  assert _call(folder, 'prepare', 'pizza', '--mlebench', raw) == 2
  assert 'run `mlebench prepare -c' in capsys.readouterr().err
