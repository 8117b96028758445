"""What benchmarks.live_cost makes of the figures of its runs."""

import pytest

from benchmarks import live_cost


def _pair(without, watched, server=1.0):
  return {
    'without': {'wall_s': without, 'cpu_s': 100.0},
    'with': {'wall_s': watched, 'cpu_s': 100.0, 'server_cpu_s': server},
  }


def test_a_longer_run_is_a_share_with_its_interval():
  found = live_cost.compared([_pair(100, 101), _pair(200, 206)])
  assert found['longer'] == pytest.approx(0.02, abs=1e-3)
  low, high = found['longer_95']
  assert low < 0 < found['longer'] < high


def test_the_server_is_compared_with_the_runs_cpu_seconds():
  pairs = [_pair(100, 100, 0.5), _pair(100, 100, 1.5)]
  assert live_cost.compared(pairs)['server_share_of_cpu'] == 0.01


def test_one_pair_has_no_interval():
  assert 'longer_95' not in live_cost.compared([_pair(100, 100)])


def test_a_pair_that_is_there_is_not_run_again(tmp_path, monkeypatch):
  made = []

  def run(work, *more):
    made.append(work)
    for name in live_cost._FROM_SFT:
      (work / name).mkdir(parents=True, exist_ok=True)
    (work / 'snapshots.sqlite').touch()
    return {'wall_s': 1.0, 'cpu_s': 1.0, 'server_cpu_s': 0.0}

  monkeypatch.setattr(live_cost, 'run', run)
  monkeypatch.setattr(live_cost, 'watched', run)
  live_cost.measure(tmp_path, 1, 2)
  assert len(made) == 4  # SFT, one that compiles, and a pair
  live_cost.measure(tmp_path, 2, 2)
  assert len(made) == 6
