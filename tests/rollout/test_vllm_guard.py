"""The guard of a server: nothing that it started is left, whoever ends first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from jaxagent.rollout.engines import vllm_guard
from jaxagent.testing import process_tree

# A server, and a worker that ignores what is polite where it is told to.
_SERVER = """
import signal, subprocess, sys, time
if sys.argv[2] == 'deaf':
  signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(['sleep', '600'])
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
print('up', flush=True)
time.sleep(float(sys.argv[1]))
sys.exit(7)
"""


def _guarded(
  seconds: float, worker: str = 'polite'
) -> tuple[subprocess.Popen, list[int]]:
  """(guard, pids of the server and its worker)."""
  guard = subprocess.Popen(
    [
      sys.executable, '-I', vllm_guard.__file__,
      sys.executable, '-c', _SERVER, str(seconds), worker,
    ],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
  )  # fmt: skip
  assert guard.stdout.readline() == b'up\n'
  started = process_tree.below(guard.pid)
  assert len(started) == 2
  return guard, started


def _gone(pids, within_s: float = 4.0) -> None:
  end = time.monotonic() + within_s
  while any(map(process_tree.lives, pids)):
    assert time.monotonic() < end
    time.sleep(0.01)


def test_it_ends_with_the_trainer():
  guard, started = _guarded(600)
  guard.stdin.close()
  _gone(started)
  assert guard.wait(5) == 3  # it had time for its own end


@pytest.mark.slow
def test_what_does_not_listen_is_killed():
  guard, started = _guarded(600, 'deaf')
  guard.stdin.close()
  _gone(started, vllm_guard.GRACE_S + 4)
  assert guard.wait(5) == 3


def test_it_ends_with_its_guard():
  guard, (server, worker) = _guarded(600)
  guard.kill()
  guard.wait()
  _gone([server])
  guard.stdin.close()
  os.kill(worker, signal.SIGKILL)


def test_a_server_that_ends_takes_its_workers_along():
  guard, started = _guarded(0.5)
  _gone(started)
  assert guard.wait(5) == 7
  guard.stdin.close()


def test_input_to_the_guard_does_not_end_its_processes():
  guard, started = _guarded(600)
  guard.stdin.write(b'x' * 100)
  guard.stdin.flush()
  time.sleep(0.2)
  assert all(map(process_tree.lives, started))
  guard.stdin.close()
  _gone(started)
  guard.wait(5)
