"""What validation chooses from K: against every subset, and what may not be assumed."""

import itertools
import math

import numpy as np
import pytest

from jaxagent.analysis import chosen


def _by_subsets(validation, private, k, higher):
  """(mean validation, mean private, share without any) over all K-subsets."""
  pick, found, none = (max if higher else min), [], 0
  subsets = list(itertools.combinations(range(len(validation)), k))
  for subset in subsets:
    valid = [i for i in subset if validation[i] is not None]
    if not valid:
      none += 1
      continue
    best = pick(validation[i] for i in valid)
    tied = [i for i in valid if validation[i] == best]
    found.append((best, math.fsum(private[i] for i in tied) / len(tied)))
  means = np.mean(found, 0) if found else (None, None)
  return *means, none / len(subsets)


@pytest.mark.parametrize('higher', [True, False])
@pytest.mark.parametrize('seed', range(12))
def test_every_k_is_the_mean_over_all_subsets(seed, higher):
  rng = np.random.default_rng(seed)
  n = int(rng.integers(1, 8))
  validation = [
    None if rng.random() < 0.3 else float(rng.integers(0, 4)) for _ in range(n)
  ]
  private = [None if v is None else float(rng.normal()) for v in validation]
  found = chosen.curve(validation, private, higher, ks=range(1, 10))
  assert list(found) == list(range(1, n + 1))
  for k, figures in found.items():
    want = _by_subsets(validation, private, k, higher)
    got = figures['validation']['mean'], figures['private']['mean']
    assert figures['none'] == pytest.approx(want[2])
    if want[0] is None:
      assert got == (None, None)
    else:
      assert got == pytest.approx(want[:2])
      assert figures['private']['low'] <= got[1] <= figures['private']['high']


def test_private_scores_may_fall_while_the_best_validation_score_rises():
  validation = list(np.linspace(0, 1, 32))
  found = chosen.curve(validation, [1 - v for v in validation])
  rising = [figures['validation']['mean'] for figures in found.values()]
  falling = [figures['private']['mean'] for figures in found.values()]
  assert rising == sorted(rising) and falling == sorted(falling)[::-1]
  assert list(found) == [1, 2, 4, 8, 16, 32]


def test_a_score_without_its_other_is_no_program():
  found = chosen.curve([1.0, None, 0.5], [None, 2.0, 3.0])
  assert found[1]['private']['mean'] == 3.0 and found[1]['private']['n'] == 1
  assert found[1]['none'] == pytest.approx(2 / 3)
  assert chosen.curve([], []) == {}


def test_nothing_valid_gives_no_figure():
  (figures,) = chosen.curve([None], [None]).values()
  assert figures['none'] == 1.0
  assert figures['private'] == {'mean': None, 'low': None, 'high': None, 'n': 0}


@pytest.mark.slow
def test_intervals_hold_the_private_score_of_the_chosen():
  """Of a distribution of programs with failures, ties and an odd relation of scores."""
  rng = np.random.default_rng(0)
  validation = np.round(rng.normal(0.9, 0.05, 200), 2)
  private = 0.9 + 0.3 * (validation - 0.9) + rng.normal(0, 0.02, 200)
  fails = rng.random(200) < 0.3
  draws = rng.integers(0, 200, (400_000 // 8, 8))
  ok = ~fails[draws]
  best = np.where(ok, validation[draws] + 1e-6 * rng.random(draws.shape), -1)
  truth = private[draws[np.arange(len(draws)), best.argmax(1)]][
    ok.any(1)
  ].mean()
  held = 0
  for _ in range(200):
    drawn = rng.integers(0, 200, 64)
    rows = [
      (None, None) if fails[i] else (validation[i], private[i]) for i in drawn
    ]
    found = chosen.curve(*zip(*rows), ks=(8,))[8]['private']
    held += found['low'] <= truth <= found['high']
  assert 180 <= held <= 200
