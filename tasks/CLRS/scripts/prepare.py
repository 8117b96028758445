"""Prepares `CLRS`: shortest paths in graphs, as pointers (floyd_warshall).

The pointers of hidden graphs are handed over, an array [graphs, N, N]; an algorithm
solves it exactly. Training graphs have 16 nodes, hidden ones 64, as in CLRS-30. The
pair (i, j) points at the node before j on the shortest path from i, and at i where
there is no way. A node with an edge to itself is a trap: it points at the last node
of the shortest way back to it, and at itself where that edge is shorter.

The stand-in's graphs are drawn as the original's are, but their weights are multiples
of 2^-40, so that sums are exact and no two ways are equally long by rounding.
"""

from __future__ import annotations

import zipfile

import numpy as np

from jaxagent.envs.specs import task_data
from jaxagent.tasks import kit

SOURCE = kit.Source(
  id='CLRS',
  url='https://github.com/google-deepmind/clrs',
  rules='none to be accepted; Apache-2.0',
  files=(
    'train.npz and test.npz (of the features and outputs that '
    "clrs.create_dataset(algorithm='floyd_warshall', split='train' and 'test') "
    'gives: pos [graphs, N], A, adj and Pi [graphs, N, N])',
  ),
  mlebench=False,
)
SHAPES = {'pos': 2, 'A': 3, 'adj': 3, 'Pi': 3}


def weighted(rng, nodes):
  """Weights of a random undirected graph, 0 where there is no edge, [N, N]."""
  edges = rng.binomial(1, 0.5, (nodes, nodes))
  weights = rng.uniform(0, 1, (nodes, nodes))
  weights = np.sqrt(weights * weights.T + 1e-3)
  return edges * edges.T * np.round(weights * 2.0**40) / 2.0**40


def pointers(weights):
  """The node before j on the shortest path from i, [N, N].

  Floyd 1962, with CLRS's start: a node that has no edge to itself is at 0.
  """
  nodes = len(weights)
  far, known = weights.copy(), (weights != 0) | np.eye(nodes, dtype=bool)
  before = np.repeat(np.arange(nodes)[:, None], nodes, axis=1)
  for k in range(nodes):
    way = far[:, [k]] + far[[k]]
    nearer = known[:, [k]] & known[[k]] & (~known | (way < far))
    far = np.where(nearer, way, far)
    before = np.where(nearer, before[[k]], before)
    known = known | nearer
  return before


def graphs(rng, count, nodes):
  weights = np.array([weighted(rng, nodes) for _ in range(count)])
  return {
    'pos': np.tile(np.arange(nodes) / nodes, (count, 1)),
    'A': weights,
    'adj': ((weights != 0) | np.eye(nodes, dtype=bool)).astype(float),
    'Pi': np.array([pointers(w) for w in weights]),
  }


def standin():
  rng = np.random.RandomState(138)
  return parts(graphs(rng, 200, 16), graphs(rng, 64, 64))


def parts(train, test):
  answers = np.asarray(test['Pi']).astype(np.int64)
  shown = {name: values for name, values in test.items() if name != 'Pi'}
  return kit.Parts(
    {
      'train.npz': task_data.npz(train),
      'test.npz': task_data.npz(shown),
      'sample_submission.npy': kit.array_bytes(np.zeros_like(answers)),
    },
    {'Pi': answers},
  )


def raw(folder):
  found = []
  for name in ('train.npz', 'test.npz'):
    try:
      with np.load(kit.original(folder, name), allow_pickle=False) as arrays:
        found.append({n: arrays[n] for n in SHAPES})
    except (KeyError, ValueError, zipfile.BadZipFile) as error:
      raise kit.DataMissing(f'{folder / name}: {error}; export it again.') from error
    for array, axes in SHAPES.items():
      if found[-1][array].ndim != axes:
        raise kit.DataMissing(
          f'{folder / name}: {array} has {found[-1][array].ndim} axes, not {axes}; '
          'export it again.'
        )
  return parts(*found)


if __name__ == '__main__':
  kit.prepare_from(__doc__, SOURCE, standin, None, raw)
