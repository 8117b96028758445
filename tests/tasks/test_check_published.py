"""`check` of a task of version 2 finds what a folder claims and does not hold."""

from __future__ import annotations

import io

import numpy as np
import pytest

from jaxagent import graders
from jaxagent.envs.grading import Grader
from jaxagent.graders.loaded import Loaded
from jaxagent.tasks import check_published as lib
from jaxagent.tasks.check import Report
from jaxagent.types import Execution, Outcome
from tests.graders.hand_computed import CASES
from tests.subset import fast
from tests.tasks import published

ROWS = [(f't3_{i:03}', i % 3 // 2, 'valid' if i % 2 else 'private') for i in range(240)]  # fmt: skip
HEAD = 'request_id,requester_received_pizza'
ANSWERS = f'{HEAD},split\n' + ''.join(f'{i},{y},{s}\n' for i, y, s in ROWS)
SAMPLE = f'{HEAD}\n' + ''.join(f'{i},0\n' for i, _, _ in ROWS)


def _submission(noise: float) -> bytes:
  """Scores of 1 for a label of 1 and 0 else, with noise of this width."""
  draws = np.random.default_rng(0).random(len(ROWS))
  scores = [(y + noise * d) / (1 + noise) for (_, y, _), d in zip(ROWS, draws)]
  return (
    f'{HEAD}\n' + ''.join(f'{row[0]},{s:.6f}\n' for row, s in zip(ROWS, scores))
  ).encode()


GOOD, POOR = _submission(1.2), _submission(6.0)


def _run(starter: bytes = POOR, reference: bytes = GOOD):
  """Stands for a sandbox that has run a script."""

  def run(job):
    data = reference if job.script == 'reference.py' else starter
    return Execution(
      job_id=job.job_id,
      outcome=Outcome.OK,
      tier='T3',
      exec_s=0.1,
      collected={'submission.csv': data},
    )

  return run


@pytest.fixture(scope='module')
def task(tmp_path_factory):
  home = tmp_path_factory.mktemp('check')
  scores = {'m_init': 0.5, 'm_best': 0.99}
  made = published.prepared(
    home, answers=ANSWERS, sample=SAMPLE, variants={'standin': scores}
  )
  (made.spec.root / 'solution').mkdir()
  (made.spec.root / 'solution/reference.py').write_text('pass\n')
  return made


@pytest.fixture(scope='module')
def grader(task):
  with Grader({'pizza': task}) as worker:
    yield worker


def test_a_task_that_holds_what_it_claims_passes(task, grader):
  report = lib.check_task(task, grader, _run(starter=SAMPLE.encode()))
  assert report.failures == []
  assert report.figures['gold'] == 1.0 and report.figures['sample'] == 0.5
  assert report.figures['reference'] > 0.9 and report.figures['se'] > 3


@pytest.mark.parametrize(
  ('starter', 'reference', 'failure'),
  fast(
    [
      (GOOD, b'', 'the reference is refused'),
      (_submission(0)[::-1], GOOD, 'starter refused'),
      (GOOD, GOOD, 'better than the starter by 0.0 standard errors'),
      (GOOD, POOR, 'better than the starter by -'),
    ],
    first=2,
  ),
)
def test_a_reference_that_is_no_better_is_named(
  task, grader, starter, reference, failure
):
  report = lib.check_task(task, grader, _run(starter, reference))
  assert any(failure in line for line in report.failures), report.failures


@pytest.mark.parametrize(
  ('other', 'who'),
  [({'starter': GOOD}, 'starter'), ({'reference': POOR}, 'reference')],
)
def test_a_script_that_scores_otherwise_at_another_cpu_level_is_named(
  task, grader, other, who
):
  first = _run(starter=SAMPLE.encode())
  levels = {
    'no-avx512': first,
    'no-avx2': _run(**{'starter': SAMPLE.encode(), **other}),
  }
  report = lib.check_task(task, grader, first, levels)
  (failure,) = report.failures
  assert f'the {who} scores' in failure and 'cpu_level=no-avx2' in failure


@pytest.mark.slow
def test_a_sample_that_is_better_than_the_starter_is_named(task, grader):
  worse = SAMPLE.replace(',0\n', ',0.5\n').replace('t3_002,0.5', 't3_002,0.1')
  report = lib.check_task(task, grader, _run(worse.encode()))
  assert not any('sample' in line for line in report.failures)
  turned = (
    _submission(0).decode().replace('0.000000', '2').replace('1.0', '0.0')
  )
  report = lib.check_task(
    task, grader, _run(turned.replace(',2', ',1').encode())
  )
  assert any('is better than the starter' in f for f in report.failures)


@pytest.mark.parametrize(
  ('name', 'content', 'failure'),
  [
    ('train.csv', ANSWERS, 'train.csv is the answers'),
    ('labels.csv', ANSWERS.replace(',valid', ',x'), 'of 100% of the hidden'),
    ('train.csv', ANSWERS.replace('t3_', 'u3_'), ''),
    ('test.csv', SAMPLE.replace('requester_', ''), ''),
    ('notes.csv', '"', ''),
  ],
)
def test_answers_in_the_public_data_are_found(task, name, content, failure):
  path = task.public_dir / name
  path.write_text(content)
  report = Report('pizza')
  lib.check_hidden(task, lib.load(task), report)
  path.unlink()
  assert failure in ' '.join(report.failures)
  assert bool(report.failures) is bool(failure)


@pytest.mark.parametrize('name', CASES)
def test_gold_is_best_or_known_to_be_unknown(name):
  answers, submission, score = CASES[name]
  one = Loaded(graders.grader(name), answers)
  best = lib.gold(one)
  if best is None:
    assert name == 'babylm'
    return
  form = 'npy' if one.entry.arrays else 'csv'
  given = one.read(lib.as_bytes(best, form), f'.{form}')
  got = one.grade(given)
  assert got.score == (1.0 if one.entry.higher_is_better else 0.0), got


@pytest.mark.parametrize('name', CASES)
def test_every_malformed_submission_is_refused(name):
  answers, submission, _ = CASES[name]
  one = Loaded(graders.grader(name), answers)
  form = 'npy' if one.entry.arrays else 'csv'
  made = lib.malformed(lib.as_bytes(submission, form), form, one)
  assert len(made) >= (4 if one.entry.arrays else 7)
  for what, data in made.items():
    with pytest.raises(ValueError, match='.'):
      one.aligned(one.read(data, f'.{form}'))
      pytest.fail(f'{name}: {what} was not refused')


def test_arrays_and_lines_are_written_in_their_format():
  pointers = np.zeros((2, 3), int)
  named = np.load(io.BytesIO(lib.as_bytes({'pi': pointers}, 'npz')))
  assert named['pi'].shape == (2, 3)
  table = CASES['house-price'][1]
  one = Loaded(graders.grader('house-price'), CASES['house-price'][0])
  lines = lib.as_bytes(table, 'jsonl')
  assert one.grade(one.read(lines, '.jsonl')).score == CASES['house-price'][2]


@pytest.mark.parametrize(
  ('folder', 'name', 'content', 'message'),
  [
    ('private', 'answers.csv', 'x,split\na,valid\nb,private\n', 'no column'),
    (
      'private',
      'answers.csv',
      'request_id,split\na,valid\nb,private\n',
      'which random-acts-of-pizza compares',
    ),
    ('private', 'answers.csv', f'{HEAD}\na,1\n', 'no column split'),
    ('public', 'sample_submission.csv', f'{HEAD}\n', 'has no rows'),
    ('public', 'sample_submission.csv', 'a,b\n1,2\n', 'has no column'),
    ('public', 'sample_submission.csv', 'a,"b', 'not a readable table'),
  ],
)
def test_a_damaged_file_of_the_data_is_named_and_nothing_is_graded(
  task, folder, name, content, message
):
  path = task.public_dir.parent / folder / name
  before = path.read_text()
  path.write_text(content)
  try:
    with pytest.raises(ValueError, match=f'task pizza: .*{message}'):
      lib.check_task(task, None, None)
  finally:
    path.write_text(before)
