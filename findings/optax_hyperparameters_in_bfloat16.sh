#!/usr/bin/env bash
# optax: with weights in bfloat16, inject_hyperparams makes Adam's b2 1 and its update NaN.
# One would expect: a learning rate that can be changed, and otherwise the same optimizer.
# What happens: inject_hyperparams keeps all numbers in the type of the first weight. In
#   bfloat16 0.999 is 1: nothing enters the second moment, the bias correction divides by
#   1 - 1, and the first update of adam and adamw is NaN. b1 is 0.898. Adam alone, and
#   with hyperparam_dtype=float32, is right.
# Versions: optax 0.2.8, jax 0.10.2, jaxlib 0.10.2, numpy 2.4.6, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages optax==0.2.8 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
program <<'PY'
import os

os.environ['JAX_PLATFORMS'] = 'cpu'
import jax.numpy as jnp
import optax

injected = optax.inject_hyperparams(optax.adamw)
wide = optax.inject_hyperparams(optax.adamw, hyperparam_dtype=jnp.float32)
for name, make in (('plain', optax.adamw), ('injected', injected), ('wide', wide)):
  for dtype in (jnp.float32, jnp.bfloat16):
    weights = {'w': jnp.ones(1, dtype)}
    optimizer = make(learning_rate=0.01)
    state = optimizer.init(weights)
    gradient = {'w': jnp.full(1, 0.1, dtype)}
    update, state = optimizer.update(gradient, state, weights)
    kept = getattr(state, 'hyperparams', {})
    numbers = [f'{k} {float(kept[k]):.4f}' for k in ('b1', 'b2') if k in kept]
    print(name, jnp.dtype(dtype).name, f'{float(update["w"][0]):.4f}', *numbers)
PY
recorded <<'SEEN'
plain float32 -0.0100
plain bfloat16 -0.0100
injected float32 -0.0100 b1 0.9000 b2 0.9990
injected bfloat16 nan b1 0.8984 b2 1.0000
wide float32 -0.0100 b1 0.9000 b2 0.9990
wide bfloat16 -0.0100 b1 0.9000 b2 0.9990
SEEN
