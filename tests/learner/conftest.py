"""A tiny model and made-up samples."""

from __future__ import annotations

import os

os.environ.setdefault('JAX_PLATFORMS', 'cpu')

import numpy as np
import pytest

from jaxagent import types
from jaxagent.models import ModelConfig


@pytest.fixture(scope='session')
def model_config() -> ModelConfig:
  return ModelConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=1,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
  )


def make_samples(
  n: int, seed: int = 0, group: int = 4, observation: bool = True
) -> list[types.Sample]:
  """Samples of different lengths; every third has observation tokens."""
  rng = np.random.default_rng(seed)
  samples = []
  for i in range(n):
    prompt = rng.integers(1, 64, rng.integers(3, 12)).astype(np.int32)
    response = rng.integers(1, 64, rng.integers(4, 20)).astype(np.int32)
    mask = np.ones(len(response), bool)
    if observation and i % 3 == 0:
      mask[1:3] = False
    samples.append(
      types.Sample(
        prompt_id=f'0/{i}/0',
        group_id=str(i // group),
        prompt_ids=prompt,
        token_ids=response,
        loss_mask=mask,
        behaviour_logprobs=np.full(len(response), -4.2, np.float32),
        version=0,
        outcome=types.Outcome.OK,
        reward=float(rng.random()),
        exec_s=float(1 + rng.random()),
      )
    )
  return samples
