"""Qwen2 and Qwen3 decoders in Flax NNX, and what moves their weights.

Public names are loaded on first use, so that options are read without jax.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_HOME = {
  'Decoder': 'decoder',
  'ModelConfig': 'config',
  'ValueModel': 'value',
  'abstract_decoder': 'decoder',
  'abstract_value': 'value',
  'init_decoder': 'decoder',
  'split_model': 'decoder',
  'token_logprobs': 'logprobs',
}

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


def __getattr__(name: str) -> Any:
  if name not in _HOME:
    raise AttributeError(f'jaxagent.models has no {name!r}.')
  return getattr(
    importlib.import_module(f'jaxagent.models.{_HOME[name]}'), name
  )
