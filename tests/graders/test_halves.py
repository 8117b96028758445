"""Answers in two halves, and metrics of any columns."""

from __future__ import annotations

import io
import json
import math

import numpy as np
import pandas as pd
import pytest

from jaxagent import grade, graders
from jaxagent.graders import Scope, loaded
from tests.graders import hand_computed
from tests.graders.hand_computed import CASES, csv

AUC = 'aerial-cactus-identification'


def _halves(count: int) -> list[str]:
  return ['valid' if i % 2 else 'private' for i in range(count)]


def _score(name, submission, answers, **scope):
  return graders.grade_tables(name, submission, answers, scope=Scope(**scope))


@pytest.mark.parametrize(
  'name', [n for n, case in CASES.items() if not isinstance(case[0], dict)]
)
def test_a_half_is_the_score_of_its_rows_alone(name):
  """Whatever a grader reads: ids, rows, lists of columns, sizes of images."""
  answers, submission, want = CASES[name]
  split = pd.Series(_halves(len(answers)))
  marked = answers.assign(split=split)
  assert _score(name, submission, marked).score == want
  for half in ('valid', 'private'):
    rows = (split == half).to_numpy()
    alone = _score(
      name,
      submission[rows].reset_index(drop=True),
      answers[rows].reset_index(drop=True),
    )
    got = _score(name, submission, marked, split=half)
    assert (got.score, got.reason) == (alone.score, alone.reason)


def test_a_half_of_arrays_is_the_score_of_its_rows_alone(tmp_path):
  """Of a .npy file, whose only array has no name, and of names."""
  truth = {'pi': np.array([[0, 1], [1, 1], [0, 0], [1, 0]])}
  given = {'pi': np.array([[0, 1], [0, 0], [0, 0], [0, 1]])}
  np.savez(tmp_path / 'a.npz', split=np.array(_halves(4)), **truth)
  np.savez(tmp_path / 's.npz', **given)
  np.save(tmp_path / 's.npy', given['pi'])
  for file in ('s.npz', 's.npy'):
    scores = [
      graders.grade_files(
        'CLRS', tmp_path / file, tmp_path / 'a.npz', scope=Scope(split=half)
      ).score
      for half in ('', 'private', 'valid')
    ]
    # Rows 0 and 2 are right, of row 1 and 3 nothing.
    assert scores == [0.5, 1.0, 0.0]


def test_a_submission_is_checked_whole_whichever_half_is_scored():
  answers = csv('id,rle_mask\na,1 3\nb,\nc,1 3\nd,\n').assign(split=_halves(4))
  name = 'tgs-salt-identification-challenge'
  whole = answers.drop(columns='split')
  for row, half in ((0, 'valid'), (1, 'private')):
    bad = whole.copy()
    bad.loc[row, 'rle_mask'] = '3 2 1 1'
    got = _score(name, bad, answers, split=half)
    assert got.score is None and 'sorted' in got.reason
  for half in ('valid', 'private'):
    missing = _score(name, whole.iloc[:3], answers, split=half)
    assert missing.score is None and '1 of 4 test ids' in missing.reason


@pytest.mark.parametrize(
  ('answers', 'mode', 'split', 'message'),
  [
    ('id,has_cactus\na,0\nb,1\n', 'strict', 'valid', 'no column split'),
    ('id,has_cactus,split\na,0,x\nb,1,y\n', 'strict', 'valid', 'no column'),
    (
      'id,has_cactus,split\na,0,valid\nb,1,valid\n',
      'strict',
      'private',
      'no row',
    ),
    (
      'id,has_cactus,split\na,0,valid\nb,1,valid\n',
      'strict',
      'test',
      'choose one',
    ),
    (
      'id,has_cactus,split\na,0,valid\nb,1,valid\n',
      'compat',
      'valid',
      'strict',
    ),
  ],
)
def test_a_split_that_there_is_not_is_an_error_of_the_call(
  answers, mode, split, message
):
  table = csv(answers)
  with pytest.raises(ValueError, match=message):
    graders.grade_tables(
      AUC, table[['id', 'has_cactus']], table, mode, Scope(split=split)
    )


@pytest.mark.parametrize(
  ('given', 'failed'),
  [
    (b'\xff\xfe', 'text'),
    (b'id,has_cactus\n"a', 'table'),
    (b'id,cactus\na,1\nb,0\n', 'columns'),
    (b'id,has_cactus\na,1\n', 'ids'),
    (b'id,has_cactus\na,1\na,0\n', 'ids'),
    (b'id,has_cactus\na,1\nc,0\n', 'ids'),
    (b'id,has_cactus\n', 'ids'),
    (b'id,has_cactus\na,1\nb,x\n', 'values'),
    (b'id,has_cactus\na,1\nb,0\n', ''),
  ],
)
def test_a_refusal_says_which_check_failed(tmp_path, given, failed):
  (tmp_path / 's.csv').write_bytes(given)
  (tmp_path / 'a.csv').write_text('id,has_cactus\na,1\nb,0\n')
  got = graders.grade_files(AUC, tmp_path / 's.csv', tmp_path / 'a.csv')
  assert got.failed == failed and bool(got.reason) is bool(failed)


# Metrics of any columns.


def _plain(metric, given, answers, *targets):
  return _score(
    metric, csv(given), csv(answers), id_column='row', targets=targets
  )


