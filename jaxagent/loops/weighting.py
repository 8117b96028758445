"""Durations become weights here, and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jaxagent import algorithms
from jaxagent.types import Sample


def step_weights(config, samples: Sequence[Sample]) -> np.ndarray:
  """float32 [B] of mean 1: `config.weighting` applied to the exec clocks.

  'none' gives ones; 'duration' is paper 003, equation 3; 'inclusion' is the
  inverse probability of having been included, which under first-B-of-mB
  (`cancel`) falls with duration and is 1 under `carry_over` and `wait`.
  """
  durations = np.asarray([s.exec_s for s in samples], np.float32)
  if config.weighting == 'duration':
    return np.asarray(algorithms.duration_weights(durations))
  if config.weighting == 'inclusion' and config.rest == 'cancel':
    kept = len(samples)
    started = int(np.ceil(config.oversample * kept))
    return np.asarray(
      algorithms.inclusion_weights(durations, kept, n_started=started)
    )
  return np.ones_like(durations)
