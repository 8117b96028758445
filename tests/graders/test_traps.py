"""One test for each trap of the sources' data and graders (docs/tasks.md)."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from jaxagent import graders
from jaxagent.graders import metrics
from tests.graders import hand_computed
from tests.graders.hand_computed import CASES, csv


def _both(name, submission, answers):
  return [
    graders.grade_tables(name, submission, answers, mode)
    for mode in graders.MODES
  ]


def _files(tmp_path, name, submission, answers, mode='strict'):
  """Grades texts of CSV files."""
  paths = tmp_path / 's.csv', tmp_path / 'a.csv'
  for path, text in zip(paths, (submission, answers)):
    path.write_text(text)
  return graders.grade_files(name, *paths, mode)


def test_cifar10_columns_in_another_order_are_read_by_name():
  answers, submission, want = CASES['cifar10']
  turned = submission[['Unnamed: 0', *map(str, reversed(range(10)))]]
  compat, strict = _both('cifar10', turned, answers)
  # By position the places are 9 8 7 4, none of them right.
  assert (compat.score, strict.score) == (0.0, want)


def test_imdb_rows_of_other_ids_are_refused():
  answers, submission, want = CASES['imdb']
  more = pd.concat([submission, submission.assign(idx=range(4, 8))])
  compat, strict = _both('imdb', more, answers)
  assert compat.score == want and 'not of the test set' in strict.reason


def test_cifar10_a_row_of_nan_is_wrong_or_refused():
  answers, submission, _ = CASES['cifar10']
  submission = submission.copy()
  submission.loc[0, '0':] = np.nan
  compat, strict = _both('cifar10', submission, answers)
  assert compat.score == 0.5 and 'empty or NaN' in strict.reason


@pytest.mark.parametrize(
  ('text', 'reason'),
  [
    ('0\n3\n7\n8\n', '3 rows, expected 4'),
    ('node,0\n1,3\n2,7\n3,8\n4,39\n', 'unexpected columns'),
    ('0\n3\n7\n8.5\n39\n', 'whole numbers'),
  ],
)
def test_arxiv_rows_without_ids_must_be_as_many(tmp_path, text, reason):
  got = _files(tmp_path, 'ogbn-arxiv', text, '0\n3\n7\n7\n39\n')
  assert got.score is None and reason in got.reason


def test_house_price_pairs_by_id_not_by_row():
  answers, submission, want = CASES['house-price']
  turned = submission.iloc[::-1].reset_index(drop=True)
  compat, strict = _both('house-price', turned, answers)
  # (200000 + 5000 + 190000) / 3 by row.
  assert (compat.score, strict.score) == (131666.66667, want)
  compat, strict = _both('house-price', submission.iloc[:2], answers)
  assert np.isnan(compat.score) and '1 of 3 test ids' in strict.reason


def test_feedback_and_spaceship_pair_by_id_not_by_row():
  for name, order in (
    ('feedback', [1, 0]),
    ('spaceship-titanic:mlagentbench', [0, 3, 2, 1]),
  ):
    answers, submission, want = CASES[name]
    turned = submission.iloc[order].reset_index(drop=True)
    compat, strict = _both(name, turned, answers)
    assert compat.score != want and strict.score == want


def test_parkinsons_missing_truths_are_left_out_and_negatives_refused():
  name = 'amp-parkinsons-disease-progression-prediction'
  answers, submission, _ = CASES[name]
  answers = answers.assign(rating=[0, 1, np.nan])
  # 1 / 1.5 and 0 of two: 33.33333.
  assert [g.score for g in _both(name, submission, answers)] == [33.33333] * 2
  below = submission.assign(rating=[1, -1, 1])
  compat, strict = _both(name, below, answers)
  assert compat.score is None and 'zero or more' in strict.reason


def test_fathomnet_lists_as_python_prints_them_are_refused():
  answers, submission, want = CASES['fathomnet']
  lists = submission.assign(categories=['[1, 2]', '[7]'])
  compat, strict = _both('fathomnet', lists, answers)
  assert compat.score == 0.0 and 'separated by blanks' in strict.reason
  no_osd = submission.drop(columns='osd')
  compat, strict = _both('fathomnet', no_osd, answers)
  assert compat.score is None and strict.score == want


def test_fathomnet_one_category_each_is_text(tmp_path):
  """The source takes the column for numbers and breaks off."""
  answers = 'id,categories\nu-1,1 2\nu-2,7\n'
  given = 'id,categories,osd\nu-1,2,0\nu-2,7,1\n'
  # A hit of two, a hit of one: (1 / 2 + 1) / 2.
  assert _files(tmp_path, 'fathomnet', given, answers).score == 0.75
  got = _files(tmp_path, 'fathomnet', given, answers, 'compat')
  assert got.score is None and 'must be text' in got.reason


def test_fathomnet_counts_twenty_places_and_no_repeats():
  far = [str(i) for i in range(100, 120)]
  assert metrics.average_precision_at({'7'}, [*far, '7'], 20) == 0.0
  assert metrics.average_precision_at({'7'}, [*far[:19], '7'], 20) == 1 / 20
  assert metrics.average_precision_at({'7', '8'}, ['7'] * 20, 20) == 0.5


CONTRAILS = (
  'identify-contrails',
  'google-research-identify-contrails-reduce-global-warming',
)


@pytest.mark.parametrize('name', CONTRAILS)
def test_contrails_nineteen_digits_are_all_compared(tmp_path, name):
  """As floats, the first two ids of the case are the same number."""
  head = 'record_id,encoded_pixels,height,width\n'
  answers = head + ''.join(
    f'{i},1 4,4,4\n' for i in (1000216489776414077, 1000216489776414078)
  )
  assert _files(tmp_path, name, answers, answers).score == 1.0
  floats = answers.replace('1000216489776414077', '1.000216489776414e18')
  got = _files(tmp_path, name, floats, answers)
  assert got.score is None and '1.000216489776414e18' in got.reason
  wrong = answers.replace('4077', '4079')
  assert 'not of the test set' in _files(tmp_path, name, wrong, answers).reason


@pytest.mark.parametrize('name', CONTRAILS)
@pytest.mark.parametrize(
  ('mask', 'reason'),
  [
    ('', 'empty or NaN'),
    ('1', 'pairs'),
    ('15 9', 'beyond'),
    ('4 2 1 2', 'sorted'),
    ('1 4 2 2', 'overlap'),
    ('0 4', 'positive'),
  ],
)
def test_contrails_strict_refuses_what_is_no_mask(tmp_path, name, mask, reason):
  answers = 'record_id,encoded_pixels,height,width\n1,1 4,4,4\n2,-,4,4\n'
  given = f'record_id,encoded_pixels\n1,{mask}\n2,-\n'
  got = _files(tmp_path, name, given, answers)
  assert got.score is None and reason in got.reason


def test_contrails_mean_of_images_is_not_the_global_dice():
  answers = csv('record_id,encoded_pixels,height,width\n1,1 2,4,4\n2,-,4,4\n')
  nothing = answers.assign(encoded_pixels='-')
  # No pixel is found, but the second image is empty in both.
  assert _both(CONTRAILS[0], nothing, answers)[1].score == 0.5
  assert _both(CONTRAILS[1], nothing, answers)[1].score == 0.0
  compat, strict = _both(CONTRAILS[1], nothing, nothing)
  assert np.isnan(compat.score) and 'nan' in strict.reason


def test_contrails_overlapping_runs_count_once_in_mlagentbench():
  answers = csv('record_id,encoded_pixels,height,width\n1,1 4,4,4\n')
  twice = answers.assign(encoded_pixels='3 2 1 4')
  scores = [_both(name, twice, answers)[0].score for name in CONTRAILS]
  assert scores == [1.0, None]


def test_clrs_pointers_are_not_broadcast():
  answers = CASES['CLRS'][0]
  for name in ('CLRS', 'CLRS:mse'):
    one = {'': np.array(1)}
    assert graders.grade_arrays(name, one, answers, 'compat').score is not None
    got = graders.grade_arrays(name, one, answers)
    assert got.score is None and 'shape ()' in got.reason
    for bad in (3, -1, 0.5):
      got = graders.grade_arrays(name, {'': answers[''] * 0 + bad}, answers)
      assert got.score is None and 'from 0 to 2' in got.reason


def test_babylm_probabilities_above_one_gain_nothing():
  answers, submission, want = CASES['babylm']
  large = {'': submission[''] * 1e6}
  assert graders.grade_arrays('babylm', large, answers, 'compat').score == want
  got = graders.grade_arrays('babylm', large, answers)
  assert got.score is None and 'not to 1' in got.reason
  # Of a sum within the tolerance nothing is gained either.
  near = {'': submission[''] * 1.0009}
  assert graders.grade_arrays('babylm', near, answers).score == want
  never = {'': np.array([[0.0, 1.0], [0.5, 0.5]])}
  compat = graders.grade_arrays('babylm', never, answers, 'compat')
  assert compat.score == float('inf')
  got = graders.grade_arrays('babylm', never, answers)
  assert got.score is None and 'above 0' in got.reason


def test_insults_have_commas_ends_of_lines_and_repeats(tmp_path):
  """Rows of an equal comment pair in the order in which they stand."""
  texts = ['"a, ""b"""', '"c\nd"', 'NA', 'twice', '00', 'twice', '0']
  labels = [0, 1, 0, 1, 0, 0, 1]
  header = 'Comment,Insult\n'
  rows = [f'{t},{v}\n' for t, v in zip(texts, labels)]
  answers = header + ''.join(rows)
  # Moved, but for the order of the two equal comments.
  given = header + ''.join(rows[i] for i in (6, 3, 0, 2, 5, 1, 4))
  for name in (
    'detecting-insults-in-social-commentary',
    'detecting-insults-in-social-commentary:accuracy',
  ):
    assert _files(tmp_path, name, given, answers).score == 1.0
    once = header + ''.join(rows[:5] + rows[6:])
    got = _files(tmp_path, name, once, answers)
    assert got.score is None and '1 of 7 test ids are missing' in got.reason
    thrice = header + ''.join([*rows, 'twice,1\n'])
    got = _files(tmp_path, name, thrice, answers)
    assert got.score is None and 'more than 2 times' in got.reason


