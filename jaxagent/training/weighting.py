"""Weights of turns by duration or inclusion; the one place that computes them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from jaxagent import algorithms
from jaxagent.rollout.latency import GroupLatency
from jaxagent.types import Sample, Turn

if TYPE_CHECKING:
  from ml_collections import ConfigDict


def step_weights(
  config: ConfigDict,
  samples: Sequence[Sample],
  sojourns: GroupLatency | None = None,
) -> tuple[np.ndarray, dict[str, float]]:
  """Returns (float32 [S], metrics): the weight of each turn of the samples in order.

  'none' gives ones. 'duration' is paper 003, equation 3, cut at
  `config.weight_cap` times the mean (0: not cut). 'inclusion' is the inverse
  probability that a group which takes so long enters an update at all: under
  first-B-of-mB (`cancel`) it falls with duration, as it does where what is
  late is dropped; under `wait` and else under `carry_over` it is 1. It has a
  cap of its own, and needs the batch's `sojourns`.

  The mean is taken, and is 1, over `config.weight_mean`: 'executed', the steps
  that executed something, or 'batch', all steps, as in paper 003. With
  'executed' a step that executed nothing (a malformed response, List Files)
  has weight 1: it has no duration, and d / mean(d) with d near 0 would wipe
  out its penalty, as it does with 'batch'.

  Raises ValueError for a cap that is neither 0 nor 1 or more.
  """
  turns = [turn for sample in samples for turn in sample.steps()]
  counted = np.ones(len(turns), bool)
  if config.weighting == 'inclusion':
    uncapped, about = _inclusion(config, samples, sojourns)
  else:
    if config.weight_mean == 'executed':
      counted = np.array([t.ran for t in turns], bool)
    uncapped, about = _durations(config, turns, counted), {}
  cap = config.weight_cap if config.weighting == 'duration' else 0
  # All under a mask: each number of steps that ran would be a new shape,
  # compiled in the middle of the run.
  capped = np.asarray(
    algorithms.capped_weights(jnp.asarray(uncapped), cap, jnp.asarray(counted))
  )
  metrics = _metrics(uncapped[counted], capped[counted], cap)
  return np.where(counted, capped, 1).astype(np.float32), metrics | about


def _durations(
  config: ConfigDict, turns: Sequence[Turn], counted: np.ndarray
) -> np.ndarray:
  """Returns weights by duration, float32 [S], of mean 1 where `counted`."""
  if config.weighting != 'duration' or not counted.any():
    return np.ones(len(turns), np.float32)
  durations = np.asarray([t.exec_s for t in turns], np.float32)
  weights = algorithms.duration_weights(
    jnp.asarray(durations), valid=jnp.asarray(counted)
  )
  return np.asarray(weights)


def _inclusion(
  config: ConfigDict, samples: Sequence[Sample], sojourns: GroupLatency | None
) -> tuple[np.ndarray, dict[str, float]]:
  """Returns inclusion weights, float32 [S], of mean 1 over rows; and metrics."""
  p = inclusion_probabilities(config, samples, sojourns)
  weights, about = algorithms.inverse_probability_weights(jnp.asarray(p))
  repeats = [len(s.steps()) for s in samples]
  return (
    np.repeat(np.asarray(weights, np.float32), repeats),
    {k: float(v) for k, v in about.items()},
  )


def inclusion_probabilities(
  config: ConfigDict, samples: Sequence[Sample], sojourns: GroupLatency | None
) -> np.ndarray:
  """Returns the probability that a row's group enters an update, float32 [rows]."""
  dropped = config.rest == 'carry_over' and config.on_stale == 'drop'
  if not (config.rest == 'cancel' or dropped):
    return np.ones(len(samples), np.float32)
  if sojourns is None:
    raise ValueError(
      f'rest={config.rest!r}: the latencies of groups are needed.'
    )
  took = np.array([sojourns.of[s.prompt_id] for s in samples], np.float32)
  return _in_time(took, sojourns) if dropped else _among_first(took, sojourns)


def _in_time(took: np.ndarray, sojourns: GroupLatency) -> np.ndarray:
  """Returns P[the time until a group would be dropped is `took` or longer] [B]."""
  allowed = np.sort(np.asarray(sojourns.allowed, np.float32))
  if not allowed.size:
    return np.ones_like(took)
  late = np.searchsorted(allowed, took, side='left') / allowed.size
  return (1.0 - late).astype(np.float32)


def _among_first(took: np.ndarray, sojourns: GroupLatency) -> np.ndarray:
  """Returns P[fewer than `kept` of the others of a wave end before] [B]."""
  seconds = np.array([*sojourns.ended, *sojourns.cut], np.float32)
  ended = np.arange(len(seconds)) < len(sojourns.ended)
  # Padded to few lengths (fewer compilations); entries cut at 0 carry no information.
  room = 1 << max(6, (len(seconds) - 1).bit_length())
  missing = room - len(seconds)
  return np.asarray(
    _race(
      took,
      np.pad(seconds, (0, missing)),
      np.pad(ended, (0, missing)),
      sojourns.kept,
      sojourns.started,
    )
  )


@functools.partial(jax.jit, static_argnums=(3, 4))
def _race(
  took: jax.Array, seconds: jax.Array, ended: jax.Array, kept: int, started: int
):
  reference = algorithms.kaplan_meier(seconds, ended)
  return algorithms.inclusion_probabilities(took, kept, started, *reference)


def _metrics(
  uncapped: np.ndarray, capped: np.ndarray, cap: float
) -> dict[str, float]:
  """Returns metrics of the capped weights [R]; where nothing ran, all are 1."""
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
