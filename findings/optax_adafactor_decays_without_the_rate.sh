#!/usr/bin/env bash
# optax: adafactor takes its whole weight_decay_rate off at each step, whatever the step size.
# One would expect: weight_decay_rate=0.01 is what weight_decay=0.01 is to adamw, lion and
#   their like there, and to Adafactor in torch and transformers: 0.01 times the learning
#   rate, which warms up and decays.
# What happens: it is multiplied by nothing. At a rate of 1e-4 weights without a gradient
#   keep 0.9999 of themselves over 100 steps of adamw, and 0.37 over 100 of adafactor; at
#   a rate of 0, before a warm-up or after a decay, they shrink as fast.
# Versions: optax 0.2.8, jax 0.10.2, jaxlib 0.10.2, numpy 2.4.6, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages optax==0.2.8 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
program <<'PY'
import os

os.environ['JAX_PLATFORMS'] = 'cpu'
import jax
import jax.numpy as jnp
import optax

weights = {'kernel': jnp.ones((256, 256))}
still = jax.tree.map(jnp.zeros_like, weights)  # a gradient of zero
for name, rate, made in (
  ('adamw', 1e-4, optax.adamw(1e-4, weight_decay=0.01)),
  ('lion', 1e-4, optax.lion(1e-4, weight_decay=0.01)),
  ('adafactor', 1e-4, optax.adafactor(1e-4, weight_decay_rate=0.01)),
  ('adafactor', 0.0, optax.adafactor(0.0, weight_decay_rate=0.01)),
):
  now, state = weights, made.init(weights)
  for _ in range(100):
    updates, state = made.update(still, state, now)
    now = optax.apply_updates(now, updates)
  print(name, 'at a rate of', rate, 'keeps', round(float(now['kernel'][0, 0]), 4))
PY
recorded <<'SEEN'
adamw at a rate of 0.0001 keeps 0.9999
lion at a rate of 0.0001 keeps 0.9999
adafactor at a rate of 0.0001 keeps 0.366
adafactor at a rate of 0.0 keeps 0.366
SEEN
