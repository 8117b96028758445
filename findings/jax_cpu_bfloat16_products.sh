#!/usr/bin/env bash
# jax on a CPU: what is asked to multiply in bfloat16 multiplies in float32, in three ways.
# One would expect: precision='BF16_BF16_F32' rounds the operands of a product to bfloat16,
#   or is refused where that cannot be; bfloat16 arrays are multiplied as they are; the
#   gradient of a product of bfloat16 operands is made of bfloat16 operands.
# What happens: the precision is accepted and changes no digit of a float32 product.
#   bfloat16 arrays are converted to float32 before they are multiplied and back after it.
#   Where operands are bfloat16 and the result is asked for in float32, they are
#   multiplied as they are, which a CPU with tiles (Intel's AMX) does several times as fast
#   as float32; the gradients of that are products of float32 again.
# Versions: jax 0.10.2, jaxlib 0.10.2, numpy 2.4.6, Python 3.11, Linux x86-64.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
program <<'PY'
import os

os.environ['JAX_PLATFORMS'] = 'cpu'
import re

import jax
import jax.numpy as jnp
import numpy as np

x = jnp.asarray(np.random.default_rng(0).normal(size=(256, 256)), jnp.float32)
half = x.astype(jnp.bfloat16)


def wide(a, b):
  return jnp.dot(a, b, preferred_element_type=jnp.float32)


def operands(function, *args):
  text = jax.jit(function).lower(*args).compile().as_text()
  types = dict(re.findall(r'%([\w.]+) = (\w+)\[', text))
  found = re.findall(r' dot\(%([\w.]+), %([\w.]+)\)', text)
  return sorted({types[name] for pair in found for name in pair})


plain = jax.jit(jnp.dot)(x, x)
asked = jax.jit(lambda a: jnp.dot(a, a, precision='BF16_BF16_F32'))(x)
print('BF16_BF16_F32 of float32: largest difference from float32:', float(abs(asked - plain).max()))
print('rounded by hand: differs from float32:', bool(abs(wide(half, half) - plain).max() > 0.01))
print('bfloat16 to bfloat16 multiplies', operands(jnp.dot, half, half))
print('bfloat16 to float32 multiplies', operands(wide, half, half))
loss = lambda a, b: jnp.tanh(wide(a, b)).sum()
print('its gradients have products of', sorted({
  str(v.aval.dtype) for e in jax.make_jaxpr(jax.grad(loss, (0, 1)))(half, half).eqns
  if e.primitive.name == 'dot_general' for v in e.invars}))
PY
recorded <<'SEEN'
BF16_BF16_F32 of float32: largest difference from float32: 0.0
rounded by hand: differs from float32: True
bfloat16 to bfloat16 multiplies ['f32']
bfloat16 to float32 multiplies ['bf16']
its gradients have products of ['bfloat16', 'float32']
SEEN
