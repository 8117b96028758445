"""The grader: each test attacks one claim."""

from __future__ import annotations

import concurrent.futures
import os
import pickle
import signal
import subprocess
import sys

import pandas as pd
import pytest

from jaxagent.envs import grading
from jaxagent.envs.grading import Grader, grade_worker
from jaxagent.tasks.check import Data, malformed, to_csv
from jaxagent.types import Outcome


@pytest.fixture(scope='module')
def data(prepared):
  return {name: Data(task) for name, task in prepared.items()}


def test_gold_is_perfect_on_both_splits(grader, data):
  for name, best in (('digits', 1.0), ('diabetes', 0.0), ('wine', 0.0)):
    for split in ('valid', 'private'):
      got = grader.grade(name, to_csv(data[name].gold()), split)
      assert got.outcome is Outcome.OK
      assert got.score == pytest.approx(best, abs=1e-9)


def test_valid_and_private_rows_are_scored_apart(grader, data):
  gold = data['digits'].gold()
  hidden = data['digits'].answers.set_index('id')['split'].loc[gold['id']]
  gold.loc[(hidden == 'private').to_numpy(), 'label'] = 0
  assert grader.grade('digits', to_csv(gold), 'valid').score == 1.0
  assert grader.grade('digits', to_csv(gold), 'private').score < 0.3


@pytest.mark.parametrize('name', ['wine', 'diabetes', 'digits'])
def test_malformed_submissions_are_refused_with_a_reason(grader, data, name):
  for kind, bad in malformed(data[name]).items():
    got = grader.grade(name, bad)
    assert got.outcome is Outcome.INVALID_SUBMISSION, (kind, got)
    assert got.score is None and got.reason, kind


@pytest.mark.parametrize(
  ('text', 'reason'),
  [
    (b'id,label\n1,2,3\n', 'line 2 has 3 values'),
    (b'id,label,label\n', 'columns are'),
    (b'id,label\n"1,2\n', 'not valid CSV'),
    (b'id,label\n\x00,2\n', 'NUL byte'),
    (b'\xff\xfe\x00', 'not UTF-8'),
    (b'x' * 10_000_000, 'bytes; at most'),
    (b'"' * 50_000_000, 'bytes; at most'),
    (b'id,label\n1,"' + b'2' * 4000 + b'\n', 'not valid CSV'),
    (b'id,label\n' + b'9' * 5000 + b',2\n', 'not a test id'),
    (b'id,label\nnan,inf\n', 'not a test id'),
    (pickle.dumps({'id': 1}), 'not UTF-8'),
  ],
)
def test_bad_bytes(grader, text, reason):
  got = grader.grade('digits', text)
  assert got.outcome is Outcome.INVALID_SUBMISSION and reason in got.reason


@pytest.mark.parametrize(
  ('text', 'passed'),
  [
    (b'\xff', 1),
    (b'id,label\n1,"2', 2),
    (b'', 2),
    (b'id,label,more\n1,2,3\n', 3),
    (b'id,label\n-1,2\n', 4),
    (b'id,label\n', 4),
  ],
)
def test_it_says_how_far_a_submission_came(grader, text, passed):
  assert grader.grade('digits', text).passed == passed


def test_all_checks_stood_but_the_values(grader, data):
  gold = data['digits'].gold()
  assert grader.grade('digits', to_csv(gold)).passed == len(grading.CHECKS)
  gold.loc[0, 'label'] = 77
  assert grader.grade('digits', to_csv(gold)).passed == 5


@pytest.mark.parametrize('name', ['wine', 'diabetes', 'digits'])
def test_own_work_is_no_copy_of_the_sample(grader, data, name):
  """Nor one with its rows and columns in another order."""
  sample = data[name].sample
  turned = sample.iloc[::-1][list(sample.columns[::-1])]
  for copy in (sample, turned):
    got = grader.grade(name, to_csv(copy), own_work=True)
    assert got.outcome is Outcome.INVALID_SUBMISSION and not got.passed
    assert 'sample' in got.reason
    assert grader.grade(name, to_csv(copy)).outcome is Outcome.OK
  own = grader.grade(name, to_csv(data[name].gold()), own_work=True)
  assert own.outcome is Outcome.OK


