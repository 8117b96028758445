"""Compiles small programs on eight devices; prints what `hlo` reads, as JSON."""

import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxagent.compiled import hlo

MESH = Mesh(np.array(jax.devices()).reshape(2, 4), ('a', 'b'))
SPLIT = P(('a', 'b'))


def on_all(function, out=P()):
  return jax.shard_map(
    function, mesh=MESH, in_specs=SPLIT, out_specs=out, check_vma=False
  )


def scanned(body, length):
  """body(x) -> x in a loop of `length`."""
  return lambda x: lax.scan(lambda x, _: (body(x), None), x, None, length)[0]


def psum(x):
  return lax.psum(x, ('a', 'b')) * 0.5


def gathered(x):
  return lax.all_gather(x, 'b', tiled=True)[: x.shape[0]] + x


def until(x):
  # Ends by its values: nothing says how often it runs.
  return lax.while_loop(lambda x: x.sum() < 1e3, psum, x)


def branch(x):
  return lax.cond(
    x[0, 0] > 0, gathered, lambda x: lax.ppermute(x, 'b', [(0, 1)]), x
  )


def split_weights(w, x):
  """Rows over all devices, the weights of 6 layers over `b`: FSDP by hand."""
  rows, all_of = NamedSharding(MESH, SPLIT), NamedSharding(MESH, P())

  def layer(x, w):
    y = x @ lax.with_sharding_constraint(w, all_of)
    return lax.with_sharding_constraint(y, rows), None

  return jnp.sum(lax.scan(layer, x, w)[0])


# Of x float32 [64, 32], each device has [8, 32]: 1,024 bytes.
PROGRAMS = {
  'psum': on_all(psum, SPLIT),
  'all_gather': on_all(
    partial(lax.all_gather, axis_name='b', tiled=True), P('a')
  ),
  'psum_scatter': on_all(
    lambda x: lax.psum_scatter(x, 'b', scatter_dimension=1, tiled=True),
    P('a', 'b'),
  ),
  'all_to_all': on_all(
    lambda x: lax.all_to_all(x, 'b', 0, 1, tiled=True), P('a', 'b')
  ),
  'ppermute': on_all(lambda x: lax.ppermute(x, 'b', [(0, 1), (1, 0)]), SPLIT),
  'bfloat16': on_all(
    lambda x: lax.all_gather(x.astype(jnp.bfloat16), 'b', tiled=True), P('a')
  ),
  'loop': on_all(scanned(psum, 6), SPLIT),
  'nested': on_all(scanned(scanned(gathered, 5), 3), SPLIT),
  'until': on_all(until, SPLIT),
  'branch': on_all(branch, SPLIT),
  'nothing': on_all(lambda x: x * 2, SPLIT),
}


def main():
  x = jax.ShapeDtypeStruct(
    (64, 32), jnp.float32, sharding=NamedSharding(MESH, SPLIT)
  )
  w = jax.ShapeDtypeStruct(
    (6, 32, 32), jnp.float32, sharding=NamedSharding(MESH, P(None, 'b'))
  )
  texts = {
    name: jax.jit(f).lower(x).compile().as_text()
    for name, f in PROGRAMS.items()
  }
  grads = jax.jit(jax.grad(split_weights))
  texts['fsdp'] = grads.lower(w, x).compile().as_text()
  found = {name: hlo.collectives(text) for name, text in texts.items()}
  print(
    json.dumps(
      {
        name: {
          'bytes': c.bytes,
          'counts': c.counts,
          'unknown': len(c.unknown_loops),
        }
        for name, c in found.items()
      }
    )
  )


if __name__ == '__main__':
  main()
