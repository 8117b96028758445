#!/usr/bin/env bash
# jax: the gradient of an embedding in bfloat16 stops at 256 occurrences of a token.
# One would expect: sums of bfloat16 are made in float32 and rounded once, as jnp.sum, a
#   bias and a product do: 2,000 equal parts of 1 are 2,000.
# What happens: where a gradient is a scatter (rows of a table, take_along_axis,
#   segment_sum) or a carry (a weight that each step of a scan or a map uses) each part is
#   rounded when it is added, and 256 + 1 is 256: a frequent token, or a weight shared by
#   many steps, gets an eighth of its gradient here. A table in float32 that is cast
#   behind the lookup is right, one that is cast before it is not.
# Versions: jax 0.10.2, jaxlib 0.10.2, numpy 2.4.6, Python 3.11; CPU.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
program <<'PY'
import os

os.environ['JAX_PLATFORMS'] = 'cpu'
import jax
import jax.numpy as jnp

half, ids = jnp.bfloat16, jnp.zeros(2000, int)
table = jnp.zeros((2, 1))


def steps(weight):
  def step(total, _):
    return total + weight.sum().astype(jnp.float32), None

  return jax.lax.scan(step, 0.0, None, length=2000)[0]


def total(values):
  return values.astype(jnp.float32).sum()


def slope(name, function, at):
  found = jax.jit(jax.grad(function))(at)
  print(f'{name}: {float(found.ravel()[0]):.0f}')


slope('rows of a table', lambda t: total(t[ids]), table.astype(half))
slope('cast, then looked up', lambda t: total(t.astype(half)[ids]), table)
slope('looked up, then cast', lambda t: total(t[ids].astype(half)), table)
slope('a weight of a scan', steps, jnp.zeros(1, half))
slope('a bias', lambda b: total(jnp.zeros((2000, 1), half) + b), jnp.zeros(1, half))
hot = jax.nn.one_hot(ids, 2, dtype=half)
slope('a product', lambda t: total(hot @ t), table.astype(half))
ones = jnp.ones(2000, half)
print(f'segment_sum: {float(jax.ops.segment_sum(ones, ids, 1)[0]):.0f}')
print(f'sum: {float(ones.sum()):.0f}')
PY
recorded <<'SEEN'
rows of a table: 256
cast, then looked up: 256
looked up, then cast: 2000
a weight of a scan: 256
a bias: 2000
a product: 2000
segment_sum: 256
sum: 2000
SEEN
