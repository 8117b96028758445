"""Baselines under duration weights: what is subtracted, and which gradient that gives."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from jaxagent import algorithms
from tests.algorithms.test_best_of import (
  POLICY,
  SCORES,
  by_brute_force,
  groups,
)

SECONDS = np.array([1.0, 1.0, 2.0, 4.0])  # of each outcome's execution


def test_it_is_the_weighted_mean_of_the_others_among_themselves():
  for r, d in groups(30):
    m = len(r)
    for k in range(1, m):
      wanted = []
      for i in range(m):
        own = by_brute_force(r, k, np.ones(m))[0][i]
        others = np.delete(np.arange(m), i)
        if k == m - 1:
          rest = np.full(m - 1, r[others].max())
        else:
          rest = by_brute_force(r[others], k, np.ones(m - 1))[0]
        wanted.append(k * (own - np.average(rest, weights=d[others])))
      found = algorithms.best_of_advantages(r, [0] * m, k, baseline_weights=d)
      if np.ptp(r):
        np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_even_weights_are_no_weights():
  for r, _ in groups(30):
    m, even = len(r), np.full(len(r), 3.0)
    for k in range(1, m):
      np.testing.assert_allclose(
        algorithms.best_of_advantages(r, [0] * m, k, baseline_weights=even),
        algorithms.best_of_advantages(r, [0] * m, k),
        atol=1e-12,
      )
    for arm in (
      algorithms.leave_one_out_advantages,
      algorithms.group_relative_advantages,
    ):
      np.testing.assert_allclose(
        arm(r, np.zeros(m, int), weights=even),
        arm(r, np.zeros(m, int)),
        atol=1e-6,
      )


def test_of_one_sample_it_is_rloo_with_weights():
  for r, d in groups(30):
    m = len(r)
    ids = np.zeros(m, int)
    wanted = algorithms.best_of_advantages(r, ids, 1, baseline_weights=d)
    found = algorithms.leave_one_out_advantages(r, ids, weights=d)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    whole = algorithms.group_relative_advantages(
      r, ids, normalize_std=False, weights=d
    )
    mean = r - np.average(r, weights=d) if np.ptp(r) else np.zeros(m)
    np.testing.assert_allclose(whole, mean, atol=1e-5)


def test_a_member_without_weight_gets_what_the_others_say_and_says_nothing():
  r, d = np.array([1.0, 5.0, 2.0]), np.array([1.0, 0.0, 3.0])
  found = algorithms.leave_one_out_advantages(r, np.zeros(3, int), weights=d)
  np.testing.assert_allclose(found, [1 - 2, 5 - 1.75, 2 - 1], atol=1e-6)
  alone = np.array([1.0, 0.0, 0.0])
  found = algorithms.leave_one_out_advantages(
    r, np.zeros(3, int), weights=alone
  )
  assert found[0] == 0 and np.isfinite(np.asarray(found)).all()


def expected(k, n, weighted):
  """E[sum d A grad log p] / n with respect to the logits, over all outcomes."""
  total = np.zeros(4)
  for outcome in itertools.product(range(4), repeat=n):
    o = np.array(outcome)
    d = SECONDS[o]
    a = algorithms.best_of_advantages(
      SCORES[o], [0] * n, k, baseline_weights=d if weighted else None
    )
    total += POLICY[o].prod() * (d * a) @ (np.eye(4)[o] - POLICY) / n
  return total


def gradient(k, baseline):
  """K (grad E[d S] - baseline grad E[d]), the policy of the others held still."""
  best = np.array([_expected_best(score, k - 1) for score in SCORES])
  slope = POLICY[:, None] * (np.eye(4) - POLICY)  # d p / d logits
  return k * (SECONDS * (best - baseline)) @ slope


def _expected_best(score, others):
  return sum(
    POLICY[list(o)].prod() * max(score, *SCORES[list(o)], score)
    for o in itertools.product(range(4), repeat=others)
  )


def _expected_baseline(k, others):
  """E of the weighted mean of S among so many samples."""
  total = 0.0
  for outcome in itertools.product(range(4), repeat=others):
    o = np.array(outcome)
    s = by_brute_force(SCORES[o], k, np.ones(others))[0]
    total += POLICY[o].prod() * np.average(s, weights=SECONDS[o])
  return total


@pytest.mark.parametrize('k', [1, 2])
def test_it_does_not_know_the_sample_that_it_is_subtracted_from(k):
  wanted = gradient(k, _expected_baseline(k, 3))
  np.testing.assert_allclose(expected(k, 4, True), wanted, atol=1e-9)


@pytest.mark.parametrize('k', [1, 2])
def test_it_is_nearer_to_the_gradient_of_the_ratio_than_the_plain_mean(k):
  best = np.array([_expected_best(score, k - 1) for score in SCORES])
  wanted = gradient(k, (POLICY * SECONDS) @ best / (POLICY @ SECONDS))
  error = {
    weighted: np.linalg.norm(expected(k, 5, weighted) - wanted)
    for weighted in (True, False)
  }
  assert error[True] < 0.7 * error[False]
