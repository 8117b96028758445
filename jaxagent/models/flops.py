"""FLOPs that a model needs, for plans and for the utilisation of a run."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from jaxagent.models.config import ModelConfig


def flops_per_token(
  model: ModelConfig, context: float, head: bool = True
) -> float:
  """One forward pass: 2 a weight used, plus 4 L H h (context / 2).

  `context` is the mean length of a sequence: a causal token sees half of it
  on average, in two products of 2 H h each. The input table is looked up,
  not multiplied; `head` counts the output table.
  """
  table = model.vocab_size * model.hidden_size
  body = model.num_params() - table * (1 if model.tie_word_embeddings else 2)
  width = model.num_attention_heads * model.head_dim
  attention = 4 * model.num_hidden_layers * width * context / 2
  return 2.0 * (body + (table if head else 0)) + attention


def training_factor(model: ModelConfig) -> int:
  """Forward and backward over forward: 3.

  A frozen base needs no weight gradients: its backward costs one forward.
  """
  return 2 if model.lora_rank else 3


def training_flops(
  model: ModelConfig,
  lengths: Iterable[int],
  head: bool = True,
  before: Iterable[int] | None = None,
) -> float:
  """Forward and backward over texts of `lengths`, nothing computed again.

  before: tokens in front of each that it sees and that are counted elsewhere.
  """
  before = itertools.repeat(0) if before is None else before
  forward = sum(
    n * flops_per_token(model, n + 2 * seen, head)
    for n, seen in zip(lengths, before)
  )
  return training_factor(model) * forward
