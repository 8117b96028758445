"""A small decoder that keeps the keys and values of the symbols before.

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


def turns(count, half):
  """Cosines and sines [count, half] of the rotary positions."""
  angle = np.outer(np.arange(count), 10_000.0 ** (-np.arange(half) / half))
  return np.cos(angle).astype(DTYPE), np.sin(angle).astype(DTYPE)


def turned(x, cos, sin):
  half = x.shape[-1] // 2
  a, b = x[..., :half], x[..., half:]
  return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


def generate(weights):
  """Logits [STEPS, symbols]; each symbol goes through the layers once."""
  embedding, prompt = weights['embedding'], weights['prompt']
  layers, width = len(weights['down']), embedding.shape[1]
  size, count = width // HEADS, len(prompt) + STEPS
  cos, sin = turns(count, size // 2)
  # Queries, keys and values, and both parts of the gate, in one product each.
  project = weights['attention'][:, :3].transpose(0, 2, 1, 3).reshape(layers, width, -1)
  up = weights['up'].transpose(0, 2, 1, 3).reshape(layers, width, -1)
  keys = np.zeros((layers, HEADS, count, size), DTYPE)
  values = np.zeros_like(keys)
  out, token = [], prompt[0]
  for t in range(count - 1):
    x = embedding[token]
    for n in range(layers):
      y = normed(x, weights['norms'][n, 0]) @ project[n]
      q, k, v = y.reshape(3, HEADS, size)
      keys[n, :, t], values[n, :, t] = turned(k, cos[t], sin[t]), v
      q = turned(q, cos[t], sin[t]) / size**0.5
      score = (keys[n, :, : t + 1] @ q[:, :, None])[..., 0]
      share = np.exp(score - score.max(axis=1, keepdims=True))
      share /= share.sum(axis=1, keepdims=True)
      mixed = share[:, None] @ values[n, :, : t + 1]
      x = x + mixed.reshape(-1) @ weights['attention'][n, 3]
      gate, rest = (normed(x, weights['norms'][n, 1]) @ up[n]).reshape(2, -1)
      x = x + (gate / (1 + np.exp(-gate)) * rest) @ weights['down'][n]
    if t + 1 < len(prompt):
      token = prompt[t + 1]
      continue
    logits = embedding @ normed(x, weights['last_norm'])
    token = int(logits.argmax())
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
