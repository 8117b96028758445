"""Advantages for the best of K samples: exact, whatever the group."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from jaxagent import algorithms
from jaxagent.algorithms import best_of
from jaxagent.analysis import evaluation


def groups(count, most=8):
  """Scores with ties, of groups of two to `most`, and weights."""
  rng = np.random.RandomState(0)
  for _ in range(count):
    m = rng.randint(2, most + 1)
    yield rng.randint(0, 4, m) / 2.0, rng.rand(m) + 0.1


def subsets_of_others(m, i, size):
  return itertools.combinations([j for j in range(m) if j != i], size)


def by_brute_force(r, k, w):
  """S [m] and the U_K of the others [m], by their definitions."""
  m, own, rest = len(r), [], []
  for i in range(m):
    shares = [
      (math.prod(w[list(j)]), max(r[i], *r[list(j)]) if j else r[i])
      for j in subsets_of_others(m, i, k - 1)
    ]
    own.append(sum(a * b for a, b in shares) / sum(a for a, _ in shares))
    shares = [
      (math.prod(w[list(j)]), max(r[list(j)]))
      for j in subsets_of_others(m, i, k)
    ]
    rest.append(sum(a * b for a, b in shares) / sum(a for a, _ in shares))
  return np.array(own), np.array(rest)


def test_means_over_subsets_are_what_brute_force_finds():
  for r, w in groups(300):
    for k in range(1, len(r)):
      for weights in (None, w):
        found = best_of.means_of_best(r, k, weights)
        wanted = by_brute_force(r, k, np.ones(len(r)) if weights is None else w)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)


def test_the_advantage_is_centred_and_the_short_formula():
  for r, _ in groups(200):
    m = len(r)
    for k in range(1, m):
      own, _ = best_of.means_of_best(r, k)
      found = algorithms.best_of_advantages(r, [0] * m, k)
      short = k * m / (m - k) * (own - own.mean())
      np.testing.assert_allclose(found, short, atol=1e-12)
      assert abs(found.sum()) < 1e-12


@pytest.mark.slow
def test_the_mean_is_rloo_and_the_expected_best_is_over_all_subsets():
  for r, _ in groups(100):
    m = len(r)
    found = algorithms.best_of_advantages(r, [0] * m, 1)
    np.testing.assert_allclose(found, m / (m - 1) * (r - r.mean()), atol=1e-12)
    np.testing.assert_allclose(
      found,
      algorithms.leave_one_out_advantages(r, np.zeros(m, int)),
      atol=1e-6,
    )
    for k in range(1, m + 1):
      wanted = np.mean([max(c) for c in itertools.combinations(r, k)])
      assert evaluation.best_at_k(r, k) == pytest.approx(wanted, abs=1e-12)


POLICY = np.array([0.5, 0.3, 0.15, 0.05])
SCORES = np.array([0.2, 0.2, 0.5, 1.0])


def gradient_of_best(k):
  """Of E[max of k] with respect to the logits of POLICY."""
  values = sorted(set(SCORES))
  at_most = [POLICY[SCORES <= v].sum() for v in values]
  grad = np.zeros(4)
  for n, v in enumerate(values):
    step = v - (values[n + 1] if n + 1 < len(values) else 0.0)
    inside = np.where(SCORES <= v, 1.0, 0.0)
    slope = POLICY * (inside - at_most[n])  # of P(score <= v)
    grad += step * k * at_most[n] ** (k - 1) * slope
  return grad


@pytest.mark.parametrize('n', [3, 4, 6])
@pytest.mark.parametrize('arm', ['best_of_advantages', 'pkpo_advantages'])
def test_the_expected_gradient_is_that_of_the_expected_maximum(n, arm):
  outcomes = np.array(list(itertools.product(range(4), repeat=n)))
  chance = POLICY[outcomes].prod(axis=1)
  score = np.eye(4)[outcomes] - POLICY  # grad log p, [outcomes, n, 4]
  advantages = getattr(algorithms, arm)
  for k in range(1 if arm == 'best_of_advantages' else 2, n):
    a = np.array([advantages(SCORES[o], [0] * n, k) for o in outcomes])
    found = np.einsum('o,on,ong->g', chance, a / n, score)
    np.testing.assert_allclose(found, gradient_of_best(k), atol=1e-9)


def test_weights_in_the_subsets_halve_the_error_of_selected_samples():
  """Samples drawn from q = p c, which stand for 1/c each."""
  n, k, chosen = 6, 2, np.array([0.6, 1.4, 0.7, 1.6])
  q = POLICY * chosen / (POLICY * chosen).sum()
  outcomes = np.array(list(itertools.product(range(4), repeat=n)))
  chance = q[outcomes].prod(axis=1)
  ratio = POLICY / q
  score = np.eye(4)[outcomes] - POLICY

  def error(weighted):
    total = np.zeros(4)
    for o, p, s in zip(outcomes, chance, score):
      w = ratio[o]
      a = algorithms.best_of_advantages(
        SCORES[o], [0] * n, k, weights=w if weighted else None
      )
      total += p * (w * a) @ s / n
    return np.linalg.norm(total - gradient_of_best(k))

  assert error(True) < 0.5 * error(False)


def test_lost_members_get_nothing_and_count_for_nothing():
  r = np.array([1.0, 5.0, 2.0, np.nan, 3.0])
  valid = np.array([True, False, True, True, True])
  found = algorithms.best_of_advantages(r, list('aaaaa'), 2, valid=valid)
  alone = algorithms.best_of_advantages(r[[0, 2, 4]], list('aaa'), 2)
  np.testing.assert_array_equal(found[[0, 2, 4]], alone)
  assert found[1] == found[3] == 0


@pytest.mark.parametrize(
  'arm',
  [
    algorithms.best_of_advantages,
    algorithms.pkpo_advantages,
    algorithms.max_rl_advantages,
    lambda r, g, k: algorithms.entropic_advantages(r, g),
  ],
)
def test_groups_of_none_one_and_equals_are_exactly_nothing(arm):
  assert len(arm(np.zeros(0), [], 3)) == 0
  r = np.array([7.0, 0.1, 0.1, 0.1, -10.0, -10.0])
  assert not arm(r, [0, 1, 1, 1, 2, 2], 3).any()
  nearly = np.float32([0.3, 0.1 + 0.2]).astype(float) + [0, 3e-8]
  assert not arm(nearly, [0, 0], 2).any()


def test_a_group_of_two_and_few_survivors_take_the_largest_k_they_allow():
  found = algorithms.best_of_advantages(np.array([0.0, 1.0]), [0, 0], 8)
  np.testing.assert_allclose(found, [-1.0, 1.0])
  r = np.array([0.0, 0.5, 1.0])
  wide, narrow = (algorithms.best_of_advantages(r, [0] * 3, k) for k in (8, 2))
  np.testing.assert_array_equal(wide, narrow)


def test_scores_beside_a_failure_keep_their_digits():
  """In float32 a failure at -10 would cost the others four digits."""
  r = np.array([-10.0, 0.97001, 0.97002, 0.97003, 0.98])
  found = algorithms.best_of_advantages(r, [0] * 5, 3)
  exact = best_of.means_of_best(r, 3)
  np.testing.assert_allclose(found, 3 * (exact[0] - exact[1]), atol=1e-12)
  assert found[0] == min(found) and found[4] == max(found)


def test_large_groups_do_not_overflow():
  rng = np.random.RandomState(0)
  r = rng.rand(1000)
  for weights in (None, rng.rand(1000) + 0.5):
    found = algorithms.best_of_advantages(r, [0] * 1000, 64, weights=weights)
    assert np.isfinite(found).all() and found.argmax() == r.argmax()


def test_the_harmonic_sum_is_of_the_orders_that_a_group_allows():
  r = np.array([0.0, 0.3, 0.3, 1.0])
  wanted = sum(
    algorithms.best_of_advantages(r, [0] * 4, k) / k for k in (1, 2, 3)
  )
  np.testing.assert_allclose(
    algorithms.max_rl_advantages(r, [0] * 4, 9), wanted
  )


def test_the_entropic_tilt_has_the_divergence_that_it_aims_at():
  r = np.array([0.0, 0.2, 0.5, 0.9, 1.0])
  a = algorithms.entropic_advantages(r, [0] * 5)
  ratio = a + 1  # e^(b r) over the mean of the others
  tilted = ratio / (4 + ratio)  # share of the whole
  assert tilted.sum() == pytest.approx(1)
  divergence = np.log(5) + np.sum(tilted * np.log(tilted))
  assert divergence == pytest.approx(np.log(2), abs=1e-9)
  assert np.isfinite(algorithms.entropic_advantages([0.0, 1e-3], [0, 0])).all()


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    ({'k': 0}, 'k=0 must be a whole number'),
    ({'k': 1.5}, 'k=1.5 must be'),
    ({'k': True}, 'k=True must be'),
    ({'group_ids': [0]}, r'scores \(2,\) and 1 group_ids'),
    ({'weights': [1.0, 0.0]}, 'weights must be above 0'),
    ({'weights': [1.0, np.nan]}, 'weights must be above 0'),
  ],
)
def test_what_makes_no_sense_is_refused(arguments, message):
  given = {'scores': [0.0, 1.0], 'group_ids': [0, 0], 'k': 1} | arguments
  with pytest.raises(ValueError, match=message):
    algorithms.best_of_advantages(**given)
  with pytest.raises(ValueError, match='k=1: there is no lead'):
    algorithms.pkpo_advantages([0.0, 1.0], [0, 0], 1)
