#!/usr/bin/env bash
# optax: with bfloat16 weights Adam's second moment only grows.
# One would expect: adam of bfloat16 weights is Adam with rounding of 0.4 %: a gradient that
#   was large once is forgotten after some thousand steps at b2=0.999.
# What happens: the moments have the weights' type, and 0.999 is 1 in it: each step adds
#   0.001 times the square and takes nothing away. 20,000 steps after one gradient of
#   100 among gradients of 1 a step is 0.32, in float32 1.00, and so it stays.
#   mu_dtype=float32 changes the first moment alone. b2=0.99 is 0.988 and forgets.
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


def after(made, dtype, steps):
  """Size of a step, with gradients of 1, so many steps after one of 100."""

  @jax.jit
  def run(weight):
    _, state = made.update(100 * weight, made.init(weight))
    step = lambda _, state: made.update(weight, state)[1]
    return made.update(weight, jax.lax.fori_loop(1, steps, step, state))

  updates, state = run(jnp.ones((), dtype))
  return f'{float(updates):.2f} (second moment {float(state.nu):.2f}, {state.nu.dtype})'


for name, made, dtype in (
  ('float32', optax.scale_by_adam(), jnp.float32),
  ('bfloat16', optax.scale_by_adam(), jnp.bfloat16),
  ('bfloat16, mu_dtype=float32', optax.scale_by_adam(mu_dtype=jnp.float32), jnp.bfloat16),
  ('bfloat16, b2=0.99', optax.scale_by_adam(b2=0.99), jnp.bfloat16),
):
  print(name)
  for steps in (1_000, 20_000):
    print('  after', steps, 'steps:', after(made, dtype, steps))
PY
recorded <<'SEEN'
float32
  after 1000 steps: 0.38 (second moment 4.31, float32)
  after 20000 steps: 1.00 (second moment 1.00, float32)
bfloat16
  after 1000 steps: 0.26 (second moment 10.00, bfloat16)
  after 20000 steps: 0.32 (second moment 10.00, bfloat16)
bfloat16, mu_dtype=float32
  after 1000 steps: 0.25 (second moment 10.00, bfloat16)
  after 20000 steps: 0.32 (second moment 10.00, bfloat16)
bfloat16, b2=0.99
  after 1000 steps: 1.02 (second moment 1.01, bfloat16)
  after 20000 steps: 1.02 (second moment 1.01, bfloat16)
SEEN
