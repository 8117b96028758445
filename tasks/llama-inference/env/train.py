"""A small decoder that writes symbol after symbol, and computes all anew each time.

  python train.py                  tries it on data/ and hands it over
  python submission.py INPUT OUTPUT   is what is measured
"""

import shutil
import sys
import time

import numpy as np

DTYPE = np.float64
STEPS = 96
HEADS = 4


def normed(x, scale):
  return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6) * scale


def turned(x, position):
  """Rotary position of one symbol; x [heads, d], its halves are pairs."""
  half = x.shape[-1] // 2
  angle = position * 10_000.0 ** (-np.arange(half) / half)
  cos, sin = np.cos(angle), np.sin(angle)
  a, b = x[:, :half], x[:, half:]
  return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


def attend(q, k, v):
  """Mixes values [T, heads, d] for each position, from those up to it."""
  out = np.zeros_like(v)
  for i in range(len(q)):
    for h in range(q.shape[1]):
      score = k[: i + 1, h] @ q[i, h] / np.sqrt(q.shape[2])
      share = np.exp(score - score.max())
      out[i, h] = share / share.sum() @ v[: i + 1, h]
  return out


def layer(x, weights, n):
  """One layer over all positions, x [T, width]."""
  y = normed(x, weights['norms'][n, 0])
  q, k, v = (
    (y @ weights['attention'][n, i]).reshape(len(x), HEADS, -1) for i in range(3)
  )
  q, k = (np.array([turned(r, i) for i, r in enumerate(rows)]) for rows in (q, k))
  x = x + attend(q, k, v).reshape(len(x), -1) @ weights['attention'][n, 3]
  y = normed(x, weights['norms'][n, 1])
  gate = y @ weights['up'][n, 0]
  gate = gate / (1 + np.exp(-gate))
  return x + (gate * (y @ weights['up'][n, 1])) @ weights['down'][n]


def generate(weights):
  """Logits [STEPS, symbols]; the likeliest symbol is written each time."""
  tokens, out = list(weights['prompt']), []
  for _ in range(STEPS):
    x = weights['embedding'][tokens]
    for n in range(len(weights['down'])):
      x = layer(x, weights, n)
    logits = normed(x[-1], weights['last_norm']) @ weights['embedding'].T
    tokens.append(int(np.argmax(logits)))
    out.append(logits)
  return np.array(out)


def solve(path):
  with np.load(path) as given:
    weights = {
      name: given[name] if name == 'prompt' else given[name].astype(DTYPE)
      for name in given.files
    }
  return generate(weights)


if __name__ == '__main__':
  if len(sys.argv) == 3:
    np.save(sys.argv[2], solve(sys.argv[1]))
  else:
    begun = time.process_time()
    found = solve('data/example_input.npz')
    seconds = time.process_time() - begun
    off = np.abs(found - np.load('data/example_output.npy')).max()
    print(f'{seconds:.3f} s of CPU time, off by {off:.2g}')
    shutil.copyfile(__file__, 'submission.py')
