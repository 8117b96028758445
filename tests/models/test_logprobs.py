"""Chunked log-probs against the plain formula, and what is never allocated."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxagent.models import ValueModel, token_logprobs
from tests.models.conftest import make_config


def _plain(hidden, table, ids, temperature):
  logp = jax.nn.log_softmax(hidden @ table.T / temperature)
  chosen = jnp.take_along_axis(logp, ids[..., None], -1)[..., 0]
  return chosen, -(jnp.exp(logp) * logp).sum(-1)


@pytest.mark.parametrize('chunk_rows', (1, 4, 1000))
def test_values_and_gradients_are_the_plain_ones(chunk_rows):
  rng = np.random.default_rng(0)
  hidden = jnp.asarray(rng.normal(size=(2, 5, 8)), jnp.float32)
  table = jnp.asarray(rng.normal(size=(31, 8)), jnp.float32)
  ids = rng.integers(0, 31, (2, 5))
  weights = rng.normal(size=(2, 2, 5)).astype(np.float32)

  def total(f):
    def loss(hidden, table):
      logp, entropy = f(hidden, table)
      return (weights[0] * logp + weights[1] * entropy).sum(), (logp, entropy)

    return jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))

  def chunked(h, t):
    return token_logprobs(
      h, t, ids, temperature=0.7, chunk_rows=chunk_rows, with_entropy=True
    )

  (_, got), grads = total(chunked)(hidden, table)
  (_, want), plain = total(lambda h, t: _plain(h, t, ids, 0.7))(hidden, table)
  for a, b in zip((*got, *grads), (*want, *plain)):
    np.testing.assert_allclose(a, b, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize('chunk_rows', (4, 1000))
def test_of_a_frozen_table_no_gradient_is_made(chunk_rows):
  rng = np.random.default_rng(0)
  hidden = jnp.asarray(rng.normal(size=(2, 5, 8)), jnp.float32)
  table = jnp.asarray(rng.normal(size=(31, 8)), jnp.float32)
  ids = rng.integers(0, 31, (2, 5))

  def grads(frozen):
    def loss(hidden, table):
      return token_logprobs(
        hidden, table, ids, chunk_rows=chunk_rows, frozen=frozen
      )[0].sum()

    return jax.grad(loss, (0, 1))

  want, got = grads(False)(hidden, table), grads(True)(hidden, table)
  np.testing.assert_array_equal(got[0], want[0])
  assert not np.any(got[1]) and np.any(want[1])
  made = {
    frozen: str(jax.make_jaxpr(grads(frozen))(hidden, table)).count(
      'f32[31,8] = dot_general'
    )
    for frozen in (False, True)
  }
  assert made == {False: 1, True: 0}


def test_no_logits_of_the_whole_batch_are_ever_held():
  """Temporaries of the compiled gradient stay far below [B*T, V] floats."""
  rows, vocab = 4096, 2048

  def loss(h, t):
    ids = jnp.zeros(rows, jnp.int32)
    return token_logprobs(h, t, ids, chunk_rows=128, with_entropy=True)[0].sum()

  shapes = (
    jax.ShapeDtypeStruct((rows, 16), jnp.float32),
    jax.ShapeDtypeStruct((vocab, 16), jnp.float32),
  )
  compiled = jax.jit(jax.grad(loss, (0, 1))).lower(*shapes).compile()
  held = compiled.memory_analysis().temp_size_in_bytes
  assert held < rows * vocab * 4 / 4, held


def test_bad_shapes():
  with pytest.raises(ValueError, match='must agree'):
    token_logprobs(jnp.ones((2, 3, 4)), jnp.ones((5, 4)), jnp.ones((2, 4), int))
  with pytest.raises(ValueError, match='chunk_rows=0'):
    token_logprobs(
      jnp.ones((3, 4)), jnp.ones((5, 4)), jnp.ones(3, int), chunk_rows=0
    )


@pytest.mark.parametrize('tied', (True, False))
def test_a_fresh_value_model_predicts_zero_and_has_no_output_table(tied):
  config = make_config('qwen3', tied=tied)
  model = ValueModel(config, rngs=nnx.Rngs(params=0))
  assert 'lm_head' not in nnx.state(model)['trunk']
  rows = (np.ones((2, 3), np.int32),) * 3
  out = nnx.jit(lambda m: m(*rows))(model)
  assert out.shape == (2, 3) and out.dtype == jnp.float32
  np.testing.assert_array_equal(out, 0)
