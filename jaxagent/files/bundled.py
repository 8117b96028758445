"""Where the configs and tasks that come with jaxagent lie: in a checkout or a wheel."""

from __future__ import annotations

import pathlib

_PACKAGE = pathlib.Path(__file__).resolve().parents[1]
# A wheel has them within the package (`setup.py`), a checkout beside it.
_IN_WHEEL = _PACKAGE / '_bundled'


def root() -> pathlib.Path:
  """Returns the folder that holds `configs` and `tasks`."""
  return _IN_WHEEL if _IN_WHEEL.is_dir() else _PACKAGE.parent


def folder(name: str) -> pathlib.Path:
  """Returns the bundled folder of a name: 'configs' or 'tasks'."""
  return root() / name
