"""Products of float32 arrays with operands in bfloat16 and sums in float32.

A CPU with tiles (Intel's AMX) multiplies bfloat16 several times as fast as float32. XLA
takes them where both operands are bfloat16 and the result is float32, and nowhere else
(`findings/jax_cpu_bfloat16_products.sh`): not of `model.dtype='bfloat16'`, whose results
are bfloat16, not by `jax.default_matmul_precision`, and not in the backward pass that JAX
derives, whose gradients are float32. So the products here have one of their own.

The learner traces its programs under `use('bfloat16')`; outside of it nothing changes.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

import jax
import jax.numpy as jnp

_now: contextvars.ContextVar[str] = contextvars.ContextVar('now', default='')


@contextlib.contextmanager
def use(dtype: str) -> Iterator[None]:
  """Traces what is within with operands of `dtype`; '': with those that there are."""
  token = _now.set(dtype)
  try:
    yield
  finally:
    _now.reset(token)


def here() -> str:
  """Returns the type of operands of now, '' where they stay as they are."""
  return _now.get()


def rounded(x: jax.Array, dtype: str) -> jax.Array:
  """Returns float32 x in `dtype`; any other x, and any x for '', as it is."""
  return x.astype(dtype) if dtype and x.dtype == jnp.float32 else x


def product(x: jax.Array, weight: jax.Array) -> jax.Array:
  """x [N, in] @ weight [in, out] of one type, with the operands of now."""
  dtype = here()
  if dtype and x.dtype == jnp.float32:
    return _product(jnp.dtype(dtype), x, weight)
  return x @ weight


def _forward(dtype: jnp.dtype, x: jax.Array, weight: jax.Array):
  x, weight = x.astype(dtype), weight.astype(dtype)
  out = jnp.matmul(x, weight, preferred_element_type=jnp.float32)
  return out, (x, weight)


def _backward(dtype: jnp.dtype, saved: tuple[jax.Array, ...], grad: jax.Array):
  x, weight = saved
  grad = grad.astype(dtype)
  return (
    jnp.matmul(grad, weight.T, preferred_element_type=jnp.float32),
    jnp.einsum('ni,no->io', x, grad, preferred_element_type=jnp.float32),
  )


def _plain(dtype: jnp.dtype, x: jax.Array, weight: jax.Array) -> jax.Array:
  return _forward(dtype, x, weight)[0]


_product = jax.custom_vjp(_plain, nondiff_argnums=(0,))
_product.defvjp(_forward, _backward)
