"""Options of the whole suite."""

import fcntl
import gc
import os
import pathlib
import resource
import shutil
import sys
import tempfile

import pytest

from tests import runs

_SHARED = pytest.StashKey[str]()
MOST_RESIDENT_BYTES = 2 << 30
_GROWN_BYTES = 512 << 20
_KEPT = [0]  # bytes that stayed resident when programs were last forgotten
_KEPT_ROOM: list['_Room'] = []


@pytest.fixture(scope='module', autouse=True)
def _forget_compiled_programs():
  """Programs of finished files go once they are many: all hold 4 GB.

  What stays resident is more than the bound from then on: they go again when as
  much as before has come to it, not after each of the files that follow.
  """
  yield
  most = max(MOST_RESIDENT_BYTES, _KEPT[0] + _GROWN_BYTES)
  if 'jax' in sys.modules and _resident_bytes() > most:
    sys.modules['jax'].clear_caches()
    gc.collect()
    _KEPT[0] = _resident_bytes()


def _resident_bytes() -> int:
  pages = pathlib.Path('/proc/self/statm').read_text().split()[1]
  return int(pages) * resource.getpagesize()


def pytest_configure(config):
  """Compiling takes most of the time: done fast, and once for all tests.

  Whole jobs alone are compiled as a user's are (`tests.runs.environment`).
  """
  os.environ.setdefault('XLA_FLAGS', runs.QUICK)
  if hasattr(config, 'workerinput'):
    return  # one of several workers, which share the first process's folder
  folder = config.stash[_SHARED] = tempfile.mkdtemp(prefix='tests-shared-')
  os.environ['JAXAGENT_TESTS_SHARED'] = folder  # also tests.runs.share_tasks
  os.environ.setdefault('JAX_COMPILATION_CACHE_DIR', f'{folder}/xla')
  os.environ.setdefault('JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS', '0')


def pytest_unconfigure(config):
  if _SHARED in config.stash:
    shutil.rmtree(config.stash[_SHARED], ignore_errors=True)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
  """Tests that measure time run beside no other.

  Those that follow each other keep the room: after each, the other worker would have
  its turn, and they would wait for a test of its own as often.
  """
  room = _KEPT_ROOM.pop() if _KEPT_ROOM else _Room(alone=_is_alone(item))
  try:
    return (yield)
  finally:
    if _is_alone(item) and _is_alone(nextitem):
      _KEPT_ROOM.append(room)
    else:
      room.leave()


def _is_alone(item: pytest.Item | None) -> bool:
  marks = item.iter_markers() if item else ()
  return bool({mark.name for mark in marks} & {'alone', 'quiet'})


class _Room:
  """Readers and a writer over the workers of one machine.

  Two locks, on what is there anyway: who waits for the room holds the door, so
  that no newcomer keeps it waiting.
  """

  def __init__(self, alone: bool):
    here = pathlib.Path(__file__)
    door, room = (os.open(path, os.O_RDONLY) for path in (here.parent, here))
    self._locks = door, room
    kind = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
    try:
      fcntl.flock(door, kind)
      fcntl.flock(room, kind)
      fcntl.flock(door, fcntl.LOCK_UN)
    except BaseException:
      self.leave()
      raise

  def leave(self) -> None:
    """Unlocks both."""
    for lock in self._locks:
      # Told, not only closed: what a test forked may hold a copy.
      fcntl.flock(lock, fcntl.LOCK_UN)
      os.close(lock)


def _long_files_first(items) -> None:
  """Those with whole jobs: begun last, one would keep a single worker busy.

  Of the sandbox's own, none: their slow tests run beside nothing anyway.
  """
  long = {
    item.path
    for item in items
    if 'slow' in item.keywords and item.path.parent.name != 'sandbox'
  }
  items.sort(key=lambda item: item.path not in long)


def pytest_collection_finish(session):
  """Modules and tests stay to the end: no collection of garbage visits them again."""
  gc.collect()
  gc.freeze()


def pytest_addoption(parser):
  parser.addoption(
    '--all',
    action='store_true',
    help='also run the tests marked quiet, which want an otherwise idle '
    'machine (long runs from start to end, every attack on the sandbox)',
  )


def pytest_collection_modifyitems(config, items):
  _long_files_first(items)
  if config.getoption('--all'):
    return
  skip = pytest.mark.skip(reason='marked quiet: run with --all')
  for item in items:
    if 'quiet' in item.keywords:
      item.add_marker(skip)
