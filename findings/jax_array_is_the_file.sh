#!/usr/bin/env bash
# jax: an array made of a memory-mapped file can be the file.
# One would expect: an array on a device is a copy; what happens to the file afterwards
#   does not matter.
# What happens: on CPU make_array_from_callback takes a slice of a memory map as it is
#   where its data begin at a multiple of 64 bytes, and copies it elsewhere. A weight file
#   that is written over in place changes a model that is running, some tensors of it.
# Versions: jax 0.10.2, jaxlib 0.10.2, numpy 2.4.6, Python 3.11, Linux x86-64.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
program <<'PY'
import os

os.environ['JAX_PLATFORMS'] = 'cpu'
import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

np.zeros(64, np.float32).tofile('weights')
here = SingleDeviceSharding(jax.devices()[0])
held = {}
for start in (64, 68):  # bytes
  file = np.memmap('weights', np.float32, 'r', offset=start, shape=(8,))
  held[start] = jax.make_array_from_callback((8,), here, lambda index, file=file: file[index])
  held[start].block_until_ready()
with open('weights', 'r+b') as file:
  file.write(np.ones(64, np.float32).tobytes())
for start, array in held.items():
  print('data at byte', start, 'after the file was written over:', float(array.sum()))
PY
recorded <<'SEEN'
data at byte 64 after the file was written over: 8.0
data at byte 68 after the file was written over: 0.0
SEEN
