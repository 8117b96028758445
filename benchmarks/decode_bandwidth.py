"""Decoding on an accelerator: how much of its memory's bandwidth is used.

  python -m benchmarks.decode_bandwidth [--shapes 0.5B,3B] [--rows 1,8,64,128]
    [--against transformers] [--json]

A step of decoding has to read every weight once and each row's keys and values;
at few rows nothing else takes long, so the time that this takes at the memory's
own rate is the least there is. The rate is measured here: a copy of 2 GB, bytes
read and written. `rows` samples of one prompt of 64 tokens, all at once, 256 tokens
each, bfloat16, random weights of Qwen2.5's shapes, temperature 1, log-probs with
them; a step is the whole time over the tokens of a row, the prompt and the way back
to the host included. Median of `repeats` after passes to warm up. `transformers`
generates the same with its dynamic cache, without log-probs, once.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import machine
from benchmarks.shapes import SHAPES
from jaxagent.models import ModelConfig, init_decoder
from jaxagent.rollout.engines.native_engine import NativeEngine, Shapes
from jaxagent.types import Request, Sampling

PROMPT, ANSWER = 64, 256
_COPY = 2**30  # bfloat16 numbers


def bandwidth(repeats: int = 20) -> float:
  """Bytes a second of a copy on the device, read and written."""
  change = jax.jit(lambda x: x + 1, donate_argnums=0)
  x = change(jnp.zeros(_COPY, jnp.bfloat16))
  x.block_until_ready()
  start = time.perf_counter()
  for _ in range(repeats):
    x = change(x)
  x.block_until_ready()
  return repeats * 2 * x.nbytes / (time.perf_counter() - start)


def bytes_a_step(config: ModelConfig, rows: int) -> int:
  """What a step must read: weights, and keys and values of the mean length.

  The embedding table counts once: it is tied, and read for the logits.
  """
  size = jnp.dtype(config.dtype).itemsize
  column = config.num_hidden_layers * config.num_key_value_heads
  column *= 2 * config.head_dim
  read = config.num_params() + rows * column * (PROMPT + ANSWER / 2)
  return int(size * read)


def prompt(config: ModelConfig) -> np.ndarray:
  """int32 [PROMPT]"""
  rng = np.random.default_rng(0)
  return rng.integers(1, config.vocab_size, PROMPT).astype(np.int32)


def native(config: ModelConfig, rows: int) -> tuple[Callable, Callable]:
  """run(), close()."""
  graphdef, params = init_decoder(config, 0)
  engine = NativeEngine(
    graphdef,
    params,
    config,
    Shapes((PROMPT,), (1, rows), ANSWER),
  )
  sampling = Sampling(max_new_tokens=ANSWER)
  ids = prompt(config)

  def run() -> None:
    done = engine.generate(
      [Request(str(i), ids, i, sampling) for i in range(rows)]
    )
    assert all(len(c.token_ids) == ANSWER for c in done)

  return run, engine.close


def transformers(config: ModelConfig, rows: int) -> tuple[Callable, Callable]:
  """run(), close()."""
  import torch
  from transformers import AutoModelForCausalLM, Qwen2Config

  device = 'cuda' if torch.cuda.is_available() else 'cpu'
  with torch.device(device):
    model = AutoModelForCausalLM.from_config(
      Qwen2Config(**config.to_hf()), dtype=torch.bfloat16
    ).eval()
  ids = torch.tensor(prompt(config), dtype=torch.long, device=device)
  ids = ids[None].repeat(rows, 1)

  def run(answer: int = ANSWER) -> None:
    with torch.no_grad():
      out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=True,
        top_k=0,
        max_new_tokens=answer,
        min_new_tokens=answer,
        eos_token_id=None,
        pad_token_id=0,
      ).cpu()
    assert out.shape == (rows, PROMPT + answer)

  run(8)

  def close() -> None:
    nonlocal model
    del model
    torch.cuda.empty_cache()

  return run, close


SAMPLERS = {'native': native, 'transformers': transformers}


def measure(name: str, shape: str, rows: int, repeats: int) -> dict[str, Any]:
  """One row of the table."""
  config, once = SHAPES[shape], name != 'native'
  start = time.perf_counter()
  run, close = SAMPLERS[name](config, rows)
  try:
    for _ in range(0 if once else 2):
      run()
    ready = time.perf_counter() - start
    times = []
    for _ in range(1 if once else repeats):
      start = time.perf_counter()
      run()
      times.append(time.perf_counter() - start)
  finally:
    close()
  step = statistics.median(times) / ANSWER
  print(
    f'{name:13s} {shape:5s} rows={rows:4d}: {step * 1e3:7.3f} ms a step, '
    f'{rows / step:8.0f} tokens/s, ready after {ready:.0f} s',
    flush=True,
  )
  return {
    'sampler': name,
    'shape': shape,
    'rows': rows,
    'step_ms': step * 1e3,
    'tokens_per_s': rows / step,
    'bytes_a_step': bytes_a_step(config, rows),
    'ready_s': ready,
    'times_s': times,
  }


def table(result: dict[str, Any]) -> str:
  """Markdown."""
  rate = result['bandwidth_bytes_per_s']
  rows = {(r['sampler'], r['shape'], r['rows']): r for r in result['rows']}
  others = list(dict.fromkeys(r['sampler'] for r in result['rows']))[1:]
  lines = [
    '| shape | rows | ms a step | tokens/s | of the bandwidth'
    + ''.join(f' | {n}, tokens/s | times {n}' for n in others)
    + ' |',
    '|---' * (5 + 2 * len(others)) + '|',
  ]
  for (name, shape, n), row in rows.items():
    if name != 'native':
      continue
    used = row['bytes_a_step'] / row['step_ms'] * 1e3 / rate
    cells = [
      f'{row["step_ms"]:.2f}',
      f'{row["tokens_per_s"]:.0f}',
      f'{used:.2f}',
    ]
    for other in others:
      theirs = rows.get((other, shape, n))
      cells += (
        ['', '']
        if theirs is None
        else [
          f'{theirs["tokens_per_s"]:.0f}',
          f'{row["tokens_per_s"] / theirs["tokens_per_s"]:.1f}',
        ]
      )
    lines.append(f'| {shape} | {n} | {" | ".join(cells)} |')
  return '\n'.join(lines)


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--shapes', default='0.5B,3B')
  parser.add_argument('--rows', default='1,8,64,128')
  parser.add_argument('--against', default='')
  parser.add_argument('--repeats', type=int, default=3)
  parser.add_argument('--json', action='store_true', help='save the result')
  args = parser.parse_args()
  names = ['native', *filter(None, args.against.split(','))]
  for flag, given, choices in (
    ('against', names, SAMPLERS),
    ('shapes', args.shapes.split(','), SHAPES),
  ):
    unknown = set(given) - set(choices)
    if unknown:
      parser.error(f'--{flag}={sorted(unknown)}: choose from {list(choices)}.')
  rate = bandwidth()
  print(f'copy: {rate / 1e12:.2f} TB/s', flush=True)
  device = jax.devices()[0].device_kind
  rows: list[dict[str, Any]] = []
  result = {'device': device, 'bandwidth_bytes_per_s': rate, 'rows': rows}
  for name in names:
    for shape in args.shapes.split(','):
      for n in args.rows.split(','):
        rows.append(measure(name, shape, int(n), args.repeats))
        if args.json:
          machine.save('decode_bandwidth', result)
  print(table(result))


if __name__ == '__main__':
  main()
