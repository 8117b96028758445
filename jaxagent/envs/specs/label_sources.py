"""Labels that lie where scripts may read: the interpreter's own packages.

A bundled task is made from data that comes with a package; what the sandbox
shows of that package would give a script the hidden rows. A task says so in
`task.yaml`: `hides` names the folders that the sandbox covers for it, `exposed`
what cannot be covered, and then its rewards are not to be trusted.
"""

from __future__ import annotations

import glob
import pathlib
import sys
from collections.abc import Iterable

from jaxagent.envs.specs import interpreters
from jaxagent.types import TaskSpec

# Packages of other interpreters, which a job sees as well.
_ELSEWHERE = (
  '/usr/lib/python3*/*-packages',
  '/usr/lib64/python3*/*-packages',
  '/usr/local/lib/python3*/*-packages',
  '/usr/local/lib64/python3*/*-packages',
)


def folders(specs: Iterable[TaskSpec]) -> list[pathlib.Path]:
  """Every copy on this machine of what the tasks hide; sorted, real paths."""
  found = set()
  specs = list(specs)
  everywhere = _package_folders()
  for python in interpreters.of_all(specs):
    everywhere |= interpreters.package_folders(python)
  for spec in specs:
    for name in spec.hides:
      for packages in everywhere:
        if (packages / name).is_dir():
          found.add((packages / name).resolve())
  return sorted(found)


def _package_folders() -> set[pathlib.Path]:
  places = [pathlib.Path(p) for p in sys.path if p]
  for prefix in (sys.prefix, sys.base_prefix):
    places += pathlib.Path(prefix).glob('lib*/python3*/*-packages')
  for pattern in _ELSEWHERE:
    places += map(pathlib.Path, glob.glob(pattern))
  return {p.resolve() for p in places if p.is_dir()}


def untrusted(spec: TaskSpec, tier: str | None) -> str:
  """'' or why a reward of this task, run at `tier`, may have been cheated.

  tier: of the sandbox; None where nothing was run.
  """
  if tier == 'T0':
    return 'tier T0 contains nothing'
  return f'labels exposed: {spec.exposed}' if spec.exposed else ''
