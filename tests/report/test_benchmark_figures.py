"""Success rate, improvement and best@K, counted by hand."""

import itertools
import math

import pytest

from jaxagent.analysis import benchmark_figures as bf
from tests import made


def _record(*scores, **more):
  return made.evaluated(*(made.step(score_after=s) for s in scores), **more)


@pytest.mark.parametrize('higher, best', [(True, 0.9), (False, 0.2)])
def test_final_is_the_last_valid_and_best_the_best(higher, best):
  got = bf.scores_of(_record(0.2, None, 0.9, 0.5, None), higher)
  assert got == {'final': 0.5, 'best_by_validation': best}


def test_without_a_submission_there_is_no_score():
  none = {'final': None, 'best_by_validation': None}
  assert bf.scores_of(_record(None), True) == none
  assert bf.scores_of(_record(), True) == none


@pytest.mark.parametrize(
  'score, m_init, higher, wins',
  [
    (0.55, 0.5, True, True),  # exactly 10 %
    (0.54, 0.5, True, False),
    (0.4, 0.5, True, False),
    (9.0, 10.0, False, True),
    (9.1, 10.0, False, False),
    (None, 0.5, True, False),
    (-0.9, -1.0, True, True),  # of the magnitude
    (-1.1, -1.0, True, False),
    (1e-6, 0.0, True, True),  # of nothing, anything is enough
    (0.0, 0.0, True, False),
    (-1e-6, 0.0, False, True),
    (1e-6, 0.0, False, False),
  ],
)
def test_success(score, m_init, higher, wins):
  assert bf.succeeded(score, m_init, higher) is wins


def test_improvement_is_undefined_for_a_starter_at_zero():
  assert bf.improvement(0.3, 0.0, True) is None
  assert bf.improvement(None, 0.5, True) is None
  assert bf.improvement(-0.5, -1.0, True) == pytest.approx(0.5)


def test_a_run_without_submission_fails_but_does_not_weigh_on_the_mean():
  got = bf.task_figures([0.6, None, 0.5, 0.7], 0.5, True)
  assert (got['runs'], got['submissions']) == (4, 3)
  assert got['success_rate']['mean'] == 0.5
  assert got['mean_improvement']['mean'] == pytest.approx(0.6 / 3)
  assert got['mean_improvement']['n'] == 3
  for part in (got['success_rate'], got['mean_improvement']):
    assert part['low'] < part['mean'] < part['high']


@pytest.mark.parametrize('score, rate', [(0.5, 0.0), (0.6, 1.0)])
def test_runs_that_all_fail_or_all_succeed_leave_the_rate_uncertain(
  score, rate
):
  found = bf.task_figures([score] * 16, 0.5, True)['success_rate']
  assert found['mean'] == rate
  assert found['high'] - found['low'] == pytest.approx(0.194, abs=1e-3)
  scores, starters = {'a': [score] * 16}, {'a': (0.5, True)}
  assert bf.averages(scores, starters)['success_rate'] == found


@pytest.mark.parametrize('higher', [True, False])
def test_best_of_k_is_the_mean_over_all_choices(higher):
  scores = [3.0, 1.0, None, 2.0, 5.0, 4.0]
  filled = [2.5 if s is None else s for s in scores]
  curve = bf.task_figures(scores, 2.5, higher)['best']
  assert list(curve) == [1, 2, 4]
  pick = max if higher else min
  for k, found in curve.items():
    chosen = [pick(c) for c in itertools.combinations(filled, k)]
    assert found['mean'] == pytest.approx(sum(chosen) / len(chosen))
    assert found['low'] < found['mean'] < found['high']


def test_one_run_has_no_interval():
  got = bf.task_figures([0.6], 0.5, True)
  assert got['best'] == {1: {'mean': 0.6, 'low': None, 'high': None, 'n': 1}}
  assert got['success_rate'] == {
    'mean': 1.0,
    'low': None,
    'high': None,
    'n': 1,
  }
  none = bf.task_figures([None, None], 0.5, True)
  assert none['mean_improvement']['mean'] is None
  assert none['success_rate']['mean'] == 0.0


def test_kinds_differ_where_a_run_falls_back():
  records = [_record(0.7, 0.5), _record(0.5, 0.6)]
  got = bf.kinds_figures(records, 0.5, True)
  assert got['final']['success_rate']['mean'] == 0.5
  assert got['best_by_validation']['success_rate']['mean'] == 1.0


def test_tasks_weigh_the_same():
  got = bf.averages(
    {'a': [0.6], 'b': [5.0, 10.0, 10.0, 10.0], 'zero': [0.1, 0.0]},
    {'a': (0.5, True), 'b': (10.0, False), 'zero': (0.0, True)},
  )
  assert got['success_rate']['mean'] == pytest.approx((1 + 0.25 + 0.5) / 3)
  assert got['mean_improvement']['mean'] == pytest.approx((0.2 + 0.125) / 2)


@pytest.mark.parametrize('bad', [math.nan, math.inf, 'x', True])
def test_scores_that_are_not_finite_are_refused(bad):
  with pytest.raises(ValueError, match='finite'):
    bf.task_figures([0.5, bad], 0.5, True)
  with pytest.raises(ValueError, match='m_init'):
    bf.succeeded(0.5, bad, True)
  with pytest.raises(ValueError, match=r'steps\[0\].score_after'):
    bf.scores_of(_record(bad), True)


def test_nothing_given():
  with pytest.raises(ValueError, match='no runs'):
    bf.task_figures([], 0.5, True)
  with pytest.raises(ValueError, match='wine/0 is missing'):
    bf.kinds_figures([_record(0.5, missing=True)], 0.5, True)
  with pytest.raises(ValueError, match="no starter for 'a'"):
    bf.averages({'a': [0.5]}, {})
  with pytest.raises(ValueError, match='task a'):
    bf.averages({'a': []}, {'a': (0.5, True)})
