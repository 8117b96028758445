"""The account of the claims, of made-up runs whose truth is known."""

import math

import pytest

from benchmarks import claims as of_any
from benchmarks import rl_for_mle_claims as claims


def _run(seed: int, exec_s, score, valid=(1.0,) * 8, last: float = 0.9) -> dict:
  part = {'mean': last + 0.001 * seed, 'best': 1.0}
  return {
    'exec_s': list(exec_s),
    'score': list(score),
    'valid': list(valid),
    'timeouts': [0.0] * 8,
    'rl_s': 60.0,
    'solutions': {'rl': {'scratch': part, 'improved': part}},
    'best_trained': [[1.0, 0.5], [9.0, 0.95 + 0.001 * seed]],
    'best_before': [[1.0, 0.7], [3.0, 0.9]],
    'best_after': [[1.0, 0.6], [2.0, 0.95 + 0.001 * seed]],
    'average_sft': -4.0,
    'average_rl': -1.0 + 0.1 * seed,
  }


def _rows(seeds: int) -> list[dict]:
  falling, rising = range(8, 0, -1), [3.0] * 6 + [5.0] * 2
  better, worse = [0.6] * 4 + [0.9] * 4, [0.6] * 8
  failing = (0.5,) * 8
  made = {
    'as configured': lambda s: _run(s, rising, better),
    'no duration weights': lambda s: _run(s, [v + s for v in falling], worse),
    'no milestones': lambda s: _run(s, rising, better, failing),
    'from scratch only': lambda s: _run(s, rising, better, last=0.8),
  }
  return [
    {'arm': arm, 'runs': [make(s) for s in range(seeds)]}
    for arm, make in made.items()
  ]


def test_what_is_so_is_shown_and_what_is_not_is_not():
  rows = _rows(3)
  found = of_any.account(claims.CLAIMS, rows)
  assert set(found) == set(claims.CLAIMS)
  for claim, (mean, half) in found.items():
    assert mean > half, claim
  shorter = 'figure 2: without weights, executions get shorter (seconds)'
  assert found[shorter] == pytest.approx((6.0, 0.0))
  # Seeds that differ by 1 s on average.
  longer = 'figure 8: weights keep executions longer (seconds, last quarter)'
  assert found[longer][0] == pytest.approx(5.0 - 1.5 - 1.0)
  assert found[longer][1] == pytest.approx(4.3027 / math.sqrt(3), abs=1e-3)
  turned = [
    {**row, 'runs': rows[1 - i]['runs'] if i < 2 else row['runs']}
    for i, row in enumerate(rows)
  ]
  mean, half = of_any.account(claims.CLAIMS, turned)[longer]
  assert mean < -half
  assert 'no: the opposite' in claims.table({'rows': turned})


def test_a_table_of_one_seed_and_of_an_unfinished_result():
  text = claims.table({'rows': _rows(1)})
  assert text.count('one seed') == len(claims.CLAIMS)
  rows = _rows(2)
  rows[-1]['runs'] = []
  assert '+' not in claims.table({'rows': rows})


def test_failures_count_in_the_average():
  assert claims.average([1.0, 0.5, 0.0], [0.8, 0.8, None]) == pytest.approx(
    [0.8, -4.6, -10.0]
  )
