"""Figures that fall where a policy's ideas become alike."""

from __future__ import annotations

import itertools
import math

import pytest

from jaxagent.analysis import collapse


def test_ideas_are_distinct_whatever_their_layout_and_case():
  assert (
    collapse.distinct_share(['Set a.', ' set  A.\n', 'Set b.', 'x']) == 0.75
  )
  assert collapse.distinct_share(['a'] * 8) == 1 / 8
  assert collapse.distinct_share([]) is None


def test_entropy_is_0_of_one_kind_and_most_of_even_ones():
  assert collapse.entropy(['a'] * 9) == 0.0
  assert collapse.entropy(['a', 'b', 'c', 'd']) == pytest.approx(math.log(4))
  assert collapse.entropy(['a', 'a', 'a', 'b']) == pytest.approx(
    -0.75 * math.log(0.75) - 0.25 * math.log(0.25)
  )
  assert collapse.entropy([]) is None


def test_a_group_is_mixed_where_its_rewards_differ():
  groups = [[1.0, 0.0], [0.0, 0.0], [1.0, None], [None], [], [-1.0, 0.0, 1.0]]
  assert collapse.mixed_share(groups) == pytest.approx(2 / 6)
  assert collapse.mixed_share([]) is None


def test_the_best_of_k_stands_beside_the_mean_of_the_same_groups():
  full = [1.0, 0.0, 0.0, 0.0, -1.0, 0.0, 0.0, 0.0]
  best, mean = collapse.best_beside_mean([full, [0.0] * 8, [1.0] * 3])
  assert (best, mean) == (0.5, 0.0)
  assert collapse.best_beside_mean([full[:7]]) is None
  assert collapse.best_beside_mean([]) is None


def test_the_best_of_k_is_a_mean_over_all_choices_of_k():
  group = [1.0, 0.0, -1.0, 0.5, None]
  best, mean = collapse.best_beside_mean([group], k=2)
  pairs = [max(pair) for pair in itertools.combinations(group[:4], 2)]
  assert best == pytest.approx(sum(pairs) / len(pairs))
  assert mean == pytest.approx(0.125)
