"""Tasks of version 2 in training: graded by `graders`, each in its own process."""

from __future__ import annotations

import dataclasses
import io
import json
import pickle

import numpy as np
import pytest

from jaxagent import graders
from jaxagent.envs import grading
from jaxagent.envs import tasks as lib
from jaxagent.envs.grading import Grader
from jaxagent.files import bundled
from jaxagent.graders import folders
from jaxagent.types import Outcome
from tests.tasks import published

REFUSED = Outcome.INVALID_SUBMISSION
GESTURES = {
  'metric': 'multi-modal-gesture-recognition',
  'higher_is_better': False,
  'answers': 'Id,Sequence,split\n0300,1 2,valid\n300,3,private\n',
  'sample': 'Id,Sequence\n0300,1\n300,1\n',
}
INSULTS = {
  'metric': 'detecting-insults-in-social-commentary:accuracy',
  'answers': (
    'Insult,Comment,split\n1,"a, ""b""\nc",valid\n0,NA,valid\n'
    '1,00,private\n0,0,private\n'
  ),
  'sample': 'Insult,Comment\n0,"a, ""b""\nc"\n0,NA\n0,00\n0,0\n',
}
RMSE = {
  'metric': 'rmse',
  'higher_is_better': False,
  'id': 'row',
  'targets': ['x', 'y'],
  'kind': 'regression',
  'answers': 'row,x,y,split\n' + ''.join(
    f'{i},{i},{2 * i},{"valid" if i % 2 else "private"}\n' for i in range(40)
  ),
  'sample': 'row,x,y\n' + ''.join(f'{i},0,0\n' for i in range(40)),
}  # fmt: skip


def _arrays() -> dict:
  truth, sample = io.BytesIO(), io.BytesIO()
  pointers = np.arange(12).reshape(4, 3) % 3
  np.savez(truth, pi=pointers, split=np.array(['valid', 'private'] * 2))
  np.savez(sample, pi=np.zeros_like(pointers))
  return {
    'metric': 'CLRS',
    'submission': {'path': 'submission.npz', 'max_mb': 0.01},
    'answers': truth.getvalue(),
    'sample': sample.getvalue(),
    'sample_name': 'sample_submission.npz',
  }


@pytest.fixture(scope='module')
def tasks(tmp_path_factory):
  home = tmp_path_factory.mktemp('published')
  made = {
    'pizza': {},
    'gestures': GESTURES,
    'insults': INSULTS,
    'rmse': RMSE,
    'arrays': _arrays(),
    'parts': {'submission': {'path': 's.zip'}},
    'lines': {'submission': {'path': 's.jsonl'}, 'sample_name': 'sampleSubmission.jsonl',
              'sample': ''.join(json.dumps({'request_id': f't3_{k}', 'requester_received_pizza': 0}) + '\n' for k in 'abcd')},
  }  # fmt: skip
  return {
    name: published.prepared(home, name, **options)
    for name, options in made.items()
  }


@pytest.fixture(scope='module')
def grader(tasks):
  with Grader(tasks) as worker:
    yield worker


def test_a_process_begins_with_its_first_grade(tasks):
  with Grader(tasks) as grader:
    running = lambda: [  # noqa: E731
      n for n, desk in grader._own.items() if desk.process.popen
    ]
    assert running() == [] and grader._shared.process.popen is None
    assert grader.grade('pizza', published.SAMPLE.encode()).score == 0.5
    assert running() == ['pizza']


@pytest.mark.parametrize('split', ['valid', 'private'])
def test_a_half_is_graded_as_the_command_line_grades_it(
  grader, tasks, tmp_path, split
):
  """Ids 0300 and 300, texts with commas and ends of lines, several columns."""
  for name, given in {
    'gestures': 'Sequence,Id\n3,300\n1 2 2,0300\n',
    'insults': 'Comment,Insult\nNA,0.2\n"a, ""b""\nc",0.9\n0,0.1\n00,0.3\n',
    'rmse': 'y,x,row\n' + ''.join(f'{i},{i},{39 - i}\n' for i in range(40)),
  }.items():
    path = tmp_path / f'{name}.csv'
    path.write_text(given)
    spec = tasks[name].spec
    want = graders.grade_files(
      spec.metric,
      path,
      tasks[name].private_dir / 'answers.csv',
      scope=graders.Scope(split, spec.details.id_column, spec.details.targets),
    )
    got = grader.grade(name, given.encode(), split)
    assert got.outcome is Outcome.OK and got.score == want.score, (name, got)
    assert got.passed == len(grading.CHECKS)


