#!/usr/bin/env bash
# optax: Muon on the stacked layers of a scan trains the norms by Muon and the kernels by Adam.
# One would expect: weights of layers that are stacked for jax.lax.scan get what they get
#   one by one: kernels orthogonal updates, norms and biases those of Adam.
# What happens: Muon takes what has two dimensions. A stack of kernels has three, of norms
#   two, so each gets the other's rule, without a word; and an embedding is taken as a kernel.
# Versions: optax 0.2.8, jax 0.10.2, jaxlib 0.10.2, numpy 2.4.6, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages optax==0.2.8 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
program <<'PY'
import os

os.environ['JAX_PLATFORMS'] = 'cpu'
import jax
import numpy as np
import optax


def first_update(shapes):
  rng = np.random.default_rng(0)
  weights = {k: rng.normal(size=s).astype('f') for k, s in shapes.items()}
  tx = optax.contrib.muon(1.0)
  updates, _ = tx.update(weights, tx.init(weights), weights)
  return updates


def rule(update):
  """Adam's first update has one size everywhere: gradient over its own size."""
  sizes = np.abs(np.asarray(update))
  return 'Adam' if np.allclose(sizes, sizes.max(), rtol=1e-3) else 'Muon'


alone = first_update({'kernel': (16, 8), 'norm': (8,), 'embedding': (32, 8)})
stack = first_update({'kernel': (4, 16, 8), 'norm': (4, 8)})
for name, found in (('alone', alone), ('stacked', stack)):
  print(name, {k: rule(v) for k, v in found.items()})
PY
recorded <<'SEEN'
alone {'embedding': 'Muon', 'kernel': 'Muon', 'norm': 'Adam'}
stacked {'kernel': 'Adam', 'norm': 'Muon'}
SEEN
