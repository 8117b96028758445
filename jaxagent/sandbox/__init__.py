"""Contained execution of model-written code. Imports no jax.

Public names are loaded on first use, so that the launcher process, which
shares this package, starts from the standard library alone.
"""

from __future__ import annotations

_HOME = {
  'SandboxPool': 'pool',
  'run_once': 'pool',
  'BackendError': 'errors',
  'TierError': 'errors',
  'Deadline': 'pool',
}

__all__ = sorted(_HOME)


def __getattr__(name: str):
  if name not in _HOME:
    raise AttributeError(f'jaxagent.sandbox has no {name!r}.')
  import importlib

  module = importlib.import_module(f'jaxagent.sandbox.{_HOME[name]}')
  return getattr(module, name)
