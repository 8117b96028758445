"""Ways to compute the functions of programs whose speed is the score.

All compute the same; some are slower than what they replace, and one precision is too
low. Which is which is for the score to tell.
"""

from jaxagent.stand_ins.ways.way import Way

CONVOLVE = (
  Way(
    0.5,
    'a product for each position',
    """
def convolve(images, filters, bias):
  k, count = filters.shape[0], filters.shape[3]
  size = images.shape[1] - k + 1
  out = np.empty((len(images), size, size, count), DTYPE)
  table = filters.reshape(-1, count)
  for i in range(size):
    for j in range(size):
      window = images[:, i : i + k, j : j + k].reshape(len(images), -1)
      out[:, i, j] = window @ table + bias
  return np.maximum(out, 0)
""",
  ),
  Way(
    0.8,
    'a product for each cell of the filters',
    """
def convolve(images, filters, bias):
  k, count = filters.shape[0], filters.shape[3]
  size = images.shape[1] - k + 1
  out = np.zeros((len(images), size, size, count), DTYPE) + bias
  for i in range(k):
    for j in range(k):
      out += images[:, i : i + size, j : j + size] @ filters[i, j]
  return np.maximum(out, 0)
""",
  ),
  Way(
    0.7,
    'sliding windows, summed by einsum',
    """
def convolve(images, filters, bias):
  k = filters.shape[0]
  windows = np.lib.stride_tricks.sliding_window_view(images, (k, k), (1, 2))
  return np.maximum(np.einsum('nijckl,klcf->nijf', windows, filters) + bias, 0)
""",
  ),
  Way(
    0.8,
    'sliding windows, summed by tensordot',
    """
def convolve(images, filters, bias):
  k = filters.shape[0]
  windows = np.lib.stride_tricks.sliding_window_view(images, (k, k), (1, 2))
  axes = (3, 4, 5), (2, 0, 1)
  return np.maximum(np.tensordot(windows, filters, axes) + bias, 0)
""",
  ),
  Way(
    0.9,
    'one product of matrices',
    """
def convolve(images, filters, bias):
  k, count = filters.shape[0], filters.shape[3]
  windows = np.lib.stride_tricks.sliding_window_view(images, (k, k), (1, 2))
  columns = windows.transpose(0, 1, 2, 4, 5, 3).reshape(-1, filters[..., 0].size)
  out = columns @ filters.reshape(-1, count) + bias
  return np.maximum(out, 0).reshape(*windows.shape[:3], count)
""",
  ),
  Way(
    0.4,
    'Fourier transforms',
    """
def convolve(images, filters, bias):
  k, side = filters.shape[0], images.shape[1]
  size = side - k + 1
  seen = np.fft.rfft2(images, axes=(1, 2))
  turned = np.fft.rfft2(filters[::-1, ::-1], (side, side), axes=(0, 1))
  out = np.fft.irfft2(np.einsum('nijc,ijcf->nijf', seen, turned), (side, side), axes=(1, 2))
  return np.maximum(out[:, k - 1 :, k - 1 :][:, :size, :size] + bias, 0)
""",
  ),
  Way(
    0.2,
    'nested lists',
    """
def convolve(images, filters, bias):
  k, count = filters.shape[0], filters.shape[3]
  size = images.shape[1] - k + 1
  tables = [filters[:, :, :, f].ravel().tolist() for f in range(count)]
  out = []
  for image in images:
    for i in range(size):
      for j in range(size):
        cells = image[i : i + k, j : j + k].ravel().tolist()
        for table, b in zip(tables, bias):
          out.append(max(sum(x * y for x, y in zip(cells, table)) + b, 0.0))
  return np.array(out, DTYPE).reshape(len(images), size, size, count)
""",
  ),
  Way(
    0.6,
    'blocks of {n} images',
    """
def convolve(images, filters, bias):
  k, count = filters.shape[0], filters.shape[3]
  table, parts = filters.reshape(-1, count), []
  for start in range(0, len(images), {n}):
    part = images[start : start + {n}]
    windows = np.lib.stride_tricks.sliding_window_view(part, (k, k), (1, 2))
    columns = windows.transpose(0, 1, 2, 4, 5, 3).reshape(-1, len(table))
    parts.append(np.maximum(columns @ table + bias, 0).reshape(*windows.shape[:3], count))
  return np.concatenate(parts)
""",
    (1, 14),
  ),
  Way(
    0.5,
    'blocks of {n} rows',
    """
def convolve(images, filters, bias):
  k, count = filters.shape[0], filters.shape[3]
  table, parts = filters.reshape(-1, count), []
  for start in range(0, images.shape[1] - k + 1, {n}):
    part = images[:, start : start + {n} + k - 1]
    windows = np.lib.stride_tricks.sliding_window_view(part, (k, k), (1, 2))
    columns = windows.transpose(0, 1, 2, 4, 5, 3).reshape(-1, len(table))
    parts.append(np.maximum(columns @ table + bias, 0).reshape(*windows.shape[:3], count))
  return np.concatenate(parts, axis=1)
""",
    (1, 26),
  ),
)
ATTEND = (
  Way(
    0.6,
    'a loop over the heads alone',
    """
def attend(q, k, v):
  out, count = np.empty_like(v), len(q)
  blocked = np.triu(np.full((count, count), -np.inf), 1)
  for h in range(q.shape[1]):
    score = q[:, h] @ k[:, h].T / np.sqrt(q.shape[2]) + blocked
    share = np.exp(score - score.max(axis=1, keepdims=True))
    out[:, h] = share @ v[:, h] / share.sum(axis=1, keepdims=True)
  return out
""",
  ),
  Way(
    0.4,
    'a loop over the positions alone',
    """
def attend(q, k, v):
  out = np.empty_like(v)
  for i in range(len(q)):
    score = np.einsum('khd,hd->hk', k[: i + 1], q[i]) / np.sqrt(q.shape[2])
    share = np.exp(score - score.max(axis=1, keepdims=True))
    share /= share.sum(axis=1, keepdims=True)
    out[i] = np.einsum('hk,khd->hd', share, v[: i + 1])
  return out
""",
  ),
  Way(
    0.7,
    'sums by einsum',
    """
def attend(q, k, v):
  count = len(q)
  score = np.einsum('qhd,khd->hqk', q, k) / np.sqrt(q.shape[2])
  score += np.triu(np.full((count, count), -np.inf), 1)
  share = np.exp(score - score.max(axis=2, keepdims=True))
  share /= share.sum(axis=2, keepdims=True)
  return np.einsum('hqk,khd->qhd', share, v)
""",
  ),
  Way(
    0.8,
    'products of all heads at once',
    """
def attend(q, k, v):
  count = len(q)
  q, k, v = (x.transpose(1, 0, 2) for x in (q, k, v))
  score = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[2])
  score += np.triu(np.full((count, count), -np.inf), 1)
  share = np.exp(score - score.max(axis=2, keepdims=True))
  share /= share.sum(axis=2, keepdims=True)
  return (share @ v).transpose(1, 0, 2)
""",
  ),
  Way(
    0.5,
    'blocks of {n} positions',
    """
def attend(q, k, v):
  count, parts = len(q), []
  keys, values = k.transpose(1, 2, 0), v.transpose(1, 0, 2)
  for start in range(0, count, {n}):
    part = q[start : start + {n}].transpose(1, 0, 2)
    score = part @ keys / np.sqrt(q.shape[2])
    after = np.arange(count) > np.arange(start, start + part.shape[1])[:, None]
    score = np.where(after, -np.inf, score)
    share = np.exp(score - score.max(axis=2, keepdims=True))
    share /= share.sum(axis=2, keepdims=True)
    parts.append((share @ values).transpose(1, 0, 2))
  return np.concatenate(parts)
""",
    (1, 48),
  ),
)
GENERATE = (
  Way(
    0.9,
    'a cache of keys and values',
    """
def generate(weights):
  def turned(x, t):
    half = x.shape[-1] // 2
    angle = t * 10_000.0 ** (-np.arange(half) / half)
    cos, sin = np.cos(angle), np.sin(angle)
    a, b = x[:, :half], x[:, half:]
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)

  prompt, layers = weights['prompt'], len(weights['down'])
  width, count = weights['embedding'].shape[1], len(prompt) + STEPS
  keys = np.zeros((layers, HEADS, count, width // HEADS), DTYPE)
  values = np.zeros_like(keys)
  tokens, out = list(prompt), []
  for t in range(count - 1):
    x = weights['embedding'][tokens[t]]
    for n in range(layers):
      y = normed(x, weights['norms'][n, 0])
      q, k, v = (y @ weights['attention'][n, i] for i in range(3))
      keys[n, :, t] = turned(k.reshape(HEADS, -1), t)
      values[n, :, t] = v.reshape(HEADS, -1)
      q = turned(q.reshape(HEADS, -1), t)
      score = (keys[n, :, : t + 1] @ q[:, :, None])[..., 0] / np.sqrt(q.shape[1])
      share = np.exp(score - score.max(axis=1, keepdims=True))
      share /= share.sum(axis=1, keepdims=True)
      mixed = (share[:, None] @ values[n, :, : t + 1]).reshape(-1)
      x = x + mixed @ weights['attention'][n, 3]
      y = normed(x, weights['norms'][n, 1])
      gate = y @ weights['up'][n, 0]
      x = x + (gate / (1 + np.exp(-gate)) * (y @ weights['up'][n, 1])) @ weights['down'][n]
    if t + 1 >= len(prompt):
      logits = normed(x, weights['last_norm']) @ weights['embedding'].T
      tokens.append(int(np.argmax(logits)))
      out.append(logits)
  return np.array(out)
""",
  ),
)
