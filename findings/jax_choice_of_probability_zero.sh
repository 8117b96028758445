#!/usr/bin/env bash
# jax: choice without replacement draws what has probability 0.
# One would expect: an error where fewer elements have a probability than are asked for, as NumPy
#   raises, and never an element of probability 0.
# What happens: the zeros fill up the rest, in ascending order. A sampler of prompts that
#   gives 0 to what is solved or refused hands it out as soon as the others run short.
# Versions: jax 0.10.2, jaxlib 0.10.2, numpy 2.4.6, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
program <<'PY'
import os

os.environ['JAX_PLATFORMS'] = 'cpu'
import jax
import numpy as np

chances = np.array([0.0, 0.5, 0.0, 0.5, 0.0])
for seed in range(3):
  drawn = jax.random.choice(
    jax.random.key(seed), 5, (4,), replace=False, p=chances
  )
  two, rest = sorted(drawn[:2].tolist()), drawn[2:].tolist()
  print(f'jax: {two}, then {rest}')
try:
  np.random.default_rng(0).choice(5, 4, replace=False, p=chances)
except ValueError as error:
  print('numpy:', error)
PY
recorded <<'SEEN'
jax: [1, 3], then [0, 2]
jax: [1, 3], then [0, 2]
jax: [1, 3], then [0, 2]
numpy: Fewer non-zero entries in p than size
SEEN
