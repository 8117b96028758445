"""Tables are read by value: names that look missing, JSON lines, grades."""

from __future__ import annotations

import json
import time

import numpy as np
import pandas as pd
import pytest

from jaxagent import graders
from jaxagent.graders import loaded, metrics, tables

NAMES = ('NA', 'null', 'nan', 'None', 'N/A', '#N/A', 'NaN')


def _graded(tmp_path, competition, submission, answers, mode='strict'):
  for name, table in (('s.csv', submission), ('a.csv', answers)):
    table.to_csv(tmp_path / name, index=False)
  return graders.grade_files(
    competition, tmp_path / 's.csv', tmp_path / 'a.csv', mode
  )


@pytest.mark.parametrize('name', NAMES)
def test_an_id_that_looks_missing_is_an_id(tmp_path, name):
  answers = pd.DataFrame({'id': [name, 'b', 'c'], 'has_cactus': [0, 1, 1]})
  good = answers.assign(has_cactus=[0.1, 0.8, 0.9])
  found = _graded(tmp_path, 'aerial-cactus-identification', good, answers)
  assert (found.score, found.reason) == (1.0, '')


@pytest.mark.parametrize('name', NAMES)
def test_a_text_that_looks_missing_is_a_text(tmp_path, name):
  """mle-bench reads it as an empty one, which no answer equals."""
  answers = pd.DataFrame(
    {'textID': ['a', 'b'], 'selected_text': [name, 'good']}
  )
  other = answers.assign(selected_text=['x', 'good'])
  for given, want in ((answers, 1.0), (other, 0.5)):
    found = _graded(tmp_path, 'tweet-sentiment-extraction', given, answers)
    assert (found.score, found.reason) == (want, '')


def test_an_empty_id_is_missing_still(tmp_path):
  answers = pd.DataFrame({'id': ['a', 'b'], 'has_cactus': [0, 1]})
  bad = pd.DataFrame({'id': ['a', ''], 'has_cactus': [0.1, 0.9]})
  found = _graded(tmp_path, 'aerial-cactus-identification', bad, answers)
  assert found.score is None and '1 ids are empty' in found.reason


@pytest.mark.parametrize('cell', ['', 'NaN', 'NA'])
def test_a_missing_number_is_one_still(tmp_path, cell):
  answers = pd.DataFrame({'id': ['a', 'b'], 'has_cactus': [0, 1]})
  bad = pd.DataFrame({'id': ['a', 'b'], 'has_cactus': ['0.1', cell]})
  found = _graded(tmp_path, 'aerial-cactus-identification', bad, answers)
  assert found.score is None


def test_json_lines_are_read_by_value(tmp_path):
  """Where pandas' reader moves most floats, and makes numbers and dates of texts."""
  rng = np.random.default_rng(0)
  rows = [
    {'id': f'{i:05d}', 'created_at': '2021-03-04', 'p': float(rng.random())}
    for i in range(500)
  ]
  rows[3]['text'] = 'a\u2028b'
  path = tmp_path / 'a.jsonl'
  path.write_text(
    '\n'.join(json.dumps(r, ensure_ascii=False) for r in rows) + '\n\n',
    'utf-8-sig',  # its mark is no part of the first line
  )
  table = tables.read_table(path)
  assert list(table['p']) == [r['p'] for r in rows]
  assert list(table['id'][:4]) == ['00000', '00001', '00002', '00003']
  assert set(table['created_at']) == {'2021-03-04'}
  assert table['text'][3] == 'a\u2028b'


@pytest.mark.parametrize('text', ['[1, 2]\n', '{"a": 1}\n{\n', '3\n'])
def test_other_lines_are_refused(tmp_path, text):
  path = tmp_path / 'a.jsonl'
  path.write_text(text)
  with pytest.raises(tables.InvalidSubmission, match='not a readable table'):
    tables.read_table(path)


def test_kappa_of_a_reward_is_by_the_grades_distance(tmp_path):
  """A grade that nobody gives brings its neighbours no nearer to each other."""
  true, pred = [1, 2, 6, 6], [1, 1, 6, 2]
  assert metrics.quadratic_kappa(true, pred) == pytest.approx(0.6923076923)
  assert metrics.grade_kappa(true, pred) == pytest.approx(0.6136363636)
  competition = 'learning-agency-lab-automated-essay-scoring-2'
  answers = pd.DataFrame({'essay_id': list('abcd'), 'score': true})
  given = answers.assign(score=pred)
  for mode, want in (('compat', 0.69231), ('strict', 0.61364)):
    assert _graded(tmp_path, competition, given, answers, mode).score == want


def test_kappa_equals_scikit_learns_where_all_grades_occur():
  from sklearn.metrics import cohen_kappa_score

  rng = np.random.default_rng(1)
  for _ in range(20):
    true, pred = rng.integers(1, 7, 40), rng.integers(1, 7, 40)
    want = cohen_kappa_score(
      true, pred, weights='quadratic', labels=range(1, 7)
    )
    assert metrics.grade_kappa(true, pred) == pytest.approx(want, abs=1e-12)
  assert np.isnan(metrics.grade_kappa([3, 3], [3, 3]))


