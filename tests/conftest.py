"""Options of the whole suite."""

import gc
import os
import pathlib
import resource
import shutil
import sys
import tempfile

import pytest

_COMPILED = pytest.StashKey[str]()
MOST_RESIDENT_BYTES = 2 << 30


@pytest.fixture(scope='module', autouse=True)
def _forget_compiled_programs():
  """Programs of finished files go once they are many: all hold 4 GB."""
  yield
  if 'jax' in sys.modules and _resident_bytes() > MOST_RESIDENT_BYTES:
    sys.modules['jax'].clear_caches()
    gc.collect()


def _resident_bytes() -> int:
  pages = pathlib.Path('/proc/self/statm').read_text().split()[1]
  return int(pages) * resource.getpagesize()


def pytest_configure(config):
  """Compiling takes most of the time: done fast, and once for all tests.

  Whole jobs alone are compiled as a user's are (`tests.loops.environment`).
  """
  os.environ.setdefault('XLA_FLAGS', '--xla_backend_optimization_level=0')
  folder = config.stash[_COMPILED] = tempfile.mkdtemp(prefix='tests-xla-')
  os.environ.setdefault('JAX_COMPILATION_CACHE_DIR', folder)
  os.environ.setdefault('JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS', '0')


def pytest_unconfigure(config):
  shutil.rmtree(config.stash[_COMPILED], ignore_errors=True)


def pytest_addoption(parser):
  parser.addoption(
    '--all',
    action='store_true',
    help='also run the tests marked quiet, which want an otherwise idle '
    'machine (long runs from start to end, every attack on the sandbox)',
  )


def pytest_collection_modifyitems(config, items):
  if config.getoption('--all'):
    return
  skip = pytest.mark.skip(reason='marked quiet: run with --all')
  for item in items:
    if 'quiet' in item.keywords:
      item.add_marker(skip)
