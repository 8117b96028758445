"""Products with operands in bfloat16, what they leave alone, and weights drawn in it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxagent.models import (
  block_attention,
  init_decoder,
  products,
  rounding,
  token_logprobs,
)
from tests.models.conftest import make_config


def _drawn(*shape: int, seed: int = 0) -> jax.Array:
  drawn = np.random.default_rng(seed).normal(size=shape)
  return jnp.asarray(drawn, jnp.float32)


def _half(x: jax.Array) -> np.ndarray:
  """Rounded to bfloat16, in float64: what the products are to be made of."""
  return np.asarray(x.astype(jnp.bfloat16), np.float64)


def _products(jaxpr):
  """Operand types of each product of a jaxpr, those within others too."""
  for one in jaxpr.eqns:
    if one.primitive.name == 'dot_general':
      yield tuple(str(v.aval.dtype) for v in one.invars)
    for inner in jax.core.jaxprs_in_params(one.params):
      yield from _products(inner)


def _linear(dtype):
  def run(x, weight, bias):
    with rounding.use(dtype):
      (y,) = products.products(x, [weight], [bias], [('embed', 'mlp')])
    return y

  return run


def test_a_product_and_its_gradients_are_those_of_rounded_operands():
  x, weight, bias = _drawn(24, 16), _drawn(16, 40, seed=1), _drawn(40, seed=2)
  grad = _drawn(24, 40, seed=3)
  y, back = jax.vjp(_linear('bfloat16'), x, weight, bias)
  expected = _half(x) @ _half(weight) + np.asarray(bias)
  np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)
  d_x, d_weight, d_bias = back(grad)
  for got, exact in (
    (d_x, _half(grad) @ _half(weight).T),
    (d_weight, _half(x).T @ _half(grad)),
    (d_bias, np.asarray(grad, np.float64).sum(0)),
  ):
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(got, exact, rtol=1e-5, atol=1e-5)


def _log_probs(dtype):
  ids = jnp.arange(24) % 40

  def run(hidden, table):
    with rounding.use(dtype):
      logp, entropy = token_logprobs(hidden, table, ids, with_entropy=True)
    return logp + 0.1 * entropy

  return run, (_drawn(24, 16), _drawn(40, 16, seed=1))


def _attention(dtype):
  segments = jnp.repeat(jnp.arange(1, 5), 24)[None]

  def run(q, k, v):
    with rounding.use(dtype):
      return block_attention.attend(q, k, v, segments, None, 'out')

  shape = 1, 96, 2, 16
  return run, tuple(_drawn(*shape, seed=i) for i in range(3))


def _kernel(dtype):
  return _linear(dtype), (_drawn(24, 16), _drawn(16, 40, seed=1), _drawn(40))


MADE = {'kernel': _kernel, 'log-probs': _log_probs, 'attention': _attention}


@pytest.mark.parametrize('name', MADE)
def test_all_products_forward_and_backward_have_the_operands_that_are_asked(
  name,
):
  for dtype in '', 'bfloat16':
    run, args = MADE[name](dtype)
    loss = lambda *a, run=run: jnp.sum(jnp.tanh(run(*a)))  # noqa: E731
    both = jax.make_jaxpr(jax.grad(loss, range(len(args))))(*args)
    found = set(_products(both.jaxpr))
    assert found == {(dtype or 'float32',) * 2}


@pytest.mark.parametrize('name', MADE)
def test_gradients_stay_within_the_rounding_of_their_operands(name):
  def gradients(dtype):
    run, args = MADE[name](dtype)
    loss = lambda *a: jnp.sum(jnp.tanh(run(*a)))  # noqa: E731
    grads = jax.jit(jax.grad(loss, range(len(args))))(*args)
    return np.concatenate([np.ravel(g) for g in grads])

  exact, rounded = gradients(''), gradients('bfloat16')
  far = np.linalg.norm(rounded - exact) / np.linalg.norm(exact)
  assert 1e-4 < far < 2e-2


def test_arrays_of_another_type_stay_as_they_are():
  x = jnp.ones((4, 4), jnp.bfloat16)
  with rounding.use('bfloat16'):
    assert rounding.product(x, x).dtype == jnp.bfloat16
    assert rounding.rounded(x, 'bfloat16') is x
  assert rounding.here() == ''


def test_weights_drawn_in_bfloat16_are_those_of_float32_rounded():
  half = init_decoder(make_config(param_dtype='bfloat16'), 0)[1]
  whole = init_decoder(make_config(), 0)[1]
  for got, drawn in zip(jax.tree.leaves(half), jax.tree.leaves(whole)):
    assert got.dtype == jnp.bfloat16
    np.testing.assert_array_equal(
      got.astype(jnp.float32), _half(drawn).astype(np.float32)
    )
