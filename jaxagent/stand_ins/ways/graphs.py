"""Ways to point from node to node in graphs of weights [N, N], 0 for no edge.

`pointers_of` returns [N, N]: the node before j on the way from i.
"""

from jaxagent.stand_ins.ways.way import Way

POINTERS_OF = (
  Way(
    0.4,
    'the nearest neighbour of j alone',
    """
def pointers_of(graph):
  near = np.where(graph > 0, graph, np.inf) + np.diag(np.full(len(graph), np.inf))
  return np.tile(near.argmin(axis=0), (len(graph), 1))
""",
  ),
  Way(
    0.3,
    'the node i itself',
    """
def pointers_of(graph):
  return np.repeat(np.arange(len(graph))[:, None], len(graph), axis=1)
""",
  ),
  Way(
    0.9,
    'shortest ways by {n} nodes at most in between',
    """
def pointers_of(graph):
  nodes = len(graph)
  far = np.where(graph > 0, graph, np.inf)
  np.fill_diagonal(far, np.diag(graph))
  pred = np.repeat(np.arange(nodes)[:, None], nodes, axis=1)
  for k in range(min({n}, nodes)):
    way = far[:, [k]] + far[[k], :]
    nearer = way < far
    pred = np.where(nearer, pred[[k], :], pred)
    far = np.where(nearer, way, far)
  return pred
""",
    (2, 64, 2),
  ),
  Way(
    0.8,
    '{n} rounds of relaxed edges',
    """
def pointers_of(graph):
  nodes = len(graph)
  edges = np.where(graph > 0, graph, np.inf)
  np.fill_diagonal(edges, 0.0)
  far, pred = edges.copy(), np.repeat(np.arange(nodes)[:, None], nodes, axis=1)
  for _ in range({n}):
    ways = far[:, :, None] + edges[None]
    best = ways.min(axis=1)
    nearer = best < far
    pred = np.where(nearer, ways.argmin(axis=1), pred)
    far = np.minimum(far, best)
  return pred
""",
    (1, 24),
  ),
  Way(
    0.6,
    'the neighbour of j nearest to i among the {n} nearest to j',
    """
def pointers_of(graph):
  nodes = len(graph)
  near = np.where(graph > 0, graph, np.inf) + np.diag(np.full(nodes, np.inf))
  pred = np.repeat(np.arange(nodes)[:, None], nodes, axis=1)
  for j in range(nodes):
    few = np.argsort(near[:, j], kind='stable')[:{n}]
    for i in range(nodes):
      if not graph[i, j] and i != j:
        pred[i, j] = few[np.argmin(near[i, few])]
  return pred
""",
    (1, 48),
  ),
)
