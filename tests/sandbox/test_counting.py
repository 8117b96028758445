"""Memory of a job without cgroups: what a sample reads, and when."""

import contextlib
import os
import subprocess
import sys

import pytest

from jaxagent.sandbox import _counting

_SHARED = r"""
import os, sys
kept = b'x' * (64 << 20)
other = os.fork()
os.write(1, b'%d\n' % os.getpid())  # one call: the lines never mix
sys.stdin.read()
"""


@pytest.fixture
def pair():
  """Two processes that share 64 MiB."""
  with subprocess.Popen(
    [sys.executable, '-c', _SHARED],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
  ) as made:
    with contextlib.closing(made.stdin):
      yield [int(made.stdout.readline()) for _ in range(2)]


def test_shared_pages_are_split_where_they_decide(pair):
  limit = 100 << 20
  whole = sum(sum(_counting.status(pid)) for pid in pair)
  assert whole > 128 << 20
  assert 64 << 20 < _counting.memory(pair, limit) < limit
  assert _counting.memory(pair, 1 << 40) == pytest.approx(whole, rel=0.01)


def test_slow_maps_are_not_read_where_the_rest_decides(pair, monkeypatch):
  """They take a second where a job fills page tables, and it would win."""
  monkeypatch.setattr(_counting, '_proportional', None)
  _, tables = _counting.status(pair[0])
  assert _counting.memory(pair, tables // 2) > tables
  assert _counting.memory([os.getpid()], 1 << 40) > 0
  with pytest.raises(TypeError):
    _counting.memory(pair, 100 << 20)


def test_a_process_that_is_gone_holds_nothing():
  assert _counting.memory([2**22 + 1], 1) == 0
