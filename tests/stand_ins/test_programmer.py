"""Programs by script: whole solutions of the bundled tasks."""

from __future__ import annotations

import ast
import pathlib
import random
import subprocess
import sys

import pytest

from jaxagent.envs.solution import parse
from jaxagent.envs.tasks import list_tasks
from jaxagent.stand_ins import programmer
from jaxagent.stand_ins.programmer import (
  Columns,
  ScriptedProgrammer,
  columns_of,
)

TASKS = pathlib.Path(__file__).parents[2] / 'tasks'
SPECS = {spec.name: spec for spec in list_tasks(TASKS, version=1)}
DIGITS = Columns(('p0', 'p1'), 'label', ('label',))


def _write(author, spec, rng) -> str:
  return author.write(spec, author.design(spec, rng), rng)


def _columns(spec) -> Columns:
  features = ('text',) if spec.modality == 'text' else ('a', 'b')
  targets = ('p_0', 'p_1') if spec.metric == 'log_loss' else ('y',)
  return Columns(features, 'y', targets)


@pytest.mark.parametrize('name', SPECS)
def test_many_different_programs_of_every_bundled_task(name):
  spec, rng = SPECS[name], random.Random(0)
  author = ScriptedProgrammer(_columns(spec), 0.0)
  texts = [_write(author, spec, rng) for _ in range(200)]
  assert len(set(texts)) > 120
  for text in texts:
    code = parse(text).code
    ast.parse(code)
    assert "'submission.csv'" in code and 'make_pipeline(' in code


def test_they_depend_on_the_seed_alone():
  one, two = (
    _write(ScriptedProgrammer(DIGITS), SPECS['digits'], random.Random(5))
    for _ in range(2)
  )
  assert one == two


@pytest.mark.parametrize('name', SPECS)
def test_one_part_of_a_revised_one_differs(name):
  spec, author, rng = (
    SPECS[name],
    ScriptedProgrammer(DIGITS, 0.0),
    random.Random(1),
  )
  settings = estimators = before = 0
  for _ in range(200):
    old = author.design(spec, rng)
    new = author.design(spec, rng, old)
    assert new != old
    if new.rows[:-1] != old.rows[:-1] or new.calls[:-1] != old.calls[:-1]:
      before += 1
      assert new.calls[-1] == old.calls[-1]
    elif new.rows[-1] == old.rows[-1]:
      settings += 1
      assert new.names == old.names
    else:
      estimators += 1
  assert min(settings, estimators, before) > 30


def test_what_it_may_have_printed_is_of_its_estimator():
  spec, author, rng = (
    SPECS['digits'],
    ScriptedProgrammer(DIGITS, 0.0),
    random.Random(2),
  )
  said: dict[str, set[str]] = {}
  for _ in range(400):
    design = author.design(spec, rng)
    said.setdefault(design.names[-1], set()).add(author.output(design, rng))
  assert any('(100)' in text for text in said['MLPClassifier'])
  assert any('lbfgs' in text for text in said['LogisticRegression'])
  assert '' in said['MLPClassifier'] and said['GaussianNB'] == {''}


def test_slips_are_as_many_as_asked():
  rng = random.Random(0)
  texts = [
    _write(ScriptedProgrammer(DIGITS, 1.0), SPECS['digits'], rng)
    for _ in range(50)
  ]
  whole = ("'data/train.csv'", 'make_pipeline(', 'model.fit(x, y)', "{'id':",
           'import pandas', "predict(test.drop(columns=['id']))")  # fmt: skip
  assert all(any(part not in text for part in whole) for text in texts)
  with pytest.raises(ValueError, match='p_slip=2'):
    ScriptedProgrammer(DIGITS, 2)


def test_columns_of_the_heads():
  assert columns_of(['id', 'a', 'y'], ['id', 'a'], ['id', 'p_0', 'p_1']) == (
    Columns(('a',), 'y', ('p_0', 'p_1'))
  )


@pytest.mark.slow
def test_they_run(tmp_path):
  (tmp_path / 'data').mkdir()
  rows = [f'{i},{i % 7},{i % 3},{i % 2}' for i in range(60)]
  (tmp_path / 'data' / 'train.csv').write_text(
    'id,a,b,label\n' + '\n'.join(rows) + '\n'
  )
  (tmp_path / 'data' / 'test.csv').write_text(
    'id,a,b\n' + '\n'.join(r.rpartition(',')[0] for r in rows) + '\n'
  )
  columns = Columns(('a', 'b'), 'label', ('label',))
  rng = random.Random(1)
  for _ in range(3):
    text = _write(ScriptedProgrammer(columns, 0.0), SPECS['digits'], rng)
    (tmp_path / 'solution.py').write_text(parse(text).code)
    subprocess.run([sys.executable, 'solution.py'], cwd=tmp_path, check=True)
    head = (tmp_path / 'submission.csv').read_text().splitlines()
    assert head[0] == 'id,label' and len(head) == 61
    (tmp_path / 'submission.csv').unlink()


@pytest.mark.parametrize('name', SPECS)
def test_a_crossed_design_has_parts_of_both_and_is_neither(name):
  spec, rng = SPECS[name], random.Random(3)
  author = ScriptedProgrammer(_columns(spec), 0.0)
  crossed = 0
  for _ in range(200):
    one, two = author.design(spec, rng), author.design(spec, rng)
    made = author.crossed(spec, one, two, rng)
    if made is None:  # alike before the estimator, or in it
      assert one.calls[:-1] == two.calls[:-1] or one.calls[-1] == two.calls[-1]
      continue
    crossed += 1
    assert made not in (one, two)
    assert {made.calls[:-1], made.calls[-1:]} == {
      one.calls[:-1], two.calls[-1:]
    } or {made.calls[:-1], made.calls[-1:]} == {two.calls[:-1], one.calls[-1:]}  # fmt: skip
  assert crossed > 80


@pytest.mark.slow
def test_a_slip_fails_as_its_author_says(tmp_path):
  """Each slip of the table, run: the end of the output is what a prompt would show."""
  (tmp_path / 'data').mkdir()
  rows = [f'{i},{i % 7},{i % 3},{i % 2}' for i in range(60)]
  for name, head, lines in (
    ('train', 'id,a,b,label', rows),
    ('test', 'id,a,b', [row.rpartition(',')[0] for row in rows]),
  ):
    text = '\n'.join([head, *lines]) + '\n'
    (tmp_path / 'data' / f'{name}.csv').write_text(text)
  author = ScriptedProgrammer(Columns(('a', 'b'), 'label', ('label',)), 0.0)
  spec, rng = SPECS['digits'], random.Random(0)
  row = 'RandomForest{} n_estimators 5|20|100|300 max_depth 3|8|None'
  calls = (programmer.call(spec, row, {'n_estimators': '5'}),)
  design = programmer.Design((row,), calls)
  seen = set()
  while len(seen) < 6:
    failed = author.failed(spec, design, rng)
    if (failed.reason, failed.output) in seen:
      continue
    seen.add((failed.reason, failed.output))
    (tmp_path / 'solution.py').write_text(parse(failed.response).code)
    done = subprocess.run(
      [sys.executable, 'solution.py'],
      cwd=tmp_path,
      capture_output=True,
      text=True,
    )
    if failed.outcome == 'invalid_submission':
      head = (tmp_path / 'submission.csv').read_text().splitlines()[0]
      assert done.returncode == 0 and f'columns are {[head]};' in failed.reason
    else:
      assert done.returncode == 1 and failed.reason == 'it exited with 1'
      # Outside of the sandbox Python may add what was meant.
      assert failed.output.rstrip() in done.stderr
