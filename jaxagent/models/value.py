"""Value model: the policy's trunk with a scalar head."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from jaxagent.models.config import ModelConfig
from jaxagent.models.decoder import Decoder, split_model


class ValueModel(nnx.Module):
  """tokens, positions, segment_ids int32 [B, T] -> values float32 [B, T].

  The value at t belongs to the state after token t. The head starts at zero,
  so a fresh critic says 0 everywhere and the trunk is not shaken at first.
  """

  def __init__(self, config: ModelConfig, *, rngs: nnx.Rngs):
    # Tied, since a critic has no use for an output table.
    self.trunk = Decoder(config.replace(tie_word_embeddings=True), rngs=rngs)
    dtype = jnp.dtype(config.param_dtype)
    self.head = nnx.Param(jnp.zeros((config.hidden_size,), dtype))

  def __call__(
    self, tokens: jax.Array, positions: jax.Array, segment_ids: jax.Array
  ) -> jax.Array:
    hidden = self.trunk(tokens, positions, segment_ids)
    return hidden.astype(jnp.float32) @ self.head[...].astype(jnp.float32)


def init_value(
  config: ModelConfig, seed: int
) -> tuple[nnx.GraphDef, nnx.State]:
  """A value model with a random trunk, split."""
  return split_model(ValueModel(config, rngs=nnx.Rngs(params=seed)))


def abstract_value(config: ModelConfig) -> tuple[nnx.GraphDef, nnx.State]:
  """(graphdef, params) with shapes and dtypes only: nothing is allocated."""
  return split_model(
    nnx.eval_shape(lambda: ValueModel(config, rngs=nnx.Rngs(params=0)))
  )


def value_from_policy(
  config: ModelConfig, params: nnx.State
) -> tuple[nnx.GraphDef, nnx.State]:
  """(graphdef, params) of a value model whose trunk is a copy of `params`.

  The copy is real: donating either model's buffers leaves the other whole.
  """
  graphdef, abstract = abstract_value(config)
  trunk = nnx.to_pure_dict(params)
  trunk.pop('lm_head', None)
  pure = {
    'trunk': jax.tree.map(jnp.copy, trunk),
    'head': jnp.zeros((config.hidden_size,), jnp.dtype(config.param_dtype)),
  }
  nnx.replace_by_pure_dict(abstract, pure)
  return graphdef, abstract
