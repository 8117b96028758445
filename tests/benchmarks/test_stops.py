"""Stops and double starts: what counts as a fault, and going on after a kill."""

import copy
import signal

import pytest

from benchmarks import owner_cost, stops
from jaxagent.files import owner

STOP = {
  'run': 0,
  'after_s': 30.0,
  'last_file_written': 'rl',
  'seconds': 6.0,
  'code': 143,
  'lines': 1,
  'complete': False,
}
GOOD = {
  'longest_checkpoint_s': 1.0,
  'hold': {'share_of_quickstart': 1e-4},
  'stopped': {
    'each': [
      STOP,
      {**STOP, 'code': -signal.SIGTERM, 'after_s': 0.1, 'lines': 0},
      {**STOP, 'code': 0, 'complete': True, 'lines': 0},
    ],
    'differences': [],
  },
  'twice': {
    'longest_s': 8.0,
    'exit_codes': {'2': 3},
    'lines_that_name_the_owner': {'1': 3},
    'exit_codes_of_the_owners': {'0': 1},
    'exit_codes_of_those_after': {'0': 1},
    'audit_differences': 0,
  },
}


def test_a_good_measurement_has_no_fault():
  assert stops.faults(GOOD) == []


@pytest.mark.parametrize(
  'stop, words',
  [
    ({'seconds': 11.1}, 'took 11.1 s of 11.0'),
    ({'lines': 0}, '0 lines say'),
    ({'code': 1}, 'exit status 1'),
    ({'code': 0}, 'exit status 0'),
    ({'code': -15}, 'exit status -15'),
  ],
)
def test_a_stop_that_is_not_as_it_should_be_is_a_fault(stop, words):
  result = copy.deepcopy(GOOD)
  result['stopped']['each'][0] = {**STOP, **stop}
  (fault,) = stops.faults(result)
  assert fault.startswith('stop 0 (run 0, after 30.0 s)') and words in fault


@pytest.mark.parametrize(
  'part, key, value',
  [
    ('stopped', 'differences', ['eval/rl.json: missing']),
    ('twice', 'longest_s', 10.5),
    ('twice', 'exit_codes', {'2': 2, '0': 1}),
    ('twice', 'lines_that_name_the_owner', {'1': 2, '0': 1}),
    ('twice', 'exit_codes_of_the_owners', {'0': 2, '1': 1}),
    ('twice', 'exit_codes_of_those_after', {'1': 1}),
    ('twice', 'audit_differences', 1),
    ('hold', 'share_of_quickstart', 1e-3),
  ],
)
def test_each_other_fault_is_named(part, key, value):
  result = copy.deepcopy(GOOD)
  result[part][key] = value
  assert len(stops.faults(result)) == 1


def test_a_killed_benchmark_continues_after_the_last_stop(
  tmp_path, monkeypatch
):
  calls = []

  def once(work, wait_s):
    calls.append((work.name, wait_s))
    if len(calls) == 3:
      raise KeyboardInterrupt
    if len(calls) in (4, 7):  # this run came to its end
      work.mkdir()
      (work / 'summary.json').touch()
      return None
    return {'seconds': 1.0}

  class Compared:
    differences = ['one']

  monkeypatch.setattr(stops, '_stopped', once)
  monkeypatch.setattr(stops.same_digits, 'compare', lambda *given: Compared)
  path = tmp_path / 'progress.json'
  progress = stops.Progress(path)
  progress.data['whole_s'] = 90.0
  with pytest.raises(KeyboardInterrupt):
    stops.stopped(tmp_path, progress, 4)
  progress = stops.Progress(path)
  stops.stopped(tmp_path, progress, 4)
  assert [stop['run'] for stop in progress.data['stops']] == [0, 0, 1, 1]
  assert progress.data['differences'] == {
    'stopped0': ['one'],
    'stopped1': ['one'],
  }
  assert calls[2] == calls[3] and calls[-1] == ('stopped1', None)
  stops.stopped(tmp_path, progress, 4)
  assert len(calls) == 7


def test_a_share_counts_the_beats_of_the_longer_run():
  cost = {'claim_s': 0.1, 'release_s': 0.1, 'beats': 10, 'beats_cpu_s': 0.01}
  seconds = 100 * owner.BEAT_S
  assert owner_cost.share(cost, seconds) == pytest.approx(0.3 / seconds)
