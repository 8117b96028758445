"""Statistics against brute force and by their identities."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxagent.analysis import evaluation as ev

SCALES = {
  'a': ev.Scale(0.5, 0.9, True),
  'b': ev.Scale(10.0, 4.0, False),
}


def test_docstring_example():
  assert ev.best_at_k([1, 2, 3], 2) == pytest.approx(8 / 3)


@settings(max_examples=40, deadline=None)
@given(
  st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=7),
  st.data(),
)
def test_best_at_k_is_the_mean_over_all_subsets(scores, data):
  k = data.draw(st.integers(1, len(scores)))
  subsets = list(itertools.combinations(scores, k))
  high = sum(max(s) for s in subsets) / len(subsets)
  low = sum(min(s) for s in subsets) / len(subsets)
  assert ev.best_at_k(scores, k) == pytest.approx(high, abs=1e-6)
  assert ev.best_at_k(scores, k, False) == pytest.approx(low, abs=1e-6)


def test_best_at_k_up_to_128_of_many():
  scores = np.random.default_rng(0).normal(size=5000)
  curve = ev.best_curve(scores)
  assert list(curve) == [1, 2, 4, 8, 16, 32, 64, 128]
  assert curve[1] == pytest.approx(scores.mean())
  assert all(np.diff(list(curve.values())) > 0)
  assert ev.best_weights(5000, 128).sum() == pytest.approx(1.0)
  # Expected largest of 128 standard normals is about 2.6.
  assert 2.4 < curve[128] < 2.8


def test_best_at_k_refuses_k_above_n():
  with pytest.raises(ValueError, match='k=4 with n=3.*lower'):
    ev.best_at_k([1, 2, 3], 4)


def test_empty_and_non_finite_scores():
  with pytest.raises(ValueError, match='empty'):
    ev.avg_at_k([])
  with pytest.raises(ValueError, match='nan'):
    ev.avg_at_k([1.0, math.nan])


def test_relative_gain_of_the_paper():
  assert ev.relative_gain(0.6, 0.5, True) == pytest.approx(0.2)
  assert ev.relative_gain(8.0, 10.0, False) == pytest.approx(0.2)
  # A better R2 is a gain where the starter's is negative, too.
  assert ev.relative_gain(-0.5, -1.0, True) == pytest.approx(0.5)
  with pytest.raises(ValueError, match='not defined for m_init=0'):
    ev.relative_gain(1.0, 0.0, True)


def test_success_rate_of_paper_002():
  scores = [0.55, 0.549, None, 0.9]
  assert ev.success_rate(scores, 0.5, True) == pytest.approx(0.5)
  assert ev.success_rate([8.9, 9.1], 10.0, False) == pytest.approx(0.5)
  assert ev.valid_action_rate([True, False, True, True]) == 0.75


def test_section_puts_metrics_on_one_scale():
  runs = [
    ev.Run('a', 0.7, (1.0, 0.0), (True, True)),
    ev.Run('a', 0.9, (0.5,), (False,)),
    ev.Run('b', 7.0, (0.25,), (True,)),
    ev.Run('b', None, (0.75,), (True,)),
  ]
  found = ev.section(runs, SCALES, k=2)
  assert found['mean_reward']['mean'] == pytest.approx(0.5)
  assert found['mean_reward']['n'] == 5
  # a: 0.5 and 1.0; b: 0.5 and, without a submission, 0.
  assert found['avg_at_k']['mean'] == pytest.approx((0.75 + 0.25) / 2)
  assert found['best_at_k']['mean'] == pytest.approx((1.0 + 0.5) / 2)
  assert found['relative_gain']['mean'] == pytest.approx((0.6 + 0.15) / 2)
  assert found['valid_action_rate']['mean'] == pytest.approx((2 / 3 + 1) / 2)


def test_a_starter_at_zero_has_no_relative_gain():
  scales = {**SCALES, 'z': ev.Scale(0.0, 1.0, True)}
  runs = [ev.Run('a', 0.9), ev.Run('z', 0.5)]
  found = ev.section(runs, scales, k=1)
  assert found['relative_gain']['n'] == 1
  assert found['relative_gain']['mean'] == pytest.approx(0.8)
  assert found['avg_at_k']['mean'] == pytest.approx((1.0 + 0.5) / 2)
  assert ev.section(runs[1:], scales, k=1)['relative_gain']['n'] == 0


def test_section_of_the_starter_needs_one_run():
  runs = [ev.Run('a', 0.5), ev.Run('b', 10.0)]
  found = ev.section(runs, SCALES, k=8, deterministic=True)
  assert found['best_at_k']['mean'] == 0.0 == found['relative_gain']['high']
  assert found['mean_reward']['n'] == 0
  with pytest.raises(ValueError, match='k=8 with n=1'):
    ev.section(runs, SCALES, k=8)
  with pytest.raises(ValueError, match="no m_init and m_best for \\['c'\\]"):
    ev.section([ev.Run('c', 1.0)], SCALES, k=1)
