"""The jitted update: the only place where gradients are taken.

Public names are loaded on first use, so that options are read without jax.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  from jaxagent.learner.config import LearnerConfig
  from jaxagent.learner.learner import Learner
  from jaxagent.learner.nonfinite import NonFiniteGradientError

_HOME = {
  'Learner': 'learner',
  'LearnerConfig': 'config',
  'NonFiniteGradientError': 'nonfinite',
}

__all__ = ['Learner', 'LearnerConfig', 'NonFiniteGradientError']


def __getattr__(name: str) -> Any:
  if name not in _HOME:
    raise AttributeError(f'jaxagent.learner has no {name!r}.')
  return getattr(
    importlib.import_module(f'jaxagent.learner.{_HOME[name]}'), name
  )
