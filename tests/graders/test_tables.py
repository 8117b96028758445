"""Tables are read by value: names that look missing, JSON lines, grades."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from jaxagent import graders
from jaxagent.graders import metrics, tables

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
    '\n'.join(json.dumps(r, ensure_ascii=False) for r in rows) + '\n\n'
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
