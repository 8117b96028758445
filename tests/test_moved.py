"""Modules by their former names, for one version."""

import importlib
import subprocess
import sys

import pytest

import jaxagent
from jaxagent import interactions


def _python(program: str) -> subprocess.CompletedProcess:
  return subprocess.run(
    [sys.executable, '-c', program], capture_output=True, text=True, timeout=60
  )


def test_the_documented_former_import_works_and_names_the_new_one():
  done = _python('from jaxagent import summary; print(summary.load)')
  assert done.returncode == 0 and 'function load' in done.stdout
  message = 'jaxagent.summary is now jaxagent.analysis.summary'
  assert done.stderr.count(message) == 1


def test_a_name_that_never_was_is_an_error():
  done = _python('from jaxagent import sumary')
  assert done.returncode == 1 and "cannot import name 'sumary'" in done.stderr


@pytest.mark.parametrize('name', jaxagent._MOVED)
def test_every_former_module_is_where_it_is_said_to_be(name):
  module = importlib.import_module(jaxagent._MOVED[name])
  with pytest.warns(FutureWarning, match=f'jaxagent.{name} is now'):
    assert jaxagent.__getattr__(name) is module
  delattr(jaxagent, name)


@pytest.mark.parametrize(
  'former, now',
  [('Step', interactions.Transition), ('Progress', interactions.RolloutState)],
)
def test_classes_of_an_interaction_are_there_by_their_former_names(former, now):
  with pytest.warns(FutureWarning, match=f'{former} is now {now.__name__}'):
    assert getattr(interactions, former) is now
  with pytest.raises(AttributeError, match="no attribute 'Stp'"):
    _ = interactions.Stp
