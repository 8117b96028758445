"""Pointers: i where i and j have an edge, else the nearest neighbour of j."""

import numpy as np

with np.load('data/test.npz') as test:
  weights = test['A']


def pointers_of(graph):
  """Of weights [N, N], 0 for no edge: the node before j on the way from i."""
  nodes = len(graph)
  near = np.where(graph > 0, graph, np.inf) + np.diag(np.full(nodes, np.inf))
  linked = (graph > 0) | np.eye(nodes, dtype=bool)
  rows = np.repeat(np.arange(nodes)[:, None], nodes, axis=1)
  return np.where(linked, rows, near.argmin(axis=0))


np.save('submission.npy', np.array([pointers_of(graph) for graph in weights]))
