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
OTHERS = ('vllm', 'tpu', 'nccl', 'wandb', 'trackio', 'mlflow')


def named():
  """Requirements of setup.py, but for those of OTHERS."""
  tree = ast.parse((ROOT / 'setup.py').read_text())
  (call,) = [
    node
    for node in ast.walk(tree)
    if isinstance(node, ast.Call) and getattr(node.func, 'id', '') == 'setup'
  ]
  given = {k.arg: k.value for k in call.keywords}
  found = ast.literal_eval(given['install_requires'])
  for extra, names in ast.literal_eval(given['extras_require']).items():
    found += [] if extra in OTHERS else names
  return [Requirement(text) for text in found]


@pytest.fixture(scope='module')
def locked():
  lines = (ROOT / 'launch_scripts/locks/trainer.txt').read_text().splitlines()
  pairs = [line.split('==') for line in lines if not line.startswith('#')]
  assert all(name == canonicalize_name(name) for name, _ in pairs)
  return {name: Version(version) for name, version in pairs}


@pytest.mark.parametrize('need', named(), ids=str)
def test_a_dependency_is_locked_within_its_bounds(need, locked):
  version = locked[canonicalize_name(need.name)]
  assert version in need.specifier, version
  assert '<' in {spec.operator for spec in need.specifier}, 'no upper bound'


def test_scripts_install_by_the_lock_unless_told_otherwise(locked):
  script = (ROOT / 'launch_scripts/_environment.sh').read_text()
  assert 'locks/trainer.txt' in script
  assert re.search(r'JAXAGENT_UNLOCKED', script)
  assert {'jax', 'jaxlib', 'jax-cuda12-plugin', 'numpy', 'ray'} <= set(locked)
