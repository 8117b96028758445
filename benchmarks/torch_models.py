"""Models of `transformers` on PyTorch, to compare with."""

from __future__ import annotations

from typing import Any

from jaxagent.models import ModelConfig


def qwen2(model: ModelConfig) -> Any:
  """A Qwen2 of this shape with random float32 weights, ready to be trained."""
  import torch
  from transformers import AutoModelForCausalLM, Qwen2Config

  net = AutoModelForCausalLM.from_config(
    Qwen2Config(**model.to_hf()),
    dtype=torch.float32,
    attn_implementation='sdpa',
  )
  net.train()
  net.config.use_cache = False
  return net
