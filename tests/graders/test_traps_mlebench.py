"""One test for each trap of mle-bench's own graders (docs/tasks.md): compat and strict."""

from __future__ import annotations

import io
import math

import pandas as pd
import pytest

from jaxagent import graders
from jaxagent.graders import compat


def table(text: str) -> pd.DataFrame:
  return pd.read_csv(io.StringIO(text))


def both(name: str, given: pd.DataFrame, truth: pd.DataFrame):
  """(compat, strict) grades."""
  return [
    graders.grade_tables(name, given, truth, mode) for mode in graders.MODES
  ]


def test_conductors_are_paired_by_row_in_the_source_and_by_id_in_strict():
  name = 'nomad2018-predict-transparent-conductors'
  head = 'id,formation_energy_ev_natom,bandgap_energy_ev\n'
  truth = table(f'{head}1,0.0,1\n2,0.5,4\n')
  turned = truth.iloc[::-1].reset_index(drop=True)
  source, strict = both(name, turned, truth)
  assert source.score > 0.5 and strict.score == 0.0


def test_rows_of_toxic_comments_that_are_all_minus_one_do_not_count():
  name = 'jigsaw-toxic-comment-classification-challenge'
  columns = ['toxic', 'severe_toxic', 'obscene', 'threat', 'insult']
  columns += ['identity_hate']
  ids = ['a', 'b', 'c', 'd']
  rows = [[0] * 6, [1] * 6, [-1] * 6, [-1] * 6]
  truth = pd.DataFrame(rows, columns=columns).assign(id=ids)
  truth = truth[['id', *columns]]
  given = truth.assign(**{c: [0.1, 0.9, 1.0, 0.0] for c in columns})
  assert [g.score for g in both(name, given, truth)] == [1.0, 1.0]


def test_columns_of_toxic_comments_are_read_by_name_in_strict():
  name = 'jigsaw-toxic-comment-classification-challenge'
  truth = table('id,toxic,threat\na,0,1\nb,1,1\nc,0,0\nd,1,0\n')
  given = truth[['id', 'threat', 'toxic']]
  source, strict = both(name, given, truth)
  assert (source.score, strict.score) == (0.5, 1.0)


def test_a_constant_has_no_correlation_with_patents_and_is_refused():
  name = 'us-patent-phrase-to-phrase-matching'
  truth = table('id,score\na,0.0\nb,0.5\nc,1.0\n')
  source, strict = both(name, truth.assign(score=0.5), truth)
  assert math.isnan(source.score)
  assert strict.score is None and 'may all be equal' in strict.reason


def test_one_grade_for_all_essays_has_a_kappa_of_zero_in_strict():
  name = 'learning-agency-lab-automated-essay-scoring-2'
  truth = table('essay_id,score\na,1\nb,3\nc,6\n')
  source, strict = both(name, truth.assign(score=3), truth)
  assert (source.score, strict.score) == (0.0, 0.0)


def test_only_the_last_three_weeks_of_a_patient_count_and_all_must_be_there():
  name = 'osic-pulmonary-fibrosis-progression'
  weeks = [1, 9, 10, 11]
  truth = pd.DataFrame(
    {
      'Patient': 'P',
      'Patient_Week': [f'P_{week}' for week in weeks],
      'FVC': [2000.0, 2100, 2200, 2300],
    }
  )
  given = truth[['Patient_Week', 'FVC']].assign(Confidence=70.0)
  far = given.assign(FVC=[9000.0, 2100, 2200, 2300])
  near = [g.score for g in both(name, given, truth)]
  assert near == [g.score for g in both(name, far, truth)]
  source, strict = both(name, given.iloc[:2], truth)
  assert source.score == near[0]
  assert strict.score is None and 'ids are missing' in strict.reason


def test_predictions_of_unintended_bias_are_cut_at_a_half():
  name = 'jigsaw-unintended-bias-in-toxicity-classification'
  rows = 8
  truth = pd.DataFrame(
    {
      'id': range(rows),
      'toxicity': [0.0, 0.9] * (rows // 2),
      **{
        identity: [0, 0, 1, 1] * (rows // 4) for identity in compat.IDENTITIES
      },
    }
  )
  given = truth[['id']].assign(prediction=[0.0, 0.9] * (rows // 2))
  lower = given.assign(prediction=given['prediction'] / 2)
  assert [g.score for g in both(name, given, truth)] == [1.0, 1.0]
  # The same order of comments, all below a half: no AUC would differ.
  assert [g.score for g in both(name, lower, truth)] == [0.5, 0.5]


@pytest.mark.parametrize(
  ('ids', 'score'), [('w1 w2 w3 w4 w5', 1.0), ('w5 w1 w2 w3 w4', 0.5)]
)
def test_five_whales_a_picture_are_ranked(ids, score):
  name = 'whale-categorization-playground'
  truth = table('Image,Id\na.jpg,w1\n')
  given = truth.assign(Id=ids)
  assert [g.score for g in both(name, given, truth)] == [score, score]


def test_a_sixth_whale_does_not_count():
  name = 'whale-categorization-playground'
  truth = table('Image,Id\na.jpg,w6\n')
  given = truth.assign(Id='w1 w2 w3 w4 w5 w6')
  assert [g.score for g in both(name, given, truth)] == [0.0, 0.0]


def test_rows_of_authors_must_sum_to_one():
  name = 'spooky-author-identification'
  truth = table('id,EAP,HPL,MWS\na,1,0,0\nb,0,0,1\n')
  given = truth.assign(EAP=[0.8, 0.2], HPL=[0.1, 0.2], MWS=[0.3, 0.6])
  assert [g.score for g in both(name, given, truth)] == [None, None]


def test_a_probability_of_zero_costs_much_and_is_finite():
  name = 'spooky-author-identification'
  truth = table('id,EAP,HPL,MWS\na,1,0,0\nb,0,0,1\n')
  wrong = truth.assign(EAP=[0, 1], HPL=[1, 0], MWS=[0, 0])
  for grade in both(name, wrong, truth):
    assert 30 < grade.score < 40


def test_an_empty_selection_of_words_is_an_answer():
  name = 'tweet-sentiment-extraction'
  truth = table('textID,selected_text\na,so good\nb,bad\n')
  given = truth.assign(selected_text=[None, 'bad'])
  assert [g.score for g in both(name, given, truth)] == [0.5, 0.5]


def test_two_empty_selections_are_equal_in_strict():
  """The source divides by zero, and the right answers would have no score."""
  name = 'tweet-sentiment-extraction'
  truth = table('textID,selected_text\na,so good\nb,\n')
  compat, strict = both(name, truth, truth)
  assert 'ZeroDivisionError' in compat.reason and strict.score == 1.0
  given = truth.assign(selected_text=[None, 'bad'])
  assert [g.score for g in both(name, given, truth)] == [0.0, 0.0]


def test_a_class_of_no_row_may_be_submitted():
  name = 'tabular-playground-series-dec-2021'
  truth = table('Id,Cover_Type\n1,1\n2,2\n3,2\n')
  given = truth.assign(Cover_Type=[5, 2, 2])
  assert [g.score for g in both(name, given, truth)] == [0.66667, 0.66667]


def test_birds_are_paired_by_recording_and_species():
  name = 'mlsp-2013-birds'
  truth = table('Id,Probability\n100,0\n101,1\n1100,1\n1101,0\n')
  turned = truth.iloc[::-1].reset_index(drop=True)
  assert [g.score for g in both(name, turned, truth)] == [1.0, 1.0]
