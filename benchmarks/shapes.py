"""Qwen2.5's shapes: what speed is measured on, with random weights."""

from __future__ import annotations

from typing import Any

from jaxagent.models import ModelConfig

_HALF: dict[str, Any] = {'dtype': 'bfloat16', 'param_dtype': 'bfloat16'}
SHAPES = {
  '0.5B': ModelConfig(
    vocab_size=151936, hidden_size=896, intermediate_size=4864,
    num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2,
    head_dim=64, rope_theta=1e6, **_HALF,
  ),
  '1.5B': ModelConfig(
    vocab_size=151936, hidden_size=1536, intermediate_size=8960,
    num_hidden_layers=28, num_attention_heads=12, num_key_value_heads=2,
    head_dim=128, rope_theta=1e6, **_HALF,
  ),
  '3B': ModelConfig(
    vocab_size=151936, hidden_size=2048, intermediate_size=11008,
    num_hidden_layers=36, num_attention_heads=16, num_key_value_heads=2,
    head_dim=128, rope_theta=1e6, **_HALF,
  ),
}  # fmt: skip
