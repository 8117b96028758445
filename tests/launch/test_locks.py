"""The trainer's lock has a version of all that setup.py names, inside its bounds."""

from __future__ import annotations

import ast
import pathlib
import re

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = pathlib.Path(__file__).parents[2]
# With environments of their own, or none of their own to try.
OTHERS = ('vllm', 'tpu', 'nccl')
TRACKERS = ('wandb', 'trackio', 'mlflow')


def extras():
  """The arguments `install_requires`, under '', and `extras_require` of setup.py."""
  tree = ast.parse((ROOT / 'setup.py').read_text())
  (call,) = [
    node
    for node in ast.walk(tree)
    if isinstance(node, ast.Call) and getattr(node.func, 'id', '') == 'setup'
  ]
  given = {k.arg: k.value for k in call.keywords}
  return {
    '': ast.literal_eval(given['install_requires']),
    **ast.literal_eval(given['extras_require']),
  }


def named():
  """Each requirement of setup.py, but for those of OTHERS, and the lock that has it."""
  for extra, names in extras().items():
    if extra not in OTHERS:
      lock = 'trackers.txt' if extra in TRACKERS else 'trainer.txt'
      for text in names:
        yield Requirement(text), lock


def locked(lock: str) -> dict[str, Version]:
  lines = (ROOT / 'launch_scripts/locks' / lock).read_text().splitlines()
  pairs = [line.split('==') for line in lines if not line.startswith('#')]
  assert all(name == canonicalize_name(name) for name, _ in pairs)
  return {name: Version(version) for name, version in pairs}


@pytest.mark.parametrize(('need', 'lock'), named(), ids=str)
def test_a_dependency_is_locked_within_its_bounds(need, lock):
  version = locked(lock)[canonicalize_name(need.name)]
  assert version in need.specifier, version


@pytest.mark.parametrize(
  'text', sorted({name for names in extras().values() for name in names})
)
def test_a_dependency_has_an_upper_bound(text):
  assert '<' in {spec.operator for spec in Requirement(text).specifier}


def test_scripts_install_by_the_lock_unless_told_otherwise():
  script = (ROOT / 'launch_scripts/_environment.sh').read_text()
  assert 'locks/trainer.txt' in script
  assert re.search(r'JAXAGENT_UNLOCKED', script)
  assert {'jax', 'jaxlib', 'jax-cuda12-plugin', 'numpy', 'ray'} <= set(
    locked('trainer.txt')
  )


def test_the_trackers_are_installed_within_the_bounds_of_their_extras():
  script = (ROOT / 'launch_scripts/trackers_env.sh').read_text()
  for name in TRACKERS:
    (need,) = extras()[name]
    assert f"'{need}'" in script and 'locks/trackers.txt' in script
