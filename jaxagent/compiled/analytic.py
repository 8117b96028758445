"""Communication of a mesh for one micro-batch, worked out by hand.

Bytes of the results of collectives on one device, as `hlo.collectives` counts them.
data x fsdp x tensor = d x f x t; N tokens of a device (the `tensor` devices of a group
have the same ones); L layers of width D; V entries of the vocabulary; M weights of all
kernels of the layers, B biases, S scales of norms. c bytes of the compute type, r of
the type that gradients are reduced in; XLA on CPUs moves bfloat16 as float32, c = 4.

weights   f > 1: all-gather of each kernel, c M / t, for the forward pass, and once
          more for the backward pass. Of each table, c V D / t: what tokens
          are looked up in and the loss head multiplies by, once each, once in all
          where tied.
gradients reduced once in r. f > 1: reduce-scatter, whose result is a device's part,
          r (M + tables) / (f t), and on a TPU's torus of three dimensions, where a
          plane of p chips comes first, r (M + tables) / (p t) before it; d > 1:
          all-reduce of that part. Biases, r B / t, and
          scales, r S, are whole on every device: an all-reduce where d f > 1.
tensor    t > 1: all-reduce of activations, c N D each. Forward two a layer (after o
          and down) and one of the looked-up tokens; backward two a layer (before q, k,
          v and before gate, up), one of the loss head; with remat one more a layer,
          for the feed-forward needs what attention left. Softmax over a split
          vocabulary: three sums or maxima of [N] in float32 forward.
results   log-probs and values are whole on every device: all-gather of 4 bytes for
          each token of the micro-batch where d f > 1.

Sums of metrics and of norms, some bytes each, are left out.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping

from jaxagent import plan
from jaxagent.compiled.programs import Run
from jaxagent.models import ModelConfig

_GRADS = {'policy_grads', 'value_grads'}
_PASSES = {'logprobs', 'reference_logprobs', 'values'} | _GRADS
_CRITIC = {'values', 'value_grads'}


def model_flops(run: Run, program: str) -> float:
  """FLOPs that the model needs for a call of a program on the whole mesh, or 0.

  Forward 1, backward 2, without what is computed again; each row one text.
  """
  if program not in _PASSES:
    return 0.0
  critic = program in _CRITIC
  model = (run.critic or run.model) if critic else run.model
  each = plan.flops_per_token(model, run.row_tokens, head=not critic)
  passes = (2 if model.lora_rank else 3) if program in _GRADS else 1
  return passes * each * run.rows * run.row_tokens


class Volumes:
  """The volume of each program of a run, by kind of collective.

  sizes: of the mesh's axes; platform: of its devices, as jax names it. plane: chips
  that a reduce-scatter begins with where it is done in two stages, else 0.
  """

  def __init__(
    self, run: Run, sizes: Mapping[str, int], platform: str, plane: int = 0
  ):
    self.run, self.platform, self.plane = run, platform, plane
    self.d, self.f, self.t = (
      sizes[axis] for axis in ('data', 'fsdp', 'tensor')
    )
    self.tokens = run.rows * run.row_tokens // (self.d * self.f)

  def of(self, program: str) -> dict[str, int] | None:
    """Bytes by kind, as the docstring of this file has it; None where it says nothing."""
    if program.endswith('_step'):
      return {}
    if program not in _PASSES:
      return None
    critic = program in _CRITIC
    model = (self.run.critic or self.run.model) if critic else self.run.model
    if model.lora_rank:  # most gradients are not made
      return None
    total: collections.Counter = collections.Counter()
    total.update(self._weights(model, critic, program in _GRADS))
    total.update(self._activations(model, critic, program in _GRADS))
    if program in _GRADS:
      total.update(self._gradients(model, critic))
    elif self.d * self.f > 1:
      total['all-gather'] += 4 * self.run.rows * self.run.row_tokens
    return {kind: int(size) for kind, size in total.items() if size}

  def _width(self, model: ModelConfig) -> int:
    wide = self.platform == 'cpu' or model.dtype != 'bfloat16'
    return 4 if wide else 2

  def _weights(
    self, model: ModelConfig, critic: bool, grads: bool
  ) -> dict[str, float]:
    if self.f == 1:
      return {}
    kernels, tables, _, _ = counts(model, critic)
    passes = 2 if grads else 1
    size = self._width(model) * (passes * kernels + tables) / self.t
    return {'all-gather': size}

  def _gradients(self, model: ModelConfig, critic: bool) -> dict[str, float]:
    if self.d * self.f == 1:
      return {}
    kernels, tables, biases, scales = counts(model, critic)
    wide = (
      self.platform == 'cpu' or self.run.options.grad_reduce_dtype == 'float32'
    )
    reduced = 4 if wide else 2
    split = reduced * (kernels + tables) / self.t
    whole = reduced * (biases / self.t + scales)
    if self.f == 1:
      return {'all-reduce': split + whole}
    part = split / self.f
    return {
      'reduce-scatter': part + (split / self.plane if self.plane else 0),
      'all-reduce': whole + (part if self.d > 1 else 0),
    }

  def _activations(
    self, model: ModelConfig, critic: bool, grads: bool
  ) -> dict[str, float]:
    if self.t == 1:
      return {}
    layers = 2 * model.num_hidden_layers
    sums = layers + 1
    if grads:
      sums += layers + (model.num_hidden_layers if model.remat != 'none' else 0)
      sums += 0 if critic else 1
    each = self._width(model) * self.tokens * model.hidden_size
    head = 0 if critic else 3 * 4 * self.tokens
    return {'all-reduce': sums * each + head}


def counts(model: ModelConfig, critic: bool) -> tuple[int, int, int, int]:
  """Weights: (kernels of the layers, tables, biases, scales of norms).

  A critic has the table that tokens are looked up in, and a head of one column,
  which is whole on every device as scales are.
  """
  d, h = model.hidden_size, model.head_dim
  q, kv = model.num_attention_heads * h, model.num_key_value_heads * h
  layers = model.num_hidden_layers
  kernels = layers * (2 * d * q + 2 * d * kv + 3 * d * model.intermediate_size)
  tables = model.vocab_size * d
  if not (critic or model.tie_word_embeddings):
    tables *= 2
  biases = layers * (q + 2 * kv) if model.attention_bias else 0
  biases += layers * d if model.output_bias else 0
  scales = layers * (2 * d + (2 * h if model.qk_norm else 0)) + d
  return kernels, tables, biases, scales + (d if critic else 0)
