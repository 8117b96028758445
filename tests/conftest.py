"""Options of the whole suite."""

import gc
import pathlib
import resource
import sys

import pytest


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
