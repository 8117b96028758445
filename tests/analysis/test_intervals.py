"""Intervals by the jackknife: against leaving each out by hand, and their coverage."""

import math

import numpy as np
import pytest
from scipy import stats

from jaxagent.analysis import evaluation, intervals


@pytest.mark.parametrize('higher', [True, False])
@pytest.mark.parametrize('n, k', [(2, 1), (2, 2), (5, 3), (9, 9), (16, 8)])
def test_best_of_k_without_each_run_is_that_of_the_others(n, k, higher):
  scores = np.random.default_rng(n).integers(0, 6, n) * 1.0
  point, left = intervals.of_best(k, higher)(scores)
  assert point == pytest.approx(evaluation.best_at_k(scores, k, higher))
  by_hand = [
    evaluation.best_at_k(np.delete(scores, i), min(k, n - 1), higher)
    for i in range(n)
  ]
  assert sorted(left) == pytest.approx(sorted(by_hand))


def test_means_without_each_trajectory_leave_out_all_of_its_steps():
  runs = [(1.0, 2.0), (), (6.0,), (0.0, 0.0, 3.0)]
  point, left = intervals.of_steps(runs)
  assert point == 2.0
  assert list(left) == pytest.approx([9 / 4, 6 / 5, 3.0])
  assert math.isnan(intervals.of_steps([(), ()])[0])


def test_of_one_task_it_is_students_interval():
  values = [1.0, 4.0, 2.0, 9.0]
  found = intervals.interval({'a': values}, intervals.of_means)
  error = np.std(values, ddof=1) / 2
  assert found['mean'] == 4.0 and found['n'] == 4
  assert found['high'] - 4.0 == pytest.approx(3.182446305 * error)  # t, 3
  assert 4.0 - found['low'] == pytest.approx(3.182446305 * error)


def test_tasks_weigh_the_same_and_one_without_runs_nothing():
  runs = {'a': [0.0] * 10, 'b': [1.0, 1.0], 'c': []}
  found = intervals.interval(runs, intervals.of_means)
  # Within each task nothing varies: no width, and the mean of the two means.
  assert found == {'mean': 0.5, 'low': 0.5, 'high': 0.5, 'n': 12}


def test_of_nothing_there_is_no_interval():
  none = {'mean': None, 'low': None, 'high': None, 'n': 0}
  assert intervals.interval({}, intervals.of_means) == none
  assert intervals.interval({'a': [()]}, intervals.of_steps) == none
  one = intervals.interval({'a': [3.0]}, intervals.of_means)
  assert one == {'mean': 3.0, 'low': 3.0, 'high': 3.0, 'n': 1}


def test_a_task_of_one_run_is_as_uncertain_as_a_run_of_the_others():
  several = {'a': [1.0, 3.0, 2.0, 6.0], 'b': [0.0, 2.0]}
  found = intervals.interval(several | {'c': [1.0]}, intervals.of_means)
  error = (
    np.sqrt(
      np.var([1, 3, 2, 6], ddof=1) / 4
      + np.var([0, 2], ddof=1) / 2
      + np.mean([np.var([1, 3, 2, 6], ddof=1), np.var([0, 2], ddof=1)])
    )
    / 3
  )
  assert (found['high'] - found['low']) / 2 > 1.96 * error


def test_ends_stay_within_what_the_figure_can_be():
  runs = {'a': [(True,)] * 9 + [(False,)]}
  found = intervals.interval(runs, intervals.of_steps, within=(0.0, 1.0))
  assert found['high'] == 1.0 and 0 < found['low'] < 0.9


@pytest.mark.parametrize('bad', [float('nan'), float('inf')])
def test_what_is_not_finite_is_refused(bad):
  for figure in (intervals.of_means, intervals.of_best(1)):
    with pytest.raises(ValueError, match='only finite numbers'):
      intervals.interval({'a': [1.0, bad]}, figure)
  with pytest.raises(ValueError, match='level'):
    intervals.interval({}, intervals.of_means, level=1.0)


@pytest.mark.parametrize(
  'hits, n', [(0, 16), (1, 16), (7, 9), (16, 16), (1, 1)]
)
def test_the_interval_of_a_share_is_that_of_scipy(hits, n):
  found = intervals.share(hits, n)
  wanted = stats.binomtest(hits, n).proportion_ci(method='wilson')
  assert found['low'] == pytest.approx(wanted.low, abs=1e-12)
  assert found['high'] == pytest.approx(wanted.high, abs=1e-12)
  assert found['low'] <= found['mean'] == hits / n <= found['high']


def test_intervals_of_a_share_of_16_runs_hold_the_true_value():
  """Also of shares near 0 and 1, where most often no run or each one is a hit."""
  ends = [intervals.share(hits, 16) for hits in range(17)]
  held = []
  for share in np.arange(1, 100) / 100:
    chances = stats.binom.pmf(range(17), 16, share)
    holds = [one['low'] <= share <= one['high'] for one in ends]
    held.append(float(chances @ holds))
  assert 0.93 <= np.mean(held) <= 0.97
  assert min(held) > 0.83


def test_intervals_of_six_tasks_hold_the_true_value():
  """Of the mean over steps, whose trajectories differ, and of best@8 of 16."""
  rng, held, of = np.random.default_rng(0), {'steps': 0, 'best': 0}, 400
  truth = {'steps': 0.0, 'best': 1.4236}  # of 8 normal values
  for _ in range(of):
    runs = {
      task: [m + rng.normal(size=10) for m in rng.normal(size=16)]
      for task in range(6)
    }
    scores = dict(enumerate(rng.normal(size=(6, 16))))
    found = {
      'steps': intervals.interval(runs, intervals.of_steps),
      'best': intervals.interval(scores, intervals.of_best(8)),
    }
    for name, one in found.items():
      held[name] += one['low'] <= truth[name] <= one['high']
  assert all(0.91 <= count / of <= 0.98 for count in held.values()), held
