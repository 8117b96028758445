"""Value model: the policy's trunk with a scalar head."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from jaxagent.models.config import ModelConfig
from jaxagent.models.decoder import Decoder, split_model


class ValueModel(nnx.Module):
  """tokens, positions, segment_ids, branches int32 [B, T] -> values float32 [B, T].

  The value at t belongs to the state after token t. The head starts at zero,
  so a fresh critic says 0 everywhere and the trunk is not shaken at first.
  """

  def __init__(self, config: ModelConfig, *, rngs: nnx.Rngs):
    # Tied, since a critic has no use for an output table.
    self.trunk = Decoder(config.replace(tie_word_embeddings=True), rngs=rngs)
    # Trained in any case, and so float32 beside a base in less.
    dtype = jnp.dtype('float32' if config.lora_rank else config.param_dtype)
    self.head = nnx.Param(jnp.zeros((config.hidden_size,), dtype))

  def __call__(
    self,
    tokens: jax.Array,
    positions: jax.Array,
    segment_ids: jax.Array,
    branches: jax.Array | None = None,
  ) -> jax.Array:
    hidden = self.trunk(tokens, positions, segment_ids, branches)
    return hidden.astype(jnp.float32) @ self.head[...].astype(jnp.float32)


def abstract_value(config: ModelConfig) -> tuple[nnx.GraphDef, nnx.State]:
  """(graphdef, params) with shapes and dtypes only: nothing is allocated."""
  return split_model(
    nnx.eval_shape(lambda: ValueModel(config, rngs=nnx.Rngs(params=0)))
  )
