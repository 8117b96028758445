"""The grader of programs: which outputs count, and what their time is worth."""

from __future__ import annotations

import numpy as np
import pytest

from jaxagent import graders
from jaxagent.graders import Scope, speed

ANSWERS = {
  'output': np.array([[1.0, 200.0], [3.0, 0.0]]),
  'tolerance': np.array([0.01, 0.01]),
  'split': np.array(['valid', 'private']),
}


def given(**changes):
  arrays = {
    'round': np.array([0]),
    'program_s': np.array([4.0]),
    'reference_s': np.array([1.0]),
    'output_0': np.array([1.0, 200.0]),
  }
  return {k: v for k, v in {**arrays, **changes}.items() if v is not None}


def grade(split='valid', **changes):
  return graders.grade_arrays(
    'speed', given(**changes), ANSWERS, scope=Scope(split=split)
  )


def test_score_is_the_logarithm_of_the_ratio_of_medians():
  # By hand: medians 4 and 1, log2(4) = 2; means would be 4.4 and 1.8.
  slow, fast = [3.0, 9.0, 4.0, 2.0, 4.0], [1.0, 1.0, 5.0, 1.0, 1.0]
  assert speed.score_of(slow, fast) == 2.0
  assert speed.score_of(fast, slow) == -2.0
  assert (
    speed.score_of([1e9], [1.0]) == 10 and speed.score_of([1.0], [1e9]) == -6
  )


@pytest.mark.parametrize('times', [[], [0.0], [-1.0], [float('nan')]])
def test_no_time_or_none_above_zero_is_no_score(times):
  with pytest.raises(ValueError, match='time'):
    speed.score_of(times, [1.0])


def test_a_number_may_be_off_by_the_tolerance_relative_where_it_is_large():
  assert grade().score == 2.0
  assert grade(output_0=np.array([1.009, 201.9])).score == 2.0
  assert grade(output_0=np.array([1.0, 202.1])).score is None
  assert grade(output_0=np.array([1.011, 200.0])).score is None


@pytest.mark.parametrize(
  ('changes', 'reason'),
  [
    ({'round': None}, 'no list of rounds'),
    ({'round': np.array([], dtype=int)}, 'no list of rounds'),
    ({'round': np.array([0.0])}, 'no list of rounds'),
    ({'round': np.array([2])}, 'from 0 to 1'),
    ({'round': np.array([-1])}, 'from 0 to 1'),
    ({'round': np.array([0, 0])}, 'different'),
    ({'output_0': None}, 'expected'),
    ({'output_1': np.zeros(2)}, 'expected'),
    ({'program_s': np.array([1.0, 2.0])}, 'program_s must be 1 times'),
    ({'reference_s': np.array([0.0])}, 'reference_s must be'),
    ({'program_s': np.array([np.nan])}, 'program_s must be'),
    ({'output_0': np.array([1.0])}, 'shape'),
    ({'output_0': np.array([1.0, np.inf])}, 'not finite'),
  ],
)
def test_what_is_no_measurement_is_refused(changes, reason):
  got = grade(**changes)
  assert got.score is None and reason in got.reason


def test_a_half_whose_rounds_were_not_run_has_no_score():
  assert 'none of these rounds' in grade('private').reason


def test_there_is_no_source_that_compat_could_equal():
  with pytest.raises(ValueError, match='strict'):
    graders.grade_arrays('speed', given(), ANSWERS, 'compat')