def test_insults_auc_is_the_default_and_accuracy_has_a_name():
  answers = csv('Comment,Insult\na,0\nb,1\nc,1\n')
  given = answers.assign(Insult=[0.1, 0.3, 0.4])
  name = 'detecting-insults-in-social-commentary'
  assert _both(name, given, answers)[1].score == 1.0
  assert _both(f'{name}:accuracy', given, answers)[1].score == 0.33333


def test_gesture_ids_keep_their_zeros(tmp_path):
  name = 'multi-modal-gesture-recognition'
  answers = 'Id,Sequence\n0300,1 2\n0301,7\n'
  assert _files(tmp_path, name, answers, answers).score == 0.0
  bare = answers.replace('0300', '300')
  assert _files(tmp_path, name, bare, answers, 'compat').score == 0.0
  got = _files(tmp_path, name, bare, answers)
  assert got.score is None and "ids are text, and one is '0300'" in got.reason


def test_json_lines_are_graded_as_tables_are(tmp_path):
  answers, submission, want = CASES['fathomnet']
  truth, path = tmp_path / 'a.csv', tmp_path / 's.jsonl'
  answers.to_csv(truth, index=False)
  path.write_text(submission.to_json(orient='records', lines=True))
  assert graders.grade_files('fathomnet', path, truth).score == want
  # A number is the text of it; a list is none.
  rows = [{'id': 'u-1', 'categories': 2}, {'id': 'u-2', 'categories': 7}]
  path.write_text('\n'.join(map(json.dumps, rows)))
  assert graders.grade_files('fathomnet', path, truth).score == 0.75
  rows[0]['categories'] = [1, 2]
  path.write_text('\n'.join(map(json.dumps, rows)))
  assert 'list' in graders.grade_files('fathomnet', path, truth).reason


