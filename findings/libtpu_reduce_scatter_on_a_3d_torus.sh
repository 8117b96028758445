#!/usr/bin/env bash
# libtpu: reduce-scatter over a three-dimensional torus is compiled as an all-reduce.
# One would expect: `psum_scatter` of float32 [4096, 2048] over 8 devices leaves each the
#   eighth that it keeps, as it does on a v5e or v6e of 2x4 and within a 2x2x1 of v5p.
# What happens: on v5p (v4, too) every torus of three dimensions, 2x2x2 up to 4x4x4, sums
#   the whole array to every chip and cuts afterwards: memory of the whole result, twice
#   the bytes on the wire. Without a word, whichever way the scatter is written. Of FSDP
#   over such a mesh each gradient is one.
# No TPU is needed: the programs are compiled for devices that are not there.
# Versions: jax 0.10.2, jaxlib 0.10.2, libtpu 0.0.42.1, numpy 2.4.6, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages jax==0.10.2 jaxlib==0.10.2 libtpu==0.0.42.1 numpy==2.4.6
export JAX_PLATFORMS=cpu TPU_SKIP_MDS_QUERY=1 ALLOW_MULTIPLE_LIBTPU_LOAD=1
program <<'PY'
import re

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

for topology in ('v6e:2x4', 'v5e:2x4', 'v5p:2x2x1', 'v5p:2x2x2', 'v5p:4x4x4'):
  devices = topologies.get_topology_desc(
    platform='tpu', topology_name=topology
  ).devices
  mesh, rows = Mesh(np.array(devices), ('all',)), PartitionSpec('all')

  def scatter(x):
    return jax.lax.psum_scatter(x[0], 'all', scatter_dimension=0, tiled=True)

  x = jax.ShapeDtypeStruct(
    (len(devices), 4096, 2048), jnp.float32, sharding=NamedSharding(mesh, rows)
  )
  mapped = jax.shard_map(scatter, mesh=mesh, in_specs=rows, out_specs=rows)
  text = jax.jit(mapped).lower(x).compile().as_text()
  whole = bool(re.search(r'= f32\[4096,2048\]\S* all-reduce\(', text))
  print(topology, 'sums the whole array' if whole else 'scatters')
PY
recorded <<'SEEN'
v6e:2x4 scatters
v5e:2x4 scatters
v5p:2x2x1 scatters
v5p:2x2x2 sums the whole array
v5p:4x4x4 sums the whole array
SEEN
