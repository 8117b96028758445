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
  ran = np.array([s.info.get('tier') is not None for s in samples], bool)
  uncapped, about = _uncapped(config, samples, ran)
  cap = config.weight_cap if config.weighting == 'duration' else 0
  # All B under a mask: each number of steps that ran would be a new shape,
  # compiled in the middle of the run.
  capped = np.asarray(algorithms.capped_weights(uncapped, cap, ran))
  metrics = _metrics(uncapped[ran], capped[ran], cap)
  return np.where(ran, capped, 1).astype(np.float32), metrics | about


def _uncapped(
  config, samples: Sequence[Sample], ran: np.ndarray
) -> tuple[np.ndarray, dict[str, float]]:
  """float32 [B]: weights where something was executed; and metrics."""
  durations = np.asarray([s.exec_s for s in samples], np.float32)
  weights, kept = np.ones(len(samples), np.float32), int(ran.sum())
  if kept and config.weighting == 'duration':
    return np.asarray(algorithms.duration_weights(durations, valid=ran)), {}
  if kept and config.weighting == 'inclusion' and config.rest == 'cancel':
    weights[ran], about = algorithms.inclusion_weights_with_metrics(
      durations[ran],
      kept,
      n_dispatched=int(np.ceil(config.oversample * kept)),
    )
    return weights, {k: float(v) for k, v in about.items()}
  return weights, {}


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