def test_rows_longer_than_the_header_are_refused(tmp_path):
  """pandas takes the first cells for an index, and what follows moves."""
  answers = 'Id,SalePrice\n1,100\n2,200\n'
  given = 'Id,SalePrice\nx,1,100\ny,2,200\n'
  assert _files(tmp_path, 'house-price', given, answers, 'compat').reason == ''
  got = _files(tmp_path, 'house-price', given, answers)
  assert got.score is None and 'more cells than the header' in got.reason


def test_a_link_to_the_answers_is_refused(tmp_path):
  truth, link = tmp_path / 'a.csv', tmp_path / 's.csv'
  hand_computed.write(truth, CASES['house-price'][0])
  link.symlink_to(truth)
  got = graders.grade_files('house-price', link, truth)
  assert got.score is None and 'symbolic link' in got.reason


def test_a_sequence_of_millions_of_signs_is_refused_at_once(tmp_path):
  """Its edit distance would take minutes."""
  answers = 'Id,Sequence\n0300,1 2\n0301,7\n'
  given = f'Id,Sequence\n0300,{"1 " * 60_000}\n0301,7\n'
  got = _files(tmp_path, 'multi-modal-gesture-recognition', given, answers)
  assert got.score is None and '120000 characters' in got.reason


def test_quest_a_column_that_is_all_alike_is_left_out_in_strict():
  answers = pd.DataFrame(
    {'qa_id': [1, 2, 3], 'a': [0.0, 0.5, 1.0], 'question_type_spelling': 0.0}
  )
  submission = answers.assign(
    a=[0.1, 0.3, 0.2], question_type_spelling=[0.2, 0.1, 0.3]
  )
  compat, strict = _both('google-quest-challenge', submission, answers)
  assert compat.score != compat.score  # NaN
  assert strict.score == 0.5  # ranks 1 3 2 against 1 2 3
  alike = submission.assign(a=0.1)
  assert _both('google-quest-challenge', alike, answers)[1].score is None
