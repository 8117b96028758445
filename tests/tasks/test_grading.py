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
from jaxagent.envs.grading import Grader
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
    grader._worker.kill()
    grader._worker.wait()
    assert grader.grade('wine', to_csv(data['wine'].gold())).score is not None


@pytest.mark.timeout(60)
@pytest.mark.slow
def test_a_frozen_worker_is_replaced_though_it_takes_no_input(
  prepared, data, monkeypatch
):
  monkeypatch.setattr(grading, '_GRACE_S', 0.0)
  gold = to_csv(data['wine'].gold())
  with Grader({'wine': prepared['wine']}, timeout_s=2.0) as grader:
    frozen = grader._worker.pid
    os.kill(frozen, signal.SIGSTOP)
    large = gold + b'\n' * 10**6  # more than a pipe holds
    assert grader.grade('wine', large).outcome is not Outcome.GRADER_ERROR
    assert grader.grade('wine', gold).score is not None
    assert grader._worker.pid != frozen


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
  pid = grader._worker.pid
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
