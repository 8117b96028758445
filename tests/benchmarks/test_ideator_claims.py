"""Differences between arms by hand, and the tables that are made of them."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import ideator_claims
from jaxagent.analysis.at_three import avg_at_three, best_at_three

TASK = 'heldin/t'


def seeds_of(*pairs, task=TASK):
  return [
    ({'rl': {task: mine}}, 'rl', {'sft': {task: other}}, 'sft')
    for mine, other in pairs
  ]


def test_a_difference_is_the_mean_over_seeds_of_that_of_the_figure():
  mine, other = [50.0, 80.0, None, 60.0], [40.0, 40.0, 40.0, None]
  for figure, of in (('Avg@3', avg_at_three), ('Best@3', best_at_three)):
    found = ideator_claims.difference(
      seeds_of((mine, other), (other, mine)), 'heldin', figure
    )
    gap = of(mine) - of(other)
    assert found['by_seed'] == pytest.approx([gap, -gap])
    assert found['mean'] == pytest.approx(0.0)
    assert found['low'] <= 0 <= found['high']


def test_pairs_move_together_so_that_a_constant_gain_has_no_spread():
  rng = np.random.default_rng(1)
  other = list(rng.normal(50, 20, 15))
  mine = [score + 3.0 for score in other]
  found = ideator_claims.difference(
    seeds_of((mine, other), (mine, other)), 'heldin', 'Avg@3'
  )
  assert found['low'] == pytest.approx(3.0) == found['high']
  assert ideator_claims.is_shown(found)


def test_a_claim_needs_the_interval_and_the_sign_in_every_seed():
  good = {'low': 0.1, 'by_seed': [1.0, 2.0]}
  assert ideator_claims.is_shown(good)
  assert not ideator_claims.is_shown(good | {'low': 0.0})
  assert not ideator_claims.is_shown(good | {'by_seed': [5.0, -0.1]})
  assert not ideator_claims.is_shown(None)


def test_a_missing_run_takes_its_pair_along():
  found = ideator_claims.difference(
    seeds_of(([9.0, 1.0, 1.0, 1.0], ['missing', 0.0, 0.0, 0.0])),
    'heldin',
    'Avg@3',
  )
  assert found['by_seed'] == [1.0]
  few = seeds_of(([9.0, 1.0, 1.0], ['missing', 0.0, 0.0]))
  assert ideator_claims.difference(few, 'heldin', 'Avg@3') is None
  assert ideator_claims.difference(few, 'heldout', 'Avg@3') is None


def _row(avg: float) -> dict:
  return {
    'avg_at_3': avg,
    'best_at_3': avg + 5,
    'improve': 0.5,
    'calls': 1.0,
    'steps': 9.0,
    'types': {'Others': 100.0},
    'effectiveness': {'Others': (4, 50.0)},
    'by_step': [0.0, avg],
    'calls_by_step': {'1': 0.75, '3': 0.25},
  }


def _run(rl: float) -> dict:
  levels = {'none': 1.0, 'null': 2.0, 'vague': 3.0, 'blind': 4.0, 'sft': 5.0}
  levels |= {'rl': rl}
  tasks = ('heldin/t', 'heldout/u')
  return {
    'seed': 0,
    'updates': 4,
    'runs': 3,
    'options': [],
    'scores': {
      f'{arm}{second}': {task: [level] * 3 for task in tasks}
      for arm, level in levels.items()
      for second in ('', f'-{ideator_claims.SECOND}')
    },
    'table': {
      arm: {split: _row(level) for split in ideator_claims.SPLITS}
      for arm, level in levels.items()
    },
    'noise': {'states': 5, 'scored': 4, 'moved': 1},
    **{name: [0.1, 0.2, None, 0.4] for name in ideator_claims.CURVES},
  }


def _rows(rl: float = 9.0, shuffled: float = 4.0) -> list[dict]:
  return [
    {'arm': ideator_claims.MAIN, 'runs': [_run(rl)]},
    {'arm': ideator_claims.CONTROL, 'runs': [_run(shuffled)]},
  ]


def test_the_claims_are_the_papers_and_the_control_is_none(tmp_path):
  found = ideator_claims.claims(_rows())
  by_name = {(one['claim'], one['split'], one['figure']): one for one in found}
  best = by_name['rl > sft', 'heldin', 'Best@3']
  assert best['shown'] and best['counts']
  assert best['difference']['mean'] == pytest.approx(4.0)
  assert not by_name['rl > sft', 'heldout', 'Best@3']['counts']
  assert by_name['sft > vague, second Implementer', 'heldin', 'Avg@3']['shown']
  control = by_name['shuffled rewards > sft', 'heldin', 'Avg@3']
  assert not control['shown'] and not control['wanted']
  beyond = by_name['rl > shuffled rewards', 'heldout', 'Avg@3']
  assert beyond['difference']['mean'] == pytest.approx(5.0)
  assert not beyond['counts'] and beyond['shown']
  text = ideator_claims.table({'rows': _rows()})
  assert '| first, rl | 9.0, 14.0 | 9.0, 14.0 | 0.50, 0.50 | 1.0, 9.0 |' in text
  assert 'the score of 1 of 4 changed (5 states, 1 of them without' in text
  of_no_op = text[text.index('| training | improved |') :].splitlines()[2]
  assert of_no_op.startswith('| trained, first quarter | 0.10 |')
  assert '50 % of 4' in text and '+4.0 [+4.0, +4.0]' in text
  ideator_claims.plot(_rows(), tmp_path / 'figure.svg')
  assert (tmp_path / 'figure.svg').stat().st_size > 1000


def test_rl_is_compared_with_the_control_of_its_own_seed():
  rows = [
    {'arm': ideator_claims.MAIN, 'runs': [_run(9.0), _run(6.0) | {'seed': 1}]},
    {'arm': ideator_claims.CONTROL, 'runs': [_run(4.0) | {'seed': 1}]},
  ]
  found = {
    one['claim']: one['difference']['by_seed']
    for one in ideator_claims.claims(rows)
    if (one['split'], one['figure']) == ('heldin', 'Avg@3')
  }
  assert found['rl > shuffled rewards'] == [pytest.approx(2.0)]
  assert found['rl > sft'] == [pytest.approx(4.0), pytest.approx(1.0)]


def test_a_kept_run_is_that_of_equal_options():
  asked = {'seed': 0, 'updates': 4, 'runs': 3, 'options': []}
  rows = _rows()
  assert ideator_claims._kept(rows, ideator_claims.MAIN, asked) is not None
  for change in ({'seed': 1}, {'runs': 4}, {'options': ['a=1']}):
    assert (
      ideator_claims._kept(rows, ideator_claims.MAIN, asked | change) is None
    )
