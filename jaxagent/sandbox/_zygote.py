"""What a zygote imports once, so that jobs forked from it need not.

Standard library only: it runs in the launcher and in containers.
"""

from __future__ import annotations

import gc
import importlib
import os
import warnings

MODULES = (
  'numpy numpy.random numpy.linalg numpy.fft pandas scipy scipy.sparse '
  'scipy.stats scipy.optimize scipy.special scipy.linalg sklearn '
  'sklearn.pipeline sklearn.preprocessing sklearn.linear_model '
  'sklearn.ensemble sklearn.tree sklearn.neighbors sklearn.naive_bayes '
  'sklearn.svm sklearn.decomposition sklearn.feature_extraction.text '
  'sklearn.feature_selection sklearn.impute sklearn.compose sklearn.metrics '
  'sklearn.model_selection sklearn.neural_network sklearn.cluster '
  'sklearn.kernel_ridge sklearn.discriminant_analysis sklearn.dummy '
  'sklearn.multiclass sklearn.calibration sklearn.datasets '
  'sklearn.gaussian_process sklearn.random_projection '
  'csv json math re random collections itertools functools statistics '
  'datetime time pathlib io string warnings'
).split()


def warm_up() -> list[str]:
  """Imports the stack; returns the modules that are not there.

  Raises RuntimeError where an import has left a thread running: a fork would
  lose it with whatever it holds.
  """
  missing = []
  with warnings.catch_warnings():
    warnings.simplefilter('ignore')
    for name in MODULES:
      try:
        importlib.import_module(name)
      except ImportError:
        missing.append(name)
  gc.collect()
  gc.freeze()
  if len(os.listdir('/proc/self/task')) > 1:
    raise RuntimeError('the zygote has threads; it must have none.')
  return missing
