"""Durations become weights here, and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jaxagent import algorithms
from jaxagent.types import Sample


def step_weights(config, samples: Sequence[Sample]) -> np.ndarray:
  """float32 [B]: `config.weighting` applied to the execution clocks.

  'none' gives ones; 'duration' is paper 003, equation 3; 'inclusion' is the
  inverse probability of having been included, which under first-B-of-mB
  (`cancel`) falls with duration and is 1 under `carry_over` and `wait`.

  Weights have mean 1 over the steps that executed something. A step that
  executed nothing (a malformed response, List Files) has weight 1: it has no
  duration, and d / mean(d) with d near 0 would wipe out its penalty.
  """
  weights = np.ones(len(samples), np.float32)
  ran = np.array([s.info.get('tier') is not None for s in samples], bool)
  if config.weighting == 'none' or not ran.any():
    return weights
  durations = np.asarray([s.exec_s for s in samples], np.float32)[ran]
  if config.weighting == 'duration':
    weights[ran] = np.asarray(algorithms.duration_weights(durations))
  elif config.rest == 'cancel':
    kept = len(durations)
    weights[ran] = np.asarray(
      algorithms.inclusion_weights(
        durations,
        kept,
        n_dispatched=int(np.ceil(config.oversample * kept)),
      )
    )
  return weights
