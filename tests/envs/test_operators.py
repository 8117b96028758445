"""Shares of operators: what is drawn, what is taken instead, what is refused."""

from __future__ import annotations

import types

import numpy as np
import pytest

from jaxagent.envs.operators import OPERATORS, Shares

FOUR = {'draft': 4, 'improve': 3, 'debug': 2, 'crossover': 1}


def test_operators_are_drawn_by_their_shares():
  shares = Shares(FOUR)
  numbers = (np.arange(10_000) + 0.5) / 10_000
  drawn = [shares.drawn(number) for number in numbers]
  assert [drawn.count(name) for name in OPERATORS] == [4000, 3000, 2000, 1000]
  assert Shares({'debug': 7}).drawn(np.nextafter(1, 0)) == 'debug'
  assert Shares({'debug': 7}).drawn(0.0) == 'debug'


@pytest.mark.parametrize('improve', [0.0, 0.1, 0.3, 0.5, 0.7, 1 / 3, 1.0])
def test_the_older_form_draws_as_it_did(improve):
  """An improvement where the number is below the share, to the last bit."""
  shares = Shares({}, improve)
  near = [improve, np.nextafter(improve, 0), np.nextafter(improve, 1)]
  for number in (*np.random.default_rng(0).random(500), *near):
    if 0 <= number < 1:
      want = 'improve' if number < improve else 'draft'
      assert shares.drawn(number) == want


@pytest.mark.parametrize(
  ('asked', 'programs', 'failures', 'taken'),
  [
    ('draft', 0, 0, 'draft'),
    ('improve', 0, 5, 'draft'),
    ('improve', 1, 0, 'improve'),
    ('debug', 1, 0, 'improve'),
    ('debug', 0, 0, 'draft'),
    ('debug', 0, 1, 'debug'),
    ('crossover', 2, 0, 'crossover'),
    ('crossover', 1, 5, 'improve'),
    ('crossover', 0, 5, 'draft'),
  ],
)
def test_the_operator_that_can_be_had_is_taken(
  asked, programs, failures, taken
):
  assert Shares(FOUR).taken(asked, programs, failures) == taken


def test_without_a_share_nothing_is_improved_instead():
  shares = Shares({'draft': 1, 'crossover': 1, 'debug': 1})
  for asked in ('crossover', 'debug'):
    assert shares.taken(asked, 1, 0) == 'draft'


def test_shares_are_those_of_the_config_even_as_text():
  options = types.SimpleNamespace(operators="{'debug': 2}", improve=0.5)
  assert Shares.of(options)['debug'] == 2 and Shares.of(options)['draft'] == 0


@pytest.mark.parametrize(
  ('operators', 'why'),
  [
    ({'mutate': 1}, "'mutate' is no operator; choose from: draft, improve"),
    ({3: 1}, '3 is no operator'),
    ({'draft': -0.1}, "share of 'draft' is -0.1, .* from 0 to 1,000,000"),
    ({'draft': 1, 'debug': float('nan')}, "share of 'debug' is nan"),
    ({'draft': float('inf')}, 'is inf'),
    ({'draft': 1e300}, 'is 1e.300'),
    ({'draft': '1'}, "is '1'"),
    ({'draft': True}, 'is True'),
    ({'draft': 0, 'debug': 0.0}, 'has no share above 0'),
  ],
)
def test_shares_that_are_none_are_refused(operators, why):
  with pytest.raises(ValueError, match=why):
    Shares(operators)