def test_json_lines_and_arrays_are_graded(grader):
  lines = [
    {'request_id': f't3_{key}', 'requester_received_pizza': value}
    for key, value in (('d', 0.1), ('c', 0.2), ('b', 0.6), ('a', 0.9))
  ]
  text = '\n'.join(map(json.dumps, lines)).encode()
  assert grader.grade('lines', text).score == 1.0
  assert grader.grade('lines', b'[1]\n').passed == 2
  file = io.BytesIO()
  np.savez_compressed(file, pi=np.arange(12).reshape(4, 3) % 3)
  assert grader.grade('arrays', file.getvalue()).score == 1.0


def _npz(array, **options) -> bytes:
  file = io.BytesIO()
  np.savez_compressed(file, pi=array, **options)
  return file.getvalue()


@pytest.mark.parametrize(
  ('data', 'reason', 'passed'),
  [
    (pickle.dumps({'pi': 1}), 'not a readable .npz file', 2),
    (_npz(np.array([object()], dtype=object)), 'pickled objects', 2),
    (_npz(np.zeros(10**6)), 'of at most 1000 and 10000', 2),
    (_npz(np.zeros((4, 3)))[:-9], 'not a readable', 2),
    (bytes(20_000), 'submission has 20000 bytes; at most 10000.', 0),
    (_npz(np.zeros((4, 3)), more=np.zeros(3)), "expected ['pi']", 3),
    (_npz(np.zeros((3, 3))), 'shape (3, 3), expected (4, 3)', 4),
    (_npz(np.full((4, 3), 7)), 'whole numbers from 0 to 2', 5),
  ],
)
def test_arrays_that_are_none_are_refused_with_a_reason(
  grader, data, reason, passed
):
  got = grader.grade('arrays', data)
  assert got.outcome is REFUSED and reason in got.reason, got
  assert got.passed == passed and '/' not in got.reason


@pytest.mark.parametrize(
  ('given', 'reason', 'passed'),
  [
    (b'\xff', 'not a readable table', 1),
    (pickle.dumps({'id': 1}), 'not a readable table|columns are missing|NUL', None),
    (b'', 'not a readable table', 2),
    (b'row,x,y\n' * 10**6 * 9, 'at most 64000000', 0),
    (b'row,x\n1,2\n', "columns are missing: ['y']", 3),
    (b'row,x,y,z\n1,2,3,4\n', "unexpected columns: ['z']", 3),
    (b'row,x,y\n1,2,3\n', '39 of 40 test ids are missing', 4),
    (b'row,x,y\n' + b''.join(b'%d.0,1,2\n' % i for i in range(40)), 'ids are text, and one is', 4),
    (b'row,x,y\n' + b''.join(b'%d,1,x\n' % i for i in range(40)), "'y' must be numeric", 5),
    (b'row,x,y\n' + b''.join(b'%d,1,inf\n' % i for i in range(40)), 'not finite', 5),
  ],
  ids=range(10),
)  # fmt: skip
def test_a_table_that_is_none_is_refused_with_a_reason(
  grader, given, reason, passed
):
  import re

  got = grader.grade('rmse', given)
  assert got.outcome is REFUSED and got.score is None
  assert re.search(reason if '|' in reason else re.escape(reason), got.reason)
  assert passed is None or got.passed == passed
  assert len(got.reason) < 600 and '\n' not in got.reason


