"""Prepares `vectorization`: a layer of filters over images, to be made fast."""

from __future__ import annotations

import numpy as np

from jaxagent.tasks import rounds

SOURCE = (
  'MLAgentBench has a program for this task and no data: what it measures runs on '
  'random numbers. The inputs here are made by code.'
)
IMAGES, SIZE, CHANNELS, FILTERS, WIDTH = 14, 28, 3, 12, 3


def layer(images, filters, bias):
  """Right output [N, H', W', F] of one round, a filter's cell at a time."""
  size = images.shape[1] - WIDTH + 1
  out = np.zeros((len(images), size, size, filters.shape[-1])) + bias
  for i in range(WIDTH):
    for j in range(WIDTH):
      out += images[:, i : i + size, j : j + size] @ filters[i, j]
  return np.maximum(out, 0)


def standin():
  rng = np.random.RandomState(240)
  images = rng.rand(rounds.COUNT, IMAGES, SIZE, SIZE, CHANNELS).round(4)
  shape = rounds.COUNT, WIDTH, WIDTH, CHANNELS, FILTERS
  filters = rng.normal(0, 0.3, shape).round(4)
  bias = rng.normal(0, 0.1, (rounds.COUNT, FILTERS)).round(4)
  output = np.stack([layer(*one) for one in zip(images, filters, bias)])
  given = {'images': images, 'filters': filters, 'bias': bias}
  return rounds.Rounds(given, output, tolerance=1e-4)


if __name__ == '__main__':
  rounds.prepare(__doc__, SOURCE, standin)
