"""Searches on the table of programs: what is written, and what a rule may choose."""

import json

import numpy as np
import pytest

from benchmarks import machine, programs, search_rules


@pytest.fixture(scope='module')
def space():
  known = json.loads((machine.RESULTS / f'{programs.NAME}.json').read_text())
  return search_rules.Space(known['tasks'][search_rules.TASK])


def test_an_improved_program_differs_in_one_choice_and_what_follows(space):
  rng = np.random.default_rng(0)
  changed = 0
  for _ in range(300):
    parent = space.draft(rng)
    child = space.improved(parent, rng)
    before, after = (dict(space.options[i]) for i in (parent, child))
    differing = {c for c in {*before, *after} if before.get(c) != after.get(c)}
    changed += bool(differing)
    if 'model' not in differing:
      assert len(differing) <= 1
  assert 100 < changed < 300  # the same option may be drawn again


def test_drafts_are_drawn_as_the_scripted_author_draws_them(space):
  rng = np.random.default_rng(1)
  models = [dict(space.options[space.draft(rng)])['model'] for _ in range(2000)]
  for name, chance in space.start['model'].items():
    assert abs(models.count(name) / 2000 - chance) < 0.04


def test_rules_choose_as_they_say():
  rng = np.random.default_rng(0)
  kept, scores = [4, 7, 9], np.array([0.1, 0.6, 0.3])
  assert search_rules._best(kept, scores, rng) == 7
  drawn = [search_rules._roulette(kept, scores, rng) for _ in range(3000)]
  shares = [drawn.count(one) / 3000 for one in kept]
  assert np.abs(np.array(shares) - scores).max() < 0.03
  assert search_rules._roulette(kept, np.zeros(3), rng) in kept


@pytest.mark.parametrize('rule', search_rules.RULES)
def test_a_search_is_the_same_each_time_and_a_third_fails(space, rule):
  written = search_rules.search(space, rule, 3)
  assert written == search_rules.search(space, rule, 3)
  assert len(written) == 100 and 15 < written.count(-1) < 50
  found = search_rules.measure(space, rule, 5)
  low = [found['found'][str(n)][0] for n in search_rules.SHOWN]
  assert 0 <= low[0] <= low[1] <= 1 and 0.9 < found['private'] < 1
