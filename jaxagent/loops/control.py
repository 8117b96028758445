"""The control of every claim of learning: rewards given to wrong actions.

A run with `rl.shuffle_rewards` must not improve its policy. The critic's
warm-up is shuffled as well: a critic that knows real rewards tells good
states from bad ones, and its baseline is then wrong in one direction there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxagent.types import Sample


def shuffled(
  samples: Sequence[Sample], config, seed: Sequence[int]
) -> Sequence[Sample]:
  """The samples, their rewards permuted where `config` (rl) asks for it.

  seed: of the permutation; another one for every batch.
  """
  if not config.shuffle_rewards:
    return samples
  order = np.random.default_rng(seed).permutation(len(samples))
  return tuple(
    dataclasses.replace(sample, reward=samples[j].reward)
    for sample, j in zip(samples, order)
  )
