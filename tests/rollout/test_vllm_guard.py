"""The guard of a server: nothing that it started is left, whoever ends first."""

from __future__ import annotations

import subprocess
import sys
import time

from jaxagent.rollout import vllm_guard
from jaxagent.testing import process_tree

# A server whose worker ignores what is polite.
_SERVER = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(['sleep', '600'])
print('up', flush=True)
time.sleep(float(sys.argv[1]))
sys.exit(7)
"""


def _guarded(seconds: float) -> tuple[subprocess.Popen, list[int]]:
  """(guard, pids of the server and its worker)."""
  guard = subprocess.Popen(
    [
      sys.executable, '-I', vllm_guard.__file__,
      sys.executable, '-c', _SERVER, str(seconds),
    ],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
  )  # fmt: skip
  assert guard.stdout.readline() == b'up\n'
  started = process_tree.below(guard.pid)
  assert len(started) == 2
  return guard, started


def _gone(pids) -> None:
  end = time.monotonic() + 5
  while any(map(process_tree.lives, pids)):
    assert time.monotonic() < end
    time.sleep(0.01)


def test_it_ends_with_the_trainer():
  guard, started = _guarded(600)
  guard.stdin.close()
  _gone(started)
  assert guard.wait(5) == 128 + 9


def test_a_server_that_ends_takes_its_workers_along():
  guard, started = _guarded(0.5)
  _gone(started)
  assert guard.wait(5) == 7
  guard.stdin.close()


def test_what_is_written_to_it_is_no_end():
  guard, started = _guarded(600)
  guard.stdin.write(b'x' * 100)
  guard.stdin.flush()
  time.sleep(0.2)
  assert all(map(process_tree.lives, started))
  guard.stdin.close()
  _gone(started)
  guard.wait(5)
