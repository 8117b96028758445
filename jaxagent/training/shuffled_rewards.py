"""Control experiment: RL with the rewards shuffled among actions.

A run with `rl.shuffle_rewards` must not improve its policy. The critic's
warm-up is shuffled as well: a critic that knows real rewards tells good
states from bad ones, and its baseline is then wrong in one direction there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from jaxagent.interactions.rows import with_later_rewards
from jaxagent.types import Sample

if TYPE_CHECKING:
  from ml_collections import ConfigDict


def shuffled(
  samples: Sequence[Sample], config: ConfigDict, seed: Sequence[int]
) -> Sequence[Sample]:
  """Returns the samples, with rewards permuted if `config.shuffle_rewards` (rl).

  seed: of the permutation; another one for every batch.
  """
  if not config.shuffle_rewards:
    return samples
  rewards = [turn.reward for s in samples for turn in s.steps()]
  given = iter(np.random.default_rng(seed).permutation(rewards).tolist())
  return with_later_rewards([_with_rewards(s, given) for s in samples])


def _with_rewards(sample: Sample, given: Iterator[float]) -> Sample:
  if not sample.turns:
    return dataclasses.replace(sample, reward=next(given))
  turns = tuple(
    dataclasses.replace(turn, reward=next(given)) for turn in sample.turns
  )
  reward = sum(turn.reward for turn in turns)
  return dataclasses.replace(sample, turns=turns, reward=reward)
