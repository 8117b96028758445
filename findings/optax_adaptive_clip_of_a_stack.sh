#!/usr/bin/env bash
# optax: adaptive_grad_clip compares the layers of a stack with each other, entry by entry.
# One would expect: a kernel [layers, in, out] is clipped as its layers are one by one, per
#   output unit; or over the axes 0 to 2, as the page of unitwise_norm has it for rank 3.
# What happens: of rank 3 only axis 0 is summed, which is the layers of a model that is
#   scanned. Each single weight has a norm of its own over the layers, so a small layer is
#   let off by the others: at clipping=0.01 a gradient of 89 times the norm that is allowed
#   beside that layer's weights passes. axis=1 is right for a stack, and wrong for the
#   matrices beside it, which need another transformation.
# Versions: optax 0.2.8, jax 0.10.2, jaxlib 0.10.2, numpy 2.4.6, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages optax==0.2.8 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
program <<'PY'
import os

os.environ['JAX_PLATFORMS'] = 'cpu'
import jax
import jax.numpy as jnp
import numpy as np
import optax

gradients = np.random.default_rng(0).normal(size=(4, 8, 8)).astype(np.float32)
kernels = np.random.default_rng(1).normal(size=(4, 8, 8)).astype(np.float32)
kernels[2] *= 0.01  # a small layer


def clipped(gradient, kernel, **how):
  clip = optax.adaptive_grad_clip(0.01, **how)
  return clip.update(gradient, clip.init(kernel), kernel)[0]


def norms(layers):
  return [f'{float(jnp.linalg.norm(one)):.5f}' for one in layers]


print('layer by layer', norms([clipped(g, k) for g, k in zip(gradients, kernels)]))
print('as a stack    ', norms(clipped(gradients, kernels)))
print('over axis 0   ', norms(clipped(gradients, kernels, axis=0)))
print('over axes 0-2 ', norms(clipped(gradients, kernels, axis=(0, 1, 2))))
print('over axis 1   ', norms(clipped(gradients, kernels, axis=1)))
PY
recorded <<'SEEN'
layer by layer ['0.06865', '0.07704', '0.00072', '0.07530']
as a stack     ['0.06230', '0.06273', '0.06426', '0.06614']
over axis 0    ['0.06230', '0.06273', '0.06426', '0.06614']
over axes 0-2  ['0.05772', '0.06252', '0.06213', '0.07223']
over axis 1    ['0.06865', '0.07704', '0.00072', '0.07530']
SEEN
