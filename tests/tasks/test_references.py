"""Reference solutions learn from the data, not from how a stand-in was made."""

from __future__ import annotations

import ast
import pathlib

import pytest

_TASKS = pathlib.Path(__file__).parents[2] / 'tasks'
_FOLDERS = sorted(p.parents[1] for p in _TASKS.glob('*/solution/reference.py'))
# Round numbers are in any program.
_ROUND = {k / 20 for k in range(41)} | {10.0**-k for k in range(12)}


def _odd_numbers(path: pathlib.Path) -> set[float]:
  """Numbers with a fraction that stand in a script, but for round ones."""
  return {
    node.value
    for node in ast.walk(ast.parse(path.read_text('utf-8')))
    if isinstance(node, ast.Constant)
    and isinstance(node.value, float)
    and not node.value.is_integer()
  } - _ROUND


@pytest.mark.parametrize('folder', _FOLDERS, ids=lambda path: path.name)
def test_no_constant_of_a_stand_in_is_in_a_solution(folder):
  made_with = _odd_numbers(folder / 'scripts/prepare.py')
  for script in ('env/train.py', 'solution/reference.py'):
    assert not _odd_numbers(folder / script) & made_with, script
