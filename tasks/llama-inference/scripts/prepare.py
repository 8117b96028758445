"""Prepares `llama-inference`: a small decoder that writes token after token.

Norm by the root of the mean square, rotary positions, gated feed-forward: the parts
of a LLaMA, at a size that NumPy decodes in a second.
"""

from __future__ import annotations

import numpy as np

from jaxagent.tasks import rounds

SOURCE = (
  'MLAgentBench takes the weights of LLaMA-7B for this task, which a user has to ask '
  'their owner for (13 GB, on a GPU). That is not built here: the weights are made by '
  'code, for a decoder of two layers.'
)
LAYERS, WIDTH, HEADS, HIDDEN, SYMBOLS, PROMPT, STEPS = 2, 32, 4, 64, 64, 8, 96
# Between the two likeliest symbols: what is chosen is the same on every CPU.
MARGIN = 1e-3


def normed(x, scale):
  return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6) * scale


def turned(x, positions):
  """Rotary positions; x [T, heads, d], its halves are pairs."""
  half = x.shape[-1] // 2
  angle = positions[:, None] * 10_000.0 ** (-np.arange(half) / half)
  cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
  a, b = x[..., :half], x[..., half:]
  return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


def logits_of(weights, tokens):
  """Logits of the symbol after all of `tokens`, float [SYMBOLS]."""
  count = len(tokens)
  positions, blocked = np.arange(count), np.triu(np.full((count, count), -1e30), 1)
  x = weights['embedding'][tokens]
  for n in range(LAYERS):
    y = normed(x, weights['norms'][n, 0])
    q, k, v = ((y @ weights['attention'][n, i]).reshape(count, HEADS, -1) for i in range(3))
    q, k = turned(q, positions), turned(k, positions)
    score = np.einsum('qhd,khd->hqk', q, k) / np.sqrt(q.shape[-1]) + blocked
    share = np.exp(score - score.max(axis=-1, keepdims=True))
    share /= share.sum(axis=-1, keepdims=True)
    mixed = np.einsum('hqk,khd->qhd', share, v).reshape(count, -1)
    x = x + mixed @ weights['attention'][n, 3]
    y = normed(x, weights['norms'][n, 1])
    gate = y @ weights['up'][n, 0]
    x = x + (gate / (1 + np.exp(-gate)) * (y @ weights['up'][n, 1])) @ weights['down'][n]
  return normed(x[-1], weights['last_norm']) @ weights['embedding'].T


def drawn(rng):
  def normal(scale, *shape):
    return rng.normal(0, scale, shape).round(4)

  return {
    'embedding': normal(1.0, SYMBOLS, WIDTH),
    'norms': normal(0.1, LAYERS, 2, WIDTH) + 1,
    'last_norm': normal(0.1, WIDTH) + 1,
    'attention': normal(WIDTH**-0.5, LAYERS, 4, WIDTH, WIDTH),
    'up': normal(WIDTH**-0.5, LAYERS, 2, WIDTH, HIDDEN),
    'down': normal(HIDDEN**-0.5, LAYERS, HIDDEN, WIDTH),
    'prompt': rng.randint(SYMBOLS, size=PROMPT),
  }


def written(weights):
  """Logits [STEPS, SYMBOLS] of a continuation; None where a choice is too close."""
  tokens, out = list(weights['prompt']), []
  for _ in range(STEPS):
    out.append(logits_of(weights, np.array(tokens)))
    second, first = np.sort(out[-1])[-2:]
    if first - second < MARGIN:
      return None
    tokens.append(int(out[-1].argmax()))
  return np.array(out)


def standin():
  rng = np.random.RandomState(239)
  given, outputs = [], []
  while len(outputs) < rounds.COUNT:
    weights = drawn(rng)
    output = written(weights)
    if output is not None:
      given.append(weights)
      outputs.append(output)
  inputs = {name: np.stack([one[name] for one in given]) for name in given[0]}
  return rounds.Rounds(inputs, np.stack(outputs), tolerance=1e-3)


if __name__ == '__main__':
  rounds.prepare(__doc__, SOURCE, standin)
