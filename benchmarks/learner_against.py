"""The learner's step beside `transformers` on a CPU: tokens a second and memory.

  python -m benchmarks.learner_step --cpu --against transformers [--repeats N] [--json]

One step of fine-tuning in float32 (gradients of all micro-batches, AdamW), all tokens
of a text but its first learned; 3.5M and 20M weights (`benchmarks.decode`). `uniform`
is 16 texts of 512 tokens, `variable` 32 of 64 to 1,024, drawn log-uniformly. `jaxagent` is `Learner.sft_step`; `before` is the same with the attention
and the rows of before (`mapped`, `packed`), whose loss and gradient must be equal;
`transformers` is Qwen2 on PyTorch with its scaled-dot-product attention, padded
micro-batches of 8 sorted by length, and `drawn` the same in the order drawn. Real
tokens over seconds by the clock, by turns in one process, medians of N after two that
compile. Memory is the peak of resident bytes while steps run, in a process for each.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import machine, torch_models
from benchmarks.decode import MODELS

WORK = ('uniform', 'variable')
WARM, ROWS, LONGEST = 2, 8, 1024
# step() -> (loss, norm of the gradient where it is told)
Step = Callable[[], tuple[float, float | None]]


def texts(work: str, vocab: int) -> list[np.ndarray]:
  """int32 [L] each."""
  rng = np.random.default_rng(0)
  if work == 'uniform':
    lengths = np.full(16, 512)
  else:
    drawn = np.exp(rng.uniform(np.log(64), np.log(LONGEST), 32))
    lengths = drawn.astype(int)
  return [rng.integers(1, vocab, n).astype(np.int32) for n in lengths]


def of_learner(size: str, work: str, attention: str, rows: str) -> Step:
  """A step of ours."""
  from jaxagent.learner import Learner, LearnerConfig

  model = MODELS[size].replace(attention=attention)
  config = LearnerConfig(row_tokens=(512, LONGEST), row_layout=rows)
  learner = Learner(model, config)
  learner.start_sft(lr=1e-5)
  pairs = [(t, np.ones(len(t), bool)) for t in texts(work, model.vocab_size)]

  def step() -> tuple[float, float]:
    found = learner.sft_step(learner.sft_batches(pairs))
    return found['sft/loss'], found['sft/grad_norm']

  return step


def of_transformers(size: str, work: str, is_sorted: bool) -> Step:
  """A step of PyTorch's."""
  import torch

  model = MODELS[size]
  net = torch_models.qwen2(model)
  adam = torch.optim.AdamW(net.parameters(), lr=1e-5, weight_decay=0.01)
  all_texts = texts(work, model.vocab_size)
  if is_sorted:
    all_texts.sort(key=len)
  learned = sum(len(t) - 1 for t in all_texts)
  micros = []
  for at in range(0, len(all_texts), ROWS):
    some = all_texts[at : at + ROWS]
    ids = np.zeros((len(some), max(map(len, some))), np.int64)
    mask = np.zeros_like(ids)
    for row, text in enumerate(some):
      ids[row, : len(text)], mask[row, : len(text)] = text, 1
    labels = np.where(mask == 1, ids, -100)
    micros.append([torch.tensor(a) for a in (ids, mask, labels)])

  def step() -> tuple[float, None]:
    total = 0.0
    for ids, mask, labels in micros:
      loss = net(
        input_ids=ids,
        attention_mask=mask,
        labels=labels,
        num_items_in_batch=learned,
      ).loss
      loss.backward()
      total += float(loss.detach())
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    adam.step()
    adam.zero_grad()
    return total, None

  return step


ARMS: dict[str, tuple[Callable[..., Step], tuple[Any, ...]]] = {
  'jaxagent': (of_learner, ('auto', 'auto')),
  'before': (of_learner, ('mapped', 'packed')),
  'transformers': (of_transformers, (True,)),
  'drawn': (of_transformers, (False,)),
}


