"""Qwen2 and Qwen3 decoders in Flax NNX, and what moves their weights."""

from jaxagent.models.config import ModelConfig
from jaxagent.models.decoder import (
  Decoder,
  abstract_decoder,
  init_decoder,
  split_model,
)
from jaxagent.models.logprobs import token_logprobs
from jaxagent.models.value import (
  ValueModel,
  abstract_value,
)

__all__ = [
  'Decoder',
  'ModelConfig',
  'ValueModel',
  'abstract_decoder',
  'abstract_value',
  'init_decoder',
  'split_model',
  'token_logprobs',
]
