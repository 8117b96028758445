"""Something else keeps the scheduler going while the learner computes."""

from __future__ import annotations

import threading
import time

import pytest

from jaxagent.rollout.poller import BackgroundPoller


class _Scheduler:
  def __init__(self, error=None):
    self.calls, self.threads, self.error = [], set(), error

  def work(self, version, timeout_s):
    self.calls.append(version)
    self.threads.add(threading.current_thread())
    if self.error is not None:
      raise self.error
    time.sleep(timeout_s / 10)


def test_it_works_until_the_end_of_the_block():
  scheduler = _Scheduler()
  with BackgroundPoller(scheduler, 7):
    end = time.monotonic() + 5.0
    while len(scheduler.calls) < 5:
      assert time.monotonic() < end
      time.sleep(0.001)
  done = len(scheduler.calls)
  time.sleep(0.05)
  assert len(scheduler.calls) == done and set(scheduler.calls) == {7}
  assert threading.current_thread() not in scheduler.threads
  assert not any(thread.is_alive() for thread in scheduler.threads)


def test_what_goes_wrong_there_is_raised_here():
  scheduler = _Scheduler(OSError(28, 'No space left on device'))
  with (
    pytest.raises(OSError, match='No space left'),
    BackgroundPoller(scheduler, 0),
  ):
    time.sleep(0.05)
  assert scheduler.calls == [0]


def test_what_goes_wrong_here_is_not_hidden():
  with (
    pytest.raises(KeyError, match='mine'),
    BackgroundPoller(_Scheduler(ValueError('theirs')), 0),
  ):
    raise KeyError('mine')