@pytest.mark.parametrize(
  ('metric', 'given', 'answers', 'want'),
  [
    # Two of three; 3.0 is 3.
    ('accuracy', 'row,t\n1,3.0\n2,x\n3,y\n', 'row,t\n1,3\n2,x\n3,z\n', 2 / 3),
    # A small negative number, rounded.
    ('accuracy', 'row,t\n1,-0.0\n2,-0\n3,-1\n', 'row,t\n1,0\n2,0\n3,-1\n', 1.0),
    # a: 2 * 1 / 3; b: 2 * 1 / 3.
    ('f1_macro', 'row,t\n1,a\n2,a\n3,b\n', 'row,t\n1,a\n2,b\n3,b\n', 2 / 3),
    # Of two pairs one is in order.
    ('roc_auc', 'row,t\n1,0.5\n2,0.4\n3,0.6\n', 'row,t\n1,0\n2,1\n3,1\n', 0.5),
    # Errors 3 and 4.
    ('rmse', 'row,t\n2,4\n1,3\n', 'row,t\n1,0\n2,0\n', math.sqrt(12.5)),
    ('mae', 'row,t\n2,-4\n1,3\n', 'row,t\n1,0\n2,0\n', 3.5),
    # -(log 1/2 + log 1/4) / 2.
    (
      'log_loss',
      'row,t\n1,0.5\n2,0.75\n',
      'row,t\n1,1\n2,0\n',
      1.5 * math.log(2),
    ),
  ],
)
def test_a_metric_of_one_column_has_the_value_of_its_formula(
  metric, given, answers, want
):
  got = _plain(metric, given, answers, 't')
  assert got.score == pytest.approx(want, abs=1e-5), got
  assert got.higher_is_better is graders.METRICS[metric]


def test_metrics_of_several_columns_are_averaged():
  given, answers = 'row,u,t\n1,1,3\n2,1,3\n', 'row,t,u\n1,0,0\n2,0,0\n'
  for metric, want in (('rmse', 2.0), ('mae', 2.0), ('accuracy', 0.0)):
    assert _plain(metric, given, answers, 't', 'u').score == want
  probabilities = 'row,a,b\n1,0.5,0.5\n2,0.25,0.75\n'
  true = 'row,a,b\n1,1,0\n2,1,0\n'
  got = _plain('log_loss', probabilities, true, 'a', 'b')
  assert got.score == pytest.approx(1.5 * math.log(2), abs=1e-5)
  got = _plain('log_loss', probabilities.replace('0.75', '0.5'), true, 'a', 'b')
  assert got.score is None and 'not to 1' in got.reason


@pytest.mark.parametrize('metric', graders.METRICS)
def test_a_metric_refuses_what_a_competition_refuses(metric):
  answers = 'row,t\n01,0\n02,1\n'
  for given, reason in (
    ('row,t\n01,0\n', 'missing'),
    ('row,t\n01,0\n02,\n', 'empty or NaN'),
    ('row,t\n01,0\n02,1\n03,1\n', 'not of the test set'),
    ('row,t,u\n01,0,1\n02,1,1\n', 'unexpected'),
  ):
    got = _plain(metric, given, answers, 't')
    assert got.score is None and reason in got.reason
  with pytest.raises(ValueError, match='needs the names of its columns'):
    graders.grade_tables(metric, csv(answers), csv(answers))
  with pytest.raises(ValueError, match='choose the mode strict'):
    graders.grade_tables(
      metric,
      csv(answers),
      csv(answers),
      'compat',
      Scope(id_column='row', targets=('t',)),
    )


def test_the_command_line_takes_a_half_and_columns(tmp_path, capsys):
  answers, given = tmp_path / 'a.csv', tmp_path / 's.csv'
  answers.write_text('row,t,split\n1,0,valid\n2,0,private\n')
  given.write_text('row,t\n1,3\n2,5\n')
  line = {'competition': 'mae', 'submission': 's.csv', 'answers': 'a.csv'}
  more = {'mode': 'strict', 'id': 'row', 'targets': ['t']}
  lines = [
    {**line, **more, 'split': 'valid'},
    {**line, **more, 'split': 'private'},
    {**line, **more},
    {**line, **more, 'mode': 'compat'},
    {**line, **more, 'targets': 't'},
    {**line, **more, 'split': 'test'},
  ]
  (tmp_path / 'in.jsonl').write_text('\n'.join(map(json.dumps, lines)))
  assert grade.main(['--jsonl', str(tmp_path / 'in.jsonl')]) == 1
  got = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
  assert [g['score'] for g in got] == [3.0, 5.0, 4.0, None, None, None]
  for answered, reason in zip(
    got[3:], ('mode strict', 'a list of strings', 'choose one of valid')
  ):
    assert reason in answered['reason']


def test_a_file_and_its_bytes_are_read_alike(tmp_path):
  """What training grades are bytes, what the command line grades a file."""
  for name, (answers, submission, _) in CASES.items():
    arrays = isinstance(answers, dict)
    path = tmp_path / ('s.npy' if arrays else 's.csv')
    hand_computed.write(path, submission)
    one = loaded.Loaded(graders.grader(name), answers)
    from_file = one.read(path, '')
    from_bytes = one.read(path.read_bytes(), path.suffix)
    if arrays:
      np.testing.assert_array_equal(from_file[''], from_bytes[''])
    else:
      pd.testing.assert_frame_equal(from_file, from_bytes)


def test_bytes_that_are_too_many_are_refused():
  one = loaded.Loaded(graders.grader(AUC), csv('id,has_cactus\na,1\nb,0\n'))
  with pytest.raises(ValueError, match='larger than 3 bytes'):
    one.read(b'1234', '.csv', 3)
  packed = io.BytesIO()
  np.savez_compressed(packed, pi=np.zeros(1 << 20))
  assert len(packed.getvalue()) < 1 << 15
  arrays = loaded.Loaded(graders.grader('CLRS'), {'pi': np.zeros(3)})
  with pytest.raises(ValueError, match='of at most 1000 and 1000000'):
    arrays.read(packed.getvalue(), '.npz', 1_000_000)