def _damaged(frame: pd.DataFrame) -> dict[str, tuple[int, bytes]]:
  """What a refused table stands for, by what is wrong with it: (passed, it)."""
  value = frame.columns[-1]
  text = frame.astype(str)
  bad, unknown = text.copy(), text.copy()
  bad.loc[0, value] = 'x'
  unknown.loc[0, 'id'] = '-17'
  return {
    'index': (3, frame.to_csv().encode()),
    'shuffled index': (
      3,
      frame.sample(frac=1, random_state=0).to_csv().encode(),
    ),
    'unnamed index': (4, frame.to_csv(index_label=False).encode()),
    'one more column': (3, to_csv(frame.assign(note='mine'))),
    'semicolons': (3, frame.to_csv(index=False, sep=';').encode()),
    'a comma more': (3, to_csv(frame).replace(b'\n', b',\n')),
    'a row less': (4, to_csv(frame[:-1])),
    'the first half, turned': (4, to_csv(frame[: len(frame) // 2][::-1])),
    'a row twice': (4, to_csv(pd.concat([frame, frame[:1]]))),
    'an unknown id': (4, to_csv(unknown)),
    'a bad cell': (5, to_csv(bad)),
    'spaces': (5, to_csv(bad).replace(b',', b' , ')),
    'four digits': (3, frame.to_csv(float_format='%.4f').encode()),
  }


@pytest.mark.parametrize('name', ['wine', 'diabetes', 'digits'])
def test_a_damaged_copy_of_the_sample_stays_one(grader, data, name):
  for kind, (_, copy) in _damaged(data[name].sample).items():
    got = grader.grade(name, copy, own_work=True)
    assert got.outcome is Outcome.INVALID_SUBMISSION, kind
    assert not got.passed and 'copy of the sample' in got.reason, (kind, got)
    assert not grading.credited(got.passed), kind


@pytest.mark.parametrize('name', ['wine', 'diabetes', 'digits'])
def test_a_damaged_submission_of_ones_own_is_credited(grader, data, name):
  for kind, (passed, own) in _damaged(data[name].gold()).items():
    got = grader.grade(name, own, own_work=True)
    assert got.outcome is Outcome.INVALID_SUBMISSION, kind
    assert got.passed == passed and 'copy' not in got.reason, (kind, got)
    assert grading.credited(passed) == grading.CHECKS[:passed]


@pytest.mark.parametrize('name', ['wine', 'diabetes', 'digits'])
def test_a_few_changed_cells_make_no_own_work(grader, data, name):
  """One row in twenty may be the program's own, and the rest the sample's."""
  sample, gold = data[name].sample, data[name].gold()
  for share, copied in ((0.05, True), (0.25, False)):
    mixed = sample.copy()
    rows = range(int(share * len(sample)))
    mixed.loc[rows] = gold.loc[rows].astype(mixed.dtypes)
    got = grader.grade(name, mixed.to_csv().encode(), own_work=True)
    assert got.passed == (0 if copied else 3), (share, got)
    assert grader.grade(name, to_csv(mixed), own_work=True).score is not None


@pytest.mark.parametrize(
  'text',
  [
    b'',
    b'\n\n',
    b'\xff',
    b'\x00\xff' * 999,
    b'hello',
    b'id,label\n',
    b'id,label\n1,"2',
    b'a,b\n1,2\n',
    b'id,label\n-1,5\n-2,6\n',
    b',' * 5000 + b'\n' + b'1\n' * 5000,
    b'"' * 5000,
    pickle.dumps({'id': 1}),
    'id\u2028label\r\x85'.encode(),
  ],
)
def test_what_cannot_be_compared_is_neither_a_copy_nor_paid(grader, text):
  got = grader.grade('digits', text, own_work=True)
  assert got.outcome is Outcome.INVALID_SUBMISSION and 'copy' not in got.reason
  assert got.passed in (1, 2) and grading.credited(got.passed) == ()


def test_the_data_of_the_task_are_no_work_of_ones_own(grader, prepared):
  for name, task in prepared.items():
    for file in ('train.csv', 'test.csv'):
      got = grader.grade(
        name, (task.public_dir / file).read_bytes(), own_work=True
      )
      assert not grading.credited(got.passed), (name, file, got)


def test_labels_that_none_can_read_say_nothing(grader, data):
  own = data['digits'].gold().assign(label='')
  got = grader.grade('digits', to_csv(own), own_work=True)
  assert not grading.credited(got.passed) and got.passed
  half = data['digits'].sample.astype(str)
  half.loc[::2, 'label'] = 'none'
  assert not grader.grade('digits', to_csv(half), own_work=True).passed


def _task_of(folder, sample: list, truth: list) -> grade_worker.Task:
  """One of accuracy, with these labels of the rows 0, 1, 2, ..."""
  ids = range(len(truth))
  frame = pd.DataFrame({'id': ids, 'label': truth})
  frame['split'] = ['valid' if i % 2 else 'private' for i in ids]
  frame.to_csv(folder / 'answers.csv', index=False)
  pd.DataFrame({'id': ids, 'label': sample}).to_csv(
    folder / 'sample.csv', index=False
  )
  (folder / 'eval.py').write_text(
    'def score(submission, answers):\n'
    '  return float((submission.label == answers.label).mean())\n'
  )
  files = {'eval': 'eval.py', 'answers': 'answers.csv', 'sample': 'sample.csv'}
  paths = {key: str(folder / name) for key, name in files.items()}
  return grade_worker.Task('one', {**paths, 'metric': 'accuracy'})


def _passed(task, labels: list, **options) -> int:
  frame = pd.DataFrame({'id': range(len(labels)), 'label': labels})
  text = frame.to_csv(**options).encode()
  return grade_worker.grade(task, text, 'valid', own_work=True)['passed']


def test_who_finds_a_rare_class_has_not_copied_a_sample_of_the_other(tmp_path):
  """Three rows in a hundred are ill: all but those say what the sample says."""
  truth = ['ill' if i % 100 in (7, 8, 9) else 'well' for i in range(400)]
  task = _task_of(tmp_path, ['well'] * 400, truth)
  assert _passed(task, truth) == 3
  assert _passed(task, truth, index=False) == 6
  # Seven of the twelve are found, and nobody else is called ill.
  found = [label if i < 210 else 'well' for i, label in enumerate(truth)]
  assert _passed(task, found) == 3
  # Who finds none says what the sample says, whole or damaged.
  assert _passed(task, ['well'] * 400) == 0
  assert _passed(task, ['well'] * 400, index=False) == 0
  # One row more is no model, but valid work is paid what it scores.
  one = ['ill', *['well'] * 399]
  assert _passed(task, one) == 0 and _passed(task, one, index=False) == 6


def test_who_often_says_the_class_of_the_sample_has_not_copied_it(tmp_path):
  truth = [str(i % 2) for i in range(200)]
  task = _task_of(tmp_path, ['0'] * 200, truth)
  mostly = ['0' if i % 8 else '1' for i in range(200)]
  assert _passed(task, mostly) == 3 and _passed(task, mostly[:150]) == 3
  floats = [0.0] * 200
  assert _passed(task, floats) == _passed(task, floats[::-1][:120]) == 0


def test_a_copy_of_a_sample_with_many_labels_is_known_without_ids(tmp_path):
  labels = [str(i * i % 7) for i in range(200)]
  task = _task_of(tmp_path, labels, [str(i % 7) for i in range(200)])
  for options in (
    {'header': False, 'index': False},
    {'columns': ['label'], 'index': False},
    {'header': ['ID', 'target'], 'index': False},
    {'header': ['ID', 'target']},
  ):
    assert _passed(task, labels, **options) == 0, options
    own = _passed(task, [str(i % 5) for i in range(200)], **options)
    assert own and not grading.credited(own), options


def test_label_and_probability_rules(grader, data):
  gold = data['digits'].gold()
  floats = gold.astype({'label': float})
  assert grader.grade('digits', to_csv(floats)).score == 1.0
  gold.loc[0, 'label'] = 77
  assert 'no known class' in grader.grade('digits', to_csv(gold)).reason
  wine = data['wine'].gold()
  wine.loc[0, 'p_0'] = 1.5
  assert 'between 0 and 1' in grader.grade('wine', to_csv(wine)).reason
  wine.loc[0, ['p_0', 'p_1', 'p_2']] = 0.0
  assert 'sum to 1' in grader.grade('wine', to_csv(wine)).reason


def test_grade_agrees_with_get_score_of_the_folder(
  grader, prepared, data, tmp_path
):
  import importlib.util

  task = prepared['diabetes']
  data['diabetes'].sample.to_csv(tmp_path / 'submission.csv', index=False)
  spec = importlib.util.spec_from_file_location(
    'evalfile', task.spec.root / 'scripts/eval.py'
  )
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  for split in ('valid', 'private'):
    want = module.get_score(tmp_path, task.private_dir / 'answers.csv', split)
    got = grader.grade('diabetes', to_csv(data['diabetes'].sample), split)
    assert got.score == pytest.approx(want, rel=1e-12)


def test_many_threads_get_their_own_answers(grader, data):
  jobs = []
  for i in range(12):
    frame = data['diabetes'].gold()
    frame['progression'] += i
    jobs.append(to_csv(frame))
  with concurrent.futures.ThreadPoolExecutor(6) as pool:
    scores = [
      r.score for r in pool.map(lambda d: grader.grade('diabetes', d), jobs)
    ]
  assert scores == pytest.approx(list(range(12)))


def test_unknown_names_list_the_choices(grader):
  with pytest.raises(ValueError, match='choose one of diabetes, digits, wine'):
    grader.grade('iris', b'')
  with pytest.raises(ValueError, match='choose one of valid, private'):
    grader.grade('wine', b'', 'test')


def test_a_dead_worker_is_replaced(prepared, data):
  with Grader({'wine': prepared['wine']}) as grader:
    grader._shared.process.popen.kill()
    grader._shared.process.popen.wait()
    assert grader.grade('wine', to_csv(data['wine'].gold())).score is not None


@pytest.mark.timeout(60)
@pytest.mark.slow
def test_a_frozen_worker_is_replaced_though_it_takes_no_input(
  prepared, data, monkeypatch
):
  monkeypatch.setattr(grading, '_GRACE_S', 0.0)
  gold = to_csv(data['wine'].gold())
  with Grader({'wine': prepared['wine']}, timeout_s=2.0) as grader:
    frozen = grader._shared.process.popen.pid
    os.kill(frozen, signal.SIGSTOP)
    large = gold + b'\n' * 10**6  # more than a pipe holds
    assert grader.grade('wine', large).outcome is not Outcome.GRADER_ERROR
    assert grader.grade('wine', gold).score is not None
    assert grader._shared.process.popen.pid != frozen


@pytest.mark.slow
def test_a_grader_that_throws_or_hangs_is_our_fault(prepared, data, tmp_path):
  import dataclasses
  import shutil

  gold = to_csv(data['wine'].gold())
  for body, reason in (
    ("raise KeyError('x')", 'KeyError'),
    ('import time; time.sleep(60)', 'longer than 1 s'),
    ('import os; os._exit(3)', 'ended with status'),
    ("return float('nan')", 'not a finite'),
    ("return 'good'", "could not convert string to float: 'good'"),
    ("print('x' * 2**30)\n  return {}", ''),  # its text goes nowhere
  ):
    root = tmp_path / str(abs(hash(body)))
    shutil.copytree(prepared['wine'].spec.root, root)
    (root / 'scripts/eval.py').write_text(
      f'def score(submission, answers):\n  {body}\n'
    )
    task = dataclasses.replace(
      prepared['wine'],
      spec=dataclasses.replace(prepared['wine'].spec, root=root),
    )
    with Grader({'wine': task}, timeout_s=1.0) as grader:
      got = grader.grade('wine', gold)
    want = Outcome.INVALID_SUBMISSION if 'nan' in body else Outcome.GRADER_ERROR
    assert got.outcome is want and reason in got.reason, got
    assert got.score is None


@pytest.mark.parametrize(
  'fault',
  [
    'import os; os._exit(3)',
    'raise KeyError("the answers")',
    *(
      pytest.param(fault, marks=pytest.mark.slow)
      for fault in (
        'import time; time.sleep(60)',
        'import os; os.kill(os.getppid(), 9)',
        'print("{}\\n" * 10_000, flush=True); raise MemoryError',
      )
    ),
  ],
)
def test_a_submission_that_kills_its_grader_is_charged(
  prepared, data, tmp_path, fault
):
  """Where the sample is graded the fault is not ours; the next one is, too."""
  import dataclasses
  import shutil

  root = tmp_path / 'wine'
  shutil.copytree(prepared['wine'].spec.root, root)
  (root / 'scripts/eval.py').write_text(
    f'def score(submission, answers):\n  if submission.max().max() > 0.99:\n'
    f'    {fault}\n  return 0.5\n'
  )
  task = dataclasses.replace(
    prepared['wine'],
    spec=dataclasses.replace(prepared['wine'].spec, root=root),
  )
  with Grader({'wine': task}, timeout_s=1.0) as grader:
    got = grader.grade('wine', to_csv(data['wine'].gold()))
    assert got.outcome is Outcome.INVALID_SUBMISSION and got.score is None
    assert 'failed twice' in got.reason and 'the answers' not in got.reason
    assert grader.grade('wine', to_csv(data['wine'].sample)).score == 0.5


def test_missing_answers_stop_at_once(prepared, tmp_path):
  import dataclasses

  broken = dataclasses.replace(prepared['wine'], private_dir=tmp_path)
  with pytest.raises(ValueError, match='the grader cannot start'):
    Grader({'wine': broken})


def test_worker_sees_no_secret_and_ends_on_close(prepared, monkeypatch):
  monkeypatch.setenv('SECRET_TOKEN', 'hush')
  grader = Grader({'wine': prepared['wine']})
  pid = grader._shared.process.popen.pid
  with open(f'/proc/{pid}/environ', 'rb') as file:
    assert b'hush' not in file.read()
  grader.close()
  grader.close()
  with pytest.raises(ProcessLookupError):
    os.kill(pid, 0)
  with pytest.raises(ValueError, match='closed'):
    grader.grade('wine', b'')


def test_importing_the_room_brings_no_jax():
  code = (
    'import sys, jaxagent.envs.grading, jaxagent.envs.tasks, '
    'jaxagent.tasks.__main__; assert "jax" not in sys.modules'
  )
  subprocess.run([sys.executable, '-c', code], check=True)


def test_ids_and_splits_do_not_correlate_with_rows(data):
  for item in data.values():
    frame = item.test.merge(item.answers[['id', 'split']], on='id')
    private = (frame['split'] == 'private').astype(float)
    order = pd.Series(range(len(frame)), dtype=float)
    assert abs(private.corr(order)) < 0.2
    assert abs(private.corr(frame['id'].astype(float))) < 0.2
