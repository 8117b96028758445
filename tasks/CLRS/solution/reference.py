"""Pointers: all shortest paths, by way of one node after the other (Floyd 1962)."""

import numpy as np

with np.load('data/test.npz') as test:
  weights, linked = test['A'], test['adj'] > 0

graphs, nodes, _ = weights.shape
far, known = weights.copy(), linked.copy()
pred = np.tile(np.arange(nodes)[:, None], (graphs, 1, nodes))
for k in range(nodes):
  way = far[:, :, [k]] + far[:, [k], :]
  nearer = known[:, :, [k]] & known[:, [k], :] & (~known | (way < far))
  far = np.where(nearer, way, far)
  pred = np.where(nearer, pred[:, [k], :], pred)
  known |= nearer

np.save('submission.npy', pred)
