"""Options of the whole suite."""

import pytest


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