def test_a_copy_of_the_sample_is_no_work_of_ones_own(grader, tasks):
  for name, task in tasks.items():
    (sample,) = task.public_dir.glob('sample*')
    data = sample.read_bytes()
    if name == 'parts':
      data = folders.zipped({'a.csv': data})
    got = grader.grade(name, data, own_work=True)
    assert (got.outcome, got.passed) == (REFUSED, 0) and 'copy' in got.reason
    assert grader.grade(name, data).outcome is Outcome.OK, name


def test_a_damaged_copy_is_not_paid_and_damaged_work_is(grader, tasks):
  """Where ids and numbers can be compared, each check passed is credited."""
  good = RMSE['answers'].replace(',split', '').replace(',valid', '')
  good = good.replace(',private', '')
  for text, own in ((RMSE['sample'], False), (good, True)):
    lines = text.splitlines()
    for damaged, passed in (
      ('\n'.join(lines[:-1]), 4),
      ('\n'.join([lines[0].replace('y', 'z'), *lines[1:]]), 3),
      ('\n'.join([*lines[:-1], '39,1,x']), 5),
    ):
      got = grader.grade('rmse', damaged.encode(), own_work=True)
      assert got.outcome is REFUSED
      assert got.passed == (passed if own else 0), (own, damaged, got)


def test_where_it_cannot_be_told_whose_work_it_is_nothing_is_credited(grader):
  """Texts, orders and arrays: whether a damaged one is a copy is not known."""
  for name, data in (
    ('gestures', b'Id,Sequence\n0300,x\n300,3 4\n'),
    ('arrays', _npz(np.full((4, 3), 7))),
    ('lines', b'{"request_id": "t3_a", "requester_received_pizza": 0.5}\n'),
  ):
    got = grader.grade(name, data, own_work=True)
    assert got.outcome is REFUSED and grading.credited(got.passed) == ()


def test_limits_follow_the_answers(tasks, tmp_path):
  large = tmp_path / 'answers.csv'
  with large.open('wb') as file:
    file.truncate(10**9)
  entry = {'answers': str(large), 'max_bytes': 7}
  desk = grading._own_desk('one', entry, 20.0, 4096)
  assert desk.timeout_s == 520 and desk.process._memory_mb > 40_000
  with Grader({'rmse': tasks['rmse']}) as small:
    desk = small._own['rmse']
    assert 20 <= desk.timeout_s < 21 and desk.process._memory_mb < 4200


def test_answers_that_are_not_there_stop_at_once(tasks, tmp_path):
  gone = dataclasses.replace(tasks['rmse'], private_dir=tmp_path)
  with pytest.raises(ValueError, match='cannot start.*prepare the task again'):
    Grader({'rmse': gone})


@pytest.mark.slow
def test_answers_that_broke_since_are_no_fault_of_a_submission(tasks, tmp_path):
  (tmp_path / 'answers.csv').write_text('row,x,y,split\n1,2,3,valid\n"')
  broken = dataclasses.replace(tasks['rmse'], private_dir=tmp_path)
  with Grader({'rmse': broken}) as grader:
    got = grader.grade('rmse', b'row,x,y\n1,2,3\n')
  assert got.outcome is Outcome.GRADER_ERROR and got.score is None
  assert 'prepare the task again' in got.reason


@pytest.mark.slow
def test_a_task_of_each_version_is_graded_by_one_grader(tasks, prepared):
  both = {'wine': prepared['wine'], 'pizza': tasks['pizza']}
  with Grader(both) as grader:
    assert grader.grade('pizza', published.SAMPLE.encode()).score == 0.5
    sample = prepared['wine'].public_dir / 'sample_submission.csv'
    assert grader.grade('wine', sample.read_bytes()).score is not None


