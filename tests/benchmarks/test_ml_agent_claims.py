"""The account of paper 000's claims, of made-up runs whose truth is known."""

import json

import pytest

from benchmarks import claims, ml_agent_claims
from jaxagent.rewards.ml_agent import sigmoid


def _step(score_after: float, *, before=0.5, valid=True, alpha=100.0) -> dict:
  reward = sigmoid(alpha * (score_after - before)) if valid else 0.0
  return {'alpha': alpha, 'reward': reward}


def _record(split: str, score: float, steps, missing=False) -> dict:
  return {
    'task': 'a' if split == 'heldin' else 'b',
    'split': split,
    'score': score,
    'steps': steps,
    'missing': missing,
  }


@pytest.fixture
def work(tmp_path):
  """Held-in higher is better, held-out lower."""
  folder = tmp_path / 'eval'
  folder.mkdir()
  starts = {'a': {'private': 0.5}, 'b': {'private': 2.0}}
  (folder / 'starts.json').write_text(json.dumps(starts))
  records = [
    _record('heldin', 0.5, [_step(0.5)]),
    _record('heldin', 0.6, [_step(0.0, valid=False), _step(9.0)]),
    _record('heldin', 0.9, [], missing=True),
    _record('heldout', 1.0, [_step(0.5, alpha=-100.0)]),
  ]
  (folder / 'rl.json').write_text(json.dumps(records))
  return tmp_path


def test_figures_of_evaluated_trajectories(work):
  found = ml_agent_claims.evaluated(work, 'rl')
  assert found['heldin_reward'] == pytest.approx((0.5 + 0 + 1) / 3)
  assert found['heldin_gain'] == pytest.approx(0.1)
  assert found['heldin_best'] == pytest.approx({1: 0.1, 2: 0.2})
  assert found['heldout_gain'] == pytest.approx(0.5)  # half as much is better


def _run(seed: int, reward: float, rl_s: float = 60.0) -> dict:
  reward += 0.001 * seed
  ends = {'reward': reward, 'gain': 0.1, 'best': {'1': 0.1, '8': 0.3}}
  before = {'reward': 0.3, 'gain': 0.0, 'best': {'1': 0.0, '8': 0.2}}
  return {
    **{f'{s}_{k}': v for s in ('heldin', 'heldout') for k, v in ends.items()},
    **{
      f'sft_{s}_{k}': v
      for s in ('heldin', 'heldout')
      for k, v in before.items()
    },
    'rl_s': rl_s,
    'reward': [0.3, reward],
  }


def _rows(base: float) -> list[dict]:
  arms = {ml_agent_claims.BASE: base} | dict.fromkeys(
    [arm for arm in ml_agent_claims.ARMS if arm != ml_agent_claims.BASE], 0.6
  )
  return [
    {'arm': arm, 'runs': [_run(seed, reward) for seed in range(3)]}
    for arm, reward in arms.items()
  ]


def test_what_is_so_is_shown_and_what_is_not_is_not(tmp_path):
  rows = _rows(0.7)
  found = claims.account(ml_agent_claims.CLAIMS, rows)
  assert all(mean > half for mean, half in found.values())
  faster = [c for c in found if 'a minute' in c]
  assert found[faster[0]][0] == pytest.approx(0.1)
  text = ml_agent_claims.table({'rows': rows})
  assert text.count('| yes |') == len(ml_agent_claims.CLAIMS)
  worse = ml_agent_claims.table({'rows': _rows(0.5)})
  assert worse.count('the opposite') == 8
  ml_agent_claims.plot(rows, tmp_path / 'a.svg')
  assert (tmp_path / 'a.svg').stat().st_size > 1000


def test_an_arm_of_other_experts_shares_none():
  shares = {
    n['arm']: ml_agent_claims.STUDY.shares(o) for n, o in ml_agent_claims.arms()
  }
  assert [arm for arm, does in shares.items() if not does] == [
    'without thought'
  ]