def make(arm: str, size: str, work: str) -> Step:
  """A step of an arm."""
  maker, options = ARMS[arm]
  return maker(size, work, *options)


def speed(size: str, work: str, repeats: int) -> dict[str, dict[str, Any]]:
  """{arm: {wall_s, tokens_s, loss, grad_norm}}, by turns; loss: of the first step."""
  names = [a for a in ARMS if a != 'drawn' or work == 'variable']
  steps = {name: make(name, size, work) for name in names}
  tokens = sum(map(len, texts(work, MODELS[size].vocab_size)))
  walls: dict[str, list[float]] = {name: [] for name in names}
  first: dict[str, Any] = {}
  for turn in range(WARM + repeats):
    for name, step in steps.items():
      began = time.perf_counter()
      found = step()
      first.setdefault(name, found)
      if turn >= WARM:
        walls[name].append(time.perf_counter() - began)
  return {
    name: {
      'wall_s': statistics.median(each),
      'tokens_s': tokens / statistics.median(each),
      'loss': first[name][0],
      'grad_norm': first[name][1],
    }
    for name, each in walls.items()
  }


def peak_mb(arm: str, size: str, work: str) -> float:
  """Resident megabytes at the peak of two steps, in a process of its own."""
  out = subprocess.run(
    [sys.executable, '-m', 'benchmarks.learner_step', '--cpu', '--peak', arm]
    + [size, work],
    check=True,
    capture_output=True,
    text=True,
    env=os.environ | {'JAX_PLATFORMS': 'cpu'},
  )
  return float(out.stdout.splitlines()[-1])


def tell_peak(arm: str, size: str, work: str) -> None:
  """Prints what `peak_mb` reads; what compiling took does not count."""
  step = make(arm, size, work)
  step()
  machine.forget_peak()
  step()
  step()
  print(machine.resident_mb(peak=True))


def table(result: dict[str, Any]) -> str:
  """Markdown: a row for each size and kind of texts."""
  lines = [
    '| weights | texts | jaxagent, tokens/s | to transformers | to drawn order | to '
    'before | memory to transformers |',
    '|---' * 7 + '|',
  ]
  for name in (f'{size} {work}' for size in ('3.5M', '20M') for work in WORK):
    row = result[name]
    ratios = row['ratios']
    cells = [
      f'{ratios[key]:.2f}' if key in ratios else ''
      for key in ('over transformers', 'over drawn', 'over before', 'memory')
    ]
    size, work = name.split()
    speed_ = row['arms']['jaxagent']['tokens_s']
    lines.append(f'| {size} | {work} | {speed_:.0f} | {" | ".join(cells)} |')
  return '\n'.join(lines)


def main(repeats: int, save: bool) -> None:
  """Measures and prints; keeps the result where asked."""
  result: dict[str, Any] = {}
  for size in MODELS:
    for work in WORK:
      rows = speed(size, work, repeats)
      for arm, row in rows.items():
        row['peak_mb'] = peak_mb(arm, size, work)
        print(
          f'{size} {work} {arm}: {row["tokens_s"]:.0f} tokens a second, '
          f'{row["peak_mb"]:.0f} MB, loss {row["loss"]:.6f}',
          flush=True,
        )
      own, before = rows['jaxagent'], rows['before']
      ratios = {
        f'over {name}': own['tokens_s'] / row['tokens_s']
        for name, row in rows.items()
        if row is not own
      }
      ratios['memory'] = own['peak_mb'] / rows['transformers']['peak_mb']
      apart = {
        key: abs(own[key] / before[key] - 1) for key in ('loss', 'grad_norm')
      }
      result[f'{size} {work}'] = {
        'arms': rows, 'ratios': ratios, 'apart_from_before': apart
      }  # fmt: skip
      print(f'{size} {work}: {json.dumps(ratios)}, apart {apart}', flush=True)
  if save:
    machine.save('learner_against', result)
