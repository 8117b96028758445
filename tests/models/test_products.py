"""Products with placed weights: what is gathered and summed, and in which type."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh

from jaxagent.devices import placement, sharding
from jaxagent.models import products


def _equations(jaxpr):
  """All equations of a jaxpr, those within others too."""
  for one in jaxpr.eqns:
    yield one
    for inner in jax.core.jaxprs_in_params(one.params):
      yield from _equations(inner)


def _gradients(dtype: str, shape=(2, 4, 1)) -> list:
  """Equations of both gradients of a product [16, 32] @ [32, 64] in bfloat16."""
  place = placement.Placement(AbstractMesh(shape, sharding.AXES), dtype)

  def loss(x, weight, bias):
    with placement.use(place):
      (y,) = products.products(x, [weight], [bias], [('embed', 'mlp')])
    return jnp.sum(y.astype(jnp.float32))

  x = jnp.ones((16, 32), jnp.bfloat16)
  args = x, jnp.ones((32, 64)), jnp.ones(64)
  return list(
    _equations(jax.make_jaxpr(jax.grad(loss, (0, 1, 2)))(*args).jaxpr)
  )


def _named(equations, name):
  return [e for e in equations if e.primitive.name.startswith(name)]


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_gradients_are_summed_once_in_the_type_that_is_asked(dtype):
  found = _gradients(dtype)
  (scattered,) = _named(found, 'reduce_scatter')
  assert scattered.invars[0].aval.shape == (32, 64)
  assert scattered.invars[0].aval.dtype == dtype
  # Over data a device's part alone, and the bias, which has no part.
  sums = [v.aval for e in _named(found, 'psum') for v in e.invars]
  assert sorted(a.shape for a in sums if a.shape) == [(8, 64), (64,)]
  assert {str(a.dtype) for a in sums if a.shape} == {dtype}


def test_weights_are_gathered_in_the_compute_type():
  held = _named(_gradients('float32'), 'sharding_constraint')
  of_weights = [
    e.outvars[0].aval for e in held if e.outvars[0].aval.shape == (32, 64)
  ]
  assert {str(a.dtype) for a in of_weights} == {'bfloat16'}


def test_without_a_placement_a_product_is_plain():
  jaxpr = jax.make_jaxpr(
    lambda x, w: products.products(x, [w], [None], [('embed', 'mlp')])[0]
  )(jnp.ones((4, 8)), jnp.ones((8, 2)))
  assert [e.primitive.name for e in jaxpr.jaxpr.eqns] == ['dot_general']
