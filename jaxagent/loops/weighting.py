"""Durations become weights here, and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jaxagent import algorithms
from jaxagent.types import Sample


def step_weights(
  config, samples: Sequence[Sample]
) -> tuple[np.ndarray, dict[str, float]]:
  """(float32 [B], metrics): `config.weighting` applied to the clocks.

  'none' gives ones; 'duration' is paper 003, equation 3, cut at
  `config.weight_cap` times the mean (0: not cut); 'inclusion' is the inverse
  probability of having been included, which under first-B-of-mB (`cancel`)
  falls with duration and is 1 under `carry_over` and `wait`; it has a cap of
  its own.

  Weights have mean 1 over the steps that executed something. A step that
  executed nothing (a malformed response, List Files) has weight 1: it has no
  duration, and d / mean(d) with d near 0 would wipe out its penalty.

  Raises ValueError for a cap that is neither 0 nor 1 or more.
  """
  weights = np.ones(len(samples), np.float32)
  ran = np.array([s.info.get('tier') is not None for s in samples], bool)
  uncapped, about = _uncapped(config, samples, ran)
  capped = uncapped
  cap = config.weight_cap if config.weighting == 'duration' else 0
  if ran.any():
    capped = np.asarray(algorithms.capped_weights(uncapped, cap))
  weights[ran] = capped
  return weights, _metrics(uncapped, capped, cap) | about


def _uncapped(
  config, samples: Sequence[Sample], ran: np.ndarray
) -> tuple[np.ndarray, dict[str, float]]:
  """float32 [R]: weights of the steps that executed something; metrics."""
  durations = np.asarray([s.exec_s for s in samples], np.float32)[ran]
  kept = len(durations)
  if kept and config.weighting == 'duration':
    return np.asarray(algorithms.duration_weights(durations)), {}
  if kept and config.weighting == 'inclusion' and config.rest == 'cancel':
    weights, about = algorithms.inclusion_weights_with_metrics(
      durations,
      kept,
      n_dispatched=int(np.ceil(config.oversample * kept)),
    )
    return np.asarray(weights), {k: float(v) for k, v in about.items()}
  return np.ones(kept, np.float32), {}


def _metrics(
  uncapped: np.ndarray, capped: np.ndarray, cap: float
) -> dict[str, float]:
  """What the cap did to the weights [R]; where nothing ran, all are 1."""
  if not len(capped):
    uncapped = capped = np.ones(1)
  w = capped.astype(np.float64)
  return {
    'duration/weight_capped_fraction': (
      float(np.mean(uncapped > cap)) if cap else 0.0
    ),
    'duration/weight_max_uncapped': float(uncapped.max()),
    'duration/weight_max': float(w.max()),
    'duration/weight_ess': float(w.sum() ** 2 / (len(w) * (w**2).sum())),
  }
