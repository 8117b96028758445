#!/usr/bin/env bash
# jax: what is drawn in bfloat16 is one of 128 values, so samplers favour low ids.
# One would expect: jax.random.categorical of bfloat16 logits draws tokens by their softmax,
#   up to the rounding of the logits; weights that are drawn in bfloat16 are the float32 ones
#   rounded.
# What happens: the noise itself is made of 7 random bits. The largest noise comes to one
#   token in 128, argmax takes the first of these, and of 1,000 equal logits 98 of 100 tokens
#   are of the first half of the vocabulary. choice with probabilities in bfloat16 reaches 128
#   of 1,000. Initialisers are off centre, by a hundredth of their deviation in every weight
#   and of one sign: what 4,096 inputs of 1 sum to moves by more than its deviation.
#   Logits in float32, and weights drawn in float32 and rounded, have none of it.
# Versions: jax 0.10.2, jaxlib 0.10.2, numpy 2.4.6, Python 3.11, Linux x86-64.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
program <<'PY'
import os

os.environ['JAX_PLATFORMS'] = 'cpu'
import jax
import jax.numpy as jnp
import numpy as np

key = jax.random.key(0)
draw = jax.nn.initializers.lecun_normal()
for dtype in (jnp.float32, jnp.bfloat16):
  tokens = jax.random.categorical(key, jnp.zeros((5000, 1000), dtype))
  chosen = jax.random.choice(key, 1000, (20000,), p=jnp.full(1000, 0.001, dtype))
  kernel = draw(key, (4096, 256), dtype).astype(jnp.float32)
  sums = kernel.sum(0)
  print(dtype.__name__)
  print('  categorical: tokens of the first half', round(float((tokens < 500).mean()), 2))
  print('  choice: of 1000 it reaches', np.unique(chosen).size)
  print('  weights: distinct values', min(np.unique(kernel).size, 1000),
        'sums of 4096: mean', round(float(sums.mean()), 1), 'deviation', round(float(sums.std()), 1))
kernel = draw(key, (4096, 256), jnp.float32).astype(jnp.bfloat16).astype(jnp.float32)
print('float32, rounded\n  weights: sums of 4096: mean', round(float(kernel.sum(0).mean()), 1))
PY
recorded <<'SEEN'
float32
  categorical: tokens of the first half 0.5
  choice: of 1000 it reaches 1000
  weights: distinct values 1000 sums of 4096: mean 0.0 deviation 0.9
bfloat16
  categorical: tokens of the first half 0.98
  choice: of 1000 it reaches 128
  weights: distinct values 128 sums of 4096: mean -1.2 deviation 0.9
float32, rounded
  weights: sums of 4096: mean 0.0
SEEN
