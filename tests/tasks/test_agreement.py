"""Whether validation and private scores agree among good programs: measured, kept, said."""

from __future__ import annotations

import shutil
import types

import numpy as np
import pytest

from jaxagent.envs import tasks as lib
from jaxagent.recipes.solutions import recipe
from jaxagent.tasks import agreement, measure
from jaxagent.tasks.__main__ import main
from jaxagent.tasks.measure import Measured
from tests.tasks import published


def _ranks(values) -> np.ndarray:
  """Mean ranks, one by one."""
  values = np.asarray(values)
  return np.array(
    [(values < v).sum() + ((values == v).sum() + 1) / 2 for v in values]
  )


def _made(valid, private) -> list[Measured]:
  return [Measured(str(i), *s, 1.0) for i, s in enumerate(zip(valid, private))]


@pytest.mark.parametrize('higher', [True, False])
def test_it_is_the_rank_correlation_of_the_best_tenth(higher):
  rng = np.random.default_rng(3)
  valid = rng.permutation(250).astype(float)
  private = np.round(rng.normal(size=250), 1)  # ties
  found, top = agreement.of(_made(valid, private), higher)
  best = np.argsort(-valid if higher else valid)[:25]
  want = np.corrcoef(_ranks(valid[best]), _ranks(private[best]))[0, 1]
  assert top == 25 and found == pytest.approx(want)


@pytest.mark.parametrize(
  ('valid', 'private', 'why'),
  [
    (range(99), range(99), '99 programs is 9, fewer than 10'),
    ([1.0] * 100, range(100), '100 programs is 10, with equal scores'),
    (range(100), [1.0] * 100, '100 programs is 10, with equal scores'),
    ([], [], 'of 0 programs is 0'),
  ],
)
def test_it_is_not_known_of_few_programs_or_equal_ones(valid, private, why):
  results = _made(valid, private)
  found, top = agreement.of(results, True)
  assert found is None
  assert why in agreement.said('t', found, top, len(results))


@pytest.fixture
def wine(tasks_dir, tmp_path):
  shutil.copytree(tasks_dir / 'wine', tmp_path / 'tasks' / 'wine')
  return tmp_path


def _call(folder, *argv) -> int:
  return main(
    ['--tasks_dir', str(folder / 'tasks'), '--data_dir', str(folder / 'data')]
    + list(argv)
  )


@pytest.mark.parametrize('dry_run', [False, True])
def test_the_command_runs_every_program_and_keeps_the_number(
  wine, monkeypatch, capsys, dry_run
):
  asked = []

  def run(prepared, grader, scripts, *, workers=2):
    asked.extend(scripts)
    for number, (name, _) in enumerate(scripts):
      if number % 100 == 99:
        yield name, 'it fails'
      else:
        yield name, Measured(name, number, -number, 1.0)

  monkeypatch.setattr(measure, 'measured', run)
  before = (wine / 'tasks/wine/task.yaml').read_text()
  options = ['--dry_run'] if dry_run else []
  assert _call(wine, 'measure', 'wine', '--programs', *options) == 0
  assert len({text for _, text in asked}) == len(asked) > 400
  assert all("'submission.csv'" in text for _, text in asked)
  said = capsys.readouterr().out
  assert 'wine: agreement -1.00, the rank correlation' in said
  spec = lib.load_task('wine', wine / 'tasks')
  after = (wine / 'tasks/wine/task.yaml').read_text()
  assert spec.agreement == (None if dry_run else -1.0)
  assert after == before + ('' if dry_run else 'agreement: -1.0\n')


def test_of_version_2_it_is_kept_with_the_scores_of_its_data(tmp_path):
  published.write(tmp_path / 'tasks')
  task = lib.prepare_task(
    lib.load_task('pizza', tmp_path / 'tasks'), tmp_path / 'data'
  )
  agreement.record(task, -0.26903)
  spec = lib.load_task('pizza', tmp_path / 'tasks')
  assert (spec.agreement, spec.m_init, spec.m_best) == (-0.269, 0.5, 0.9)
  assert spec.m_best_source == 'the reference'
  # It stays where the starter is measured again.
  task = lib.prepare_task(spec, tmp_path / 'data')
  measure.record(task, [Measured('', 0.4, 0.5, 1.0)])
  spec = lib.load_task('pizza', tmp_path / 'tasks')
  assert (spec.agreement, spec.m_init) == (-0.269, 0.4)


def test_of_published_data_it_is_kept_beside_them(tmp_path):
  published.write(tmp_path / 'tasks')
  raw = tmp_path / 'raw/pizza'
  raw.mkdir(parents=True)
  (raw / 'x.csv').write_text('a')
  spec = lib.load_task('pizza', tmp_path / 'tasks')
  source = lib.DataSource('raw', raw.parent)
  agreement.record(lib.prepare_task(spec, tmp_path / 'data', source), 0.5)
  found = lib.prepare_task(spec, tmp_path / 'data', source).spec
  assert found.agreement == 0.5
  assert lib.prepare_task(spec, tmp_path / 'data').spec.agreement is None


@pytest.mark.parametrize('value', ['1.5', '-2', 'text'])
def test_what_is_no_correlation_is_refused(wine, value):
  path = wine / 'tasks/wine/task.yaml'
  path.write_text(path.read_text() + f'agreement: {value}\n')
  with pytest.raises(ValueError, match='agreement'):
    lib.load_task('wine', wine / 'tasks')


def test_a_task_of_other_data_is_refused_by_name(tmp_path, capsys):
  published.write(tmp_path / 'tasks')
  assert _call(tmp_path, 'measure', 'pizza', '--programs') == 2
  said = capsys.readouterr().err
  assert said.startswith('error: task pizza: only programs of three tables')
  with pytest.raises(SystemExit) as ended:
    _call(tmp_path, 'measure', 'pizza', '--programs', '--search')
  assert ended.value.code == 2


def _context(estimator, **agreements):
  rl = types.SimpleNamespace(estimator=estimator)
  return types.SimpleNamespace(
    config=types.SimpleNamespace(rl=rl),
    heldin=tuple(agreements),
    spec=lambda name: types.SimpleNamespace(agreement=agreements[name]),
  )


def test_a_run_for_the_best_names_the_tasks_where_scores_disagree(capsys):
  known = {'a': 0.61, 'b': -0.269, 'c': None, 'd': 0.0}
  recipe._warn_of_luck(_context('best_of', **known))
  lines = capsys.readouterr().out.splitlines()
  assert len(lines) == 2
  assert lines[0].startswith('warning: task b:') and '-0.27' in lines[0]
  assert lines[1].startswith('warning: task d:') and '0.00' in lines[1]
  recipe._warn_of_luck(_context('rloo', **known))
  assert capsys.readouterr().out == ''


def test_the_bundled_tasks_of_the_benchmark_have_theirs(tasks_dir):
  found = {
    n: lib.load_task(n, tasks_dir).agreement for n in ('digits', 'diabetes')
  }
  assert found == {'digits': 0.6143, 'diabetes': -0.269}
