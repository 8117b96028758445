"""Shared helpers: tiny configs of both families."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from jaxagent.models import ModelConfig

# (family, tied, q/k/v/o bias, heads, key heads, head_dim, rope_theta, eps)
CONFIGS = [
  ('qwen2', True, True, 4, 2, 16, 1e4, 1e-6),
  ('qwen2', False, True, 4, 4, 16, 1e6, 1e-6),
  ('qwen2', True, True, 4, 1, 16, 5e5, 1e-5),
  ('qwen2', False, True, 4, 2, 24, 1e6, 1e-6),
  ('qwen3', True, False, 4, 2, 16, 1e6, 1e-6),
  ('qwen3', False, False, 4, 1, 32, 1e4, 1e-6),
  ('qwen3', True, True, 4, 4, 8, 1e6, 1e-5),
  ('qwen3', False, True, 6, 3, 20, 2e6, 1e-6),
]


def make_config(
  family='qwen2',
  tied=True,
  bias=True,
  heads=4,
  kv=2,
  head_dim=16,
  theta=1e4,
  eps=1e-6,
  **changes,
) -> ModelConfig:
  """A two-layer model of width 48."""
  return ModelConfig(
    vocab_size=101,
    hidden_size=48,
    intermediate_size=80,
    num_hidden_layers=2,
    num_attention_heads=heads,
    num_key_value_heads=kv,
    head_dim=head_dim,
    model_type=family,
    rms_norm_eps=eps,
    rope_theta=theta,
    tie_word_embeddings=tied,
    attention_bias=bias,
    qk_norm=family == 'qwen3',
    max_position_embeddings=512,
    **changes,
  )


def shake(params, seed=0, scale=0.1):
  """Random values in every leaf: zero biases and unit norms prove nothing."""
  rng = np.random.default_rng(seed)

  def leaf(a):
    noise = rng.normal(size=a.shape, scale=scale).astype(np.float32)
    return (a + noise).astype(a.dtype)

  return jax.tree.map(leaf, params)


# One of each family in the fast subset.
PARAMS = [
  pytest.param(c, marks=() if i in (0, 7) else pytest.mark.slow)
  for i, c in enumerate(CONFIGS)
]


@pytest.fixture(params=PARAMS, ids=lambda c: '-'.join(map(str, c)))
def config(request) -> ModelConfig:
  return make_config(*request.param)
