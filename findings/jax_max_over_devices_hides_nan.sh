#!/usr/bin/env bash
# jax: the maximum of an array that lies on several CPU devices hides a NaN.
# One would expect: jnp.max and jnp.min of an array with a NaN are NaN, as on one device,
#   so that isfinite(max(abs(x))) tells whether all of x is finite.
# What happens: over two devices both are numbers, and isfinite says True; the sum is NaN.
#   A run on emulated devices, which is where sharded code is tested, takes a broken
#   gradient for a good one. isnan(x).any() and sums are right.
# Versions: jax 0.10.2, jaxlib 0.10.2, numpy 2.4.6, Python 3.11, Linux x86-64.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
program <<'PY'
import os

os.environ['JAX_PLATFORMS'] = 'cpu'
os.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=2'
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

x = np.array([1.0, 2.0, np.nan, 4.0], np.float32)
split = NamedSharding(Mesh(np.array(jax.devices()), 'd'), PartitionSpec('d'))
for name, array in (('one', jnp.asarray(x)), ('two', jax.device_put(x, split))):
  print(name, 'max', jnp.max(array), 'min', jnp.min(array), 'sum', jnp.sum(array))
  print(name, 'finite', jnp.isfinite(jnp.max(jnp.abs(array))), 'nan', jnp.isnan(array).any())
PY
recorded <<'SEEN'
one max nan min nan sum nan
one finite False nan True
two max 2.0 min 1.0 sum nan
two finite True nan True
SEEN
