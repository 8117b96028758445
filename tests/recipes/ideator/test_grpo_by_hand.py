"""Appendix A.2 of paper 001 by hand: rewards of equation 1 to advantages and loss."""

from __future__ import annotations

import math

import numpy as np
import pytest

from jaxagent import algorithms as alg

# A group of four: mean 0, unbiased variance (1 + 0 + 0 + 1) / 3.
REWARDS = np.array([1.0, 0.0, 0.0, -1.0], np.float32)
A = math.sqrt(1.5)
# Ratios of the tokens of each idea; 0 pads.
RATIOS = np.array(
  [[1.5, 1.0, 0, 0], [1.1, 0, 0, 0], [1, 2, 3, 4], [0.5, 2.0, 1.0, 0]],
  np.float32,
)


def test_advantages_of_a_mixed_group():
  found = alg.group_relative_advantages(REWARDS, np.zeros(4, int))
  np.testing.assert_allclose(found, [A, 0, 0, -A], atol=1e-5)


def test_advantages_of_eight_ideas_of_which_two_improve():
  """Mean 1/4, unbiased variance (2 (3/4)^2 + 6 (1/4)^2) / 7 = 3/14."""
  rewards = np.array([1, 1, 0, 0, 0, 0, 0, 0], np.float32)
  found = alg.group_relative_advantages(rewards, np.zeros(8, int))
  std = math.sqrt(3 / 14)
  np.testing.assert_allclose(
    found, [0.75 / std] * 2 + [-0.25 / std] * 6, atol=1e-4
  )


def test_an_idea_that_the_infrastructure_lost_stays_out_of_its_group():
  """Of (1, lost, 0) the mean is 1/2 and the unbiased variance 1/2."""
  found = alg.group_relative_advantages(
    np.array([1.0, -1.0, 0.0], np.float32),
    np.zeros(3, int),
    valid=np.array([True, False, True]),
  )
  half = 0.5 / math.sqrt(0.5)
  np.testing.assert_allclose(found, [half, 0, -half], atol=1e-5)


def test_loss_at_seq_mean_token_mean():
  """Each idea weighs the same, and each token of it, however long it is.

  Clip 0.2. Of idea 1 the tokens earn 1.2 A (1.5 is clipped) and A: mean 1.1 A. Ideas
  2 and 3 have no advantage. Of idea 4: min(-0.5 A, -0.8 A), -2 A and -A: mean
  -3.8 A / 3. J is a quarter of their sum.
  """
  mask = (RATIOS > 0).astype(np.float32)
  logp = np.log(np.where(RATIOS > 0, RATIOS, 1.0)).astype(np.float32)
  advantages = np.array([A, 0, 0, -A], np.float32)
  loss, _ = alg.policy_loss(
    logp,
    np.zeros_like(logp),
    advantages,
    mask,
    alg.Clips(0.2, 0.2),
    alg.Aggregation('seq-mean-token-mean'),
  )
  assert float(loss) == pytest.approx(-(1.1 * A - 3.8 * A / 3) / 4, abs=1e-6)