def test_an_eval_of_the_folder_grades_as_in_version_1(tmp_path):
  """With the rules of version 1: a column id, known classes."""
  rows = 'id,label,split\n1,a,valid\n2,b,private\n3,b,valid\n'
  root = published.write(
    tmp_path / 'tasks',
    answers=rows,
    sample='id,label\n1,a\n2,a\n3,a\n',
    public={'train.csv': 'id,x,label\n0,1,a\n', 'test.csv': 'id,x\n1,2\n'},
    metric='accuracy',
  )
  (root / 'scripts/eval.py').write_text(
    'def score(submission, answers):\n'
    '  return float((submission.label == answers.label).mean())\n'
  )
  spec = lib.load_task('pizza', tmp_path / 'tasks')
  task = lib.prepare_task(spec, tmp_path / 'data')
  with Grader({'pizza': task}) as grader:
    got = grader.grade('pizza', b'id,label\n3,b\n2,b\n1,b\n')
    assert (got.score, grader._own) == (0.5, {})
    got = grader.grade('pizza', b'id,label\n3,b\n2,b\n1,c\n')
    assert 'no known class' in got.reason


def test_the_whole_test_is_scored_as_the_source_scores_it(tasks, grader):
  rows = ['t3_a,0.9', 't3_b,0.1', 't3_c,0.2', 't3_d,0.3']
  data = ('request_id,requester_received_pizza\n' + '\n'.join(rows)).encode()
  halves = [grader.grade('pizza', data, half).score for half in grading.SPLITS]
  assert halves == [1.0, 0.0]
  found = grader.grade('pizza', data, grading.WHOLE)
  assert (found.score, found.outcome) == (0.75, Outcome.OK)  # 3 of 4 pairs
  refused = grader.grade('pizza', data[:-8], grading.WHOLE)
  assert refused.outcome is REFUSED
  sample = grader.grade('rmse', RMSE['sample'].encode(), grading.WHOLE)
  every = [i**2 for i in range(40)]
  want = (sum(every) / 40) ** 0.5 * 1.5  # mean of x and y = 2 x
  assert sample.score == pytest.approx(want, abs=1e-5)


def test_the_whole_test_of_what_no_source_reads_is_scored_too(grader):
  """Lines of JSON, and a zip of parts: in strict, as the command line does."""
  scores = {'t3_a': 0.9, 't3_b': 0.1, 't3_c': 0.2, 't3_d': 0.3}
  rows = [
    json.dumps({'request_id': k, 'requester_received_pizza': v}).encode()
    for k, v in scores.items()
  ]
  parts = {'a.jsonl': b'\n'.join(rows[:3]), 'b.jsonl': rows[3]}
  given = {'lines': b'\n'.join(rows), 'parts': folders.zipped(parts)}
  for name, data in given.items():
    assert grader.grade(name, data, 'valid').score == 1.0
    assert grader.grade(name, data, grading.WHOLE).score == 0.75, name


def test_the_source_pairs_rows_in_its_own_way(tmp_path):
  """House prices are compared by position: the source's number says so."""
  ids = range(6)
  prices = {
    'metric': 'house-price',
    'higher_is_better': False,
    'kind': 'regression',
    'answers': 'Id,SalePrice,split\n'
    + ''.join(f'{i},{i},{"valid" if i % 2 else "private"}\n' for i in ids),
    'sample': 'Id,SalePrice\n' + ''.join(f'{i},0\n' for i in ids),
  }
  task = published.prepared(tmp_path, 'prices', **prices)
  turned = 'Id,SalePrice\n' + ''.join(f'{i},{i}\n' for i in reversed(ids))
  with Grader({'prices': task}) as grader:
    assert grader.grade('prices', turned.encode(), 'private').score == 0.0
    assert grader.grade('prices', turned.encode(), grading.WHOLE).score == 3.0


def test_a_task_without_a_source_has_no_whole_test(tmp_path):
  spec = lib.load_task('wine', bundled.folder('tasks'))
  assert not grading.has_whole(spec)
  assert not grading.has_whole(
    lib.load_task('vectorization', bundled.folder('tasks'))
  )
  assert grading.has_whole(lib.load_task('imdb', bundled.folder('tasks')))
  with Grader({'wine': lib.prepare_task(spec, tmp_path)}) as grader:
    with pytest.raises(ValueError, match="split='whole'"):
      grader.grade('wine', b'', grading.WHOLE)