def _plain(metric: str, values, *, mode: str = 'strict') -> loaded.Loaded:
  scope = graders.Scope(id_column='id', targets=('y',))
  truth = pd.DataFrame({'id': list('abcd'), 'y': values})
  return loaded.Loaded(graders.grader(metric, scope), truth, mode)


def _refusal(answers: loaded.Loaded, data: bytes, suffix: str) -> str:
  with pytest.raises(tables.InvalidSubmission) as caught:
    answers.aligned(answers.read(data, suffix))
  str(caught.value).encode()  # half a character would break every record
  return f'{caught.value.check}: {caught.value}'


def test_a_table_of_very_many_columns_is_refused_before_it_is_built():
  """pandas takes minutes for them, in a square of their number."""
  answers = _plain('rmse', [1.0, 2.0, 3.0, 4.0])
  wide = [b'y,' * 300_000, b' \n\nid,y\n' + b'1,' * 300_000, b',' * 10**6]
  names = [json.dumps({f'k{i}': 1}).encode() for i in range(5000)]
  for data, suffix in [
    *((w, '.csv') for w in wide),
    (b'\n'.join(names), '.jsonl'),
  ]:
    start = time.process_time()
    assert 'columns; at most 1000' in _refusal(answers, data, suffix)
    assert time.process_time() - start < 3


def test_blank_lines_alone_are_refused_at_once():
  answers = _plain('rmse', [1.0, 2.0, 3.0, 4.0])
  good = b'id,y\n' + b'\n' * 900 + b'a,1\nb,2\nc,3\nd,4\n'
  assert answers.score(answers.aligned(answers.read(good, '.csv'))) == 0.0
  for data in (b'\n' * 10**7, b'id,y\n' + b' \n' * 10**6):
    start = time.process_time()
    assert 'blank lines' in _refusal(answers, data, '.csv')
    assert time.process_time() - start < 1


def test_lines_with_hardly_a_key_in_common_are_refused():
  """Few bytes would name billions of cells."""
  answers = _plain('rmse', [1.0, 2.0, 3.0, 4.0])
  lines = [json.dumps({f'k{i % 900}': 1}).encode() for i in range(9000)]
  found = _refusal(answers, b'\n'.join(lines), '.jsonl')
  assert found.startswith('table') and 'different keys' in found


def test_a_nul_byte_is_refused_as_in_version_1():
  answers = _plain('accuracy', ['x', 'y', 'x', 'y'])
  data = b'id,y\na,x\0q\nb,y\nc,x\nd,y\n'
  assert _refusal(answers, data, '.csv').startswith('text')


@pytest.mark.parametrize(
  'first',
  [
    '{"id": "b", "id": "a", "y": "x"}',
    '{"id": "a", "y": "\\ud800"}',
    '{"id": "\\ud800", "y": "x"}',
    '{"id": "a", "y": "x", "\\udfff": 1}',
  ],
)
def test_a_key_twice_and_half_a_character_are_refused(first):
  rest = '\n{"id": "b", "y": "y"}\n{"id": "c", "y": "x"}\n{"id": "d", "y": "y"}'
  for metric in ('accuracy', 'rmse'):
    answers = _plain(metric, [1, 2, 3, 4])
    found = _refusal(answers, (first + rest).encode(), '.jsonl')
    assert found.startswith('table')


def test_true_is_a_probability_and_no_other_number():
  data = b'id,y\na,True\nb,False\nc,True\nd,True\n'
  for metric, graded in (('roc_auc', True), ('rmse', False), ('mae', False)):
    answers = _plain(metric, [1, 0, 1, 1])
    if graded:
      assert answers.score(answers.aligned(answers.read(data, '.csv'))) == 1.0
    else:
      assert 'True or False' in _refusal(answers, data, '.csv')
  mixed = b'{"id":"a","y":true}\n{"id":"b","y":2}\n{"id":"c","y":3}\n'
  data = mixed + b'{"id":"d","y":4}'
  answers = _plain('rmse', [1, 2, 3, 4])
  assert 'True or False' in _refusal(answers, data, '.jsonl')


def test_a_very_long_id_is_compared_with_many_in_a_moment():
  ids = [f'row{i}' for i in range(20_000)]
  truth = pd.DataFrame({'id': ids, 'y': 1.0})
  scope = graders.Scope(id_column='id', targets=('y',))
  answers = loaded.Loaded(graders.grader('rmse', scope), truth, 'strict')
  given = truth.assign(id=[*ids[:-1], ' ' + '0' * 500_000])
  start = time.process_time()
  with pytest.raises(tables.InvalidSubmission, match='not of the test set'):
    answers.aligned(given)
  assert time.process_time() - start < 2
