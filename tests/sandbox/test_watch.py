"""What is counted by looking: when it is looked at, and what cannot be late."""

from __future__ import annotations

import types

import pytest

from jaxagent.sandbox import SandboxPool, _job, _watch
from jaxagent.types import Job, Limits, Outcome

SPACE = """
import mmap, resource
print(resource.getrlimit(resource.RLIMIT_AS)[0] >> 20)
try: mmap.mmap(-1, 1 << 40, mmap.MAP_PRIVATE | 0x4000, mmap.PROT_READ)
except OSError as error: print(error.errno)
"""


@pytest.fixture(scope='module')
def uncounted():
  """A pool without cgroups, as an ordinary user has it."""
  with SandboxPool(1, min_tier='T2', disable=['cgroup']) as made:
    yield made


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize('zygote', [False, True])
def test_page_tables_are_bounded_before_anyone_looks(uncounted, zygote):
  """A terabyte that is only read holds two gigabytes of page tables."""
  result = uncounted.submit(
    Job(
      f'space-{zygote}',
      'main.py',
      files={'main.py': SPACE},
      zygote=zygote,
      limits=Limits(timeout_s=30, memory_mb=256),
    )
  ).result(60)
  most, error = map(int, result.output.split())
  assert error == 12 and result.outcome is Outcome.OK
  held = 256 * _job.SPACE_FACTOR
  assert held <= most < 2 * held and (most > held) is zygote
  # One table of 4 KB for 2 MB: an eighth of the limit.
  assert held / 512 == 256 / 8


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_numerical_stack_has_space_in_the_smallest_limits(uncounted):
  script = 'import sklearn.ensemble, pandas, numpy; print(numpy.ones(9).sum())'
  result = uncounted.submit(
    Job(
      'stack',
      'main.py',
      files={'main.py': script},
      limits=Limits(timeout_s=60, memory_mb=256),
    )
  ).result(90)
  assert (result.outcome, result.output) == (Outcome.OK, '9.0\n'), result


def test_a_look_is_not_put_off_because_the_machine_is_busy(monkeypatch):
  """It took a second of the clock, a millisecond of our own time."""
  clock = types.SimpleNamespace(now=100.0, own=5.0)
  monkeypatch.setattr(_watch.time, 'monotonic', lambda: clock.now)
  monkeypatch.setattr(_watch.time, 'process_time', lambda: clock.own)
  pace = _watch._Pace()
  with pace:
    clock.now += 1.0
    clock.own += 0.001
  assert pace.at == pytest.approx(clock.now + _watch.TICK_S)
  with pace:
    clock.own += 0.2  # what is dear is looked at more seldom
  assert pace.at == pytest.approx(clock.now + 2.0)


@pytest.mark.parametrize(
  'namespaces, used, reason',
  [(False, 11, 'disk'), (False, 10, ''), (True, 11, '')],
)
def test_what_lies_on_the_disk_at_the_end_counts(namespaces, used, reason):
  watch = types.SimpleNamespace(
    room=types.SimpleNamespace(namespaces=namespaces), disk=10, reason=''
  )
  _watch.Watch.judge_disk(watch, used)
  assert watch.reason == reason


def test_an_earlier_reason_stays():
  watch = types.SimpleNamespace(
    room=types.SimpleNamespace(namespaces=False), disk=10, reason='timeout'
  )
  _watch.Watch.judge_disk(watch, 11)
  assert watch.reason == 'timeout'


def test_a_stream_keeps_its_ends_whatever_comes_between():
  stream = _watch._Stream(-1, 100)
  stream.add(b'first' + b'.' * 200)
  for _ in range(2000):
    stream.add(b'x' * 65536)
  stream.add(b'last')
  assert len(stream.head) + len(stream.tail) < 300_000
  text = stream.text()
  assert text.startswith('first') and text.endswith('xlast') and len(text) < 230
  assert stream.taken == 205 + 2000 * 65536 + 4
