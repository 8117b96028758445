"""The learner's step on an accelerator: tokens a second, FLOPs used, memory.

  python -m benchmarks.learner_step [--arms NAME,...] [--json]
  python -m benchmarks.learner_step --cpu [--repeats N] [--json]  # benchmarks.learner_cpu
  python -m benchmarks.learner_step --cpu --against transformers  # ..learner_against

One optimizer step over 4 micro-batches of 16,384 tokens, in rows of `row` tokens that
are full: Qwen2.5's shapes with random weights, float32 weights and moments, products
in bfloat16, layers recomputed in the backward pass unless the arm says otherwise.
`sft` is `Learner.sft_step`; `rl` is `Learner.rl_update` (GRPO, no reference), which
first takes log-probs of its samples; `transformers` is the same as `sft` in PyTorch
(autocast, its scaled-dot-product attention, gradient checkpointing, fused AdamW).

MFU is 3 forward passes (`plan.flops_per_token`), 4 with log-probs, over the sheet's
peak for dense bfloat16; what is recomputed does not count. Memory is the allocator's
peak, beside what `jaxagent.plan` expects. Each arm is a process of its own, the median
of 5 steps after 2.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import learner_cpu, machine, torch_models
from jaxagent.runtime import allocator

MICROS, MICRO_TOKENS = 4, 16384
WARM, REPEATS = 2, 5


@dataclasses.dataclass(frozen=True)
class Arm:
  """row: tokens of a row. work: 'sft' or 'rl'."""

  trainer: str
  shape: str
  row: int
  work: str = 'sft'
  attention: str = 'auto'
  remat: str = 'full'
  chunk_rows: int = 1024


ARMS = {
  '0.5B': Arm('jaxagent', '0.5B', 2048),
  '0.5B-torch': Arm('transformers', '0.5B', 2048),
  '0.5B-chunk': Arm('jaxagent', '0.5B', 2048, chunk_rows=8192),
  '0.5B-xla': Arm('jaxagent', '0.5B', 2048, attention='xla'),
  '0.5B-rl': Arm('jaxagent', '0.5B', 2048, work='rl'),
  '0.5B-long': Arm('jaxagent', '0.5B', 8192),
  '0.5B-long-torch': Arm('transformers', '0.5B', 8192),
  '1.5B': Arm('jaxagent', '1.5B', 2048),
  '1.5B-torch': Arm('transformers', '1.5B', 2048),
  '0.5B-kept': Arm('jaxagent', '0.5B', 2048, remat='none'),
  '0.5B-long-xla': Arm('jaxagent', '0.5B', 8192, attention='xla'),
}


def tokens(vocab: int, row: int) -> np.ndarray:
  """int32 [MICROS, rows, row]"""
  rng = np.random.default_rng(0)
  shape = (MICROS, MICRO_TOKENS // row, row)
  return rng.integers(1, vocab, shape).astype(np.int32)


def ours(model, arm: Arm) -> tuple[Callable, Callable]:
  """step(), peak bytes()."""
  from jaxagent.learner import Learner, LearnerConfig
  from jaxagent.models import init_decoder

  model = model.replace(
    param_dtype='float32',
    scan_layers=True,
    attention=arm.attention,
    remat=arm.remat,
  )
  learner = Learner(
    model,
    LearnerConfig(
      policy_lr=1e-6,
      ppo_epochs=1,
      entropy_metric=False,
      estimator='grpo',
      kl_coef=0.0,
      micro_batch_tokens=MICRO_TOKENS,
      row_tokens=(arm.row,),
      chunk_rows=arm.chunk_rows,
      donate=True,
    ),
    policy_params=init_decoder(model, 0)[1],
  )
  ids = tokens(model.vocab_size, arm.row)
  if arm.work == 'rl':
    samples = _samples(ids.reshape(-1, arm.row))
    return lambda: learner.rl_update(samples), _peak
  learner.start_sft()
  batches = [_batch(micro) for micro in ids]
  return lambda: learner.sft_step(batches), _peak


def _peak() -> int:
  import jax

  return (jax.devices()[0].memory_stats() or {}).get('peak_bytes_in_use', 0)


def _batch(ids: np.ndarray):
  from jaxagent.types import Batch

  ones = np.ones(ids.shape, np.float32)
  ones[:, 0] = 0  # nothing before it predicts it
  return Batch(
    tokens=ids,
    positions=np.tile(np.arange(ids.shape[1], dtype=np.int32), (len(ids), 1)),
    segment_ids=np.ones(ids.shape, np.int32),
    mask=ones,
    behaviour_logprobs=0 * ones,
    rewards=0 * ones,
    weights=ones,
    n_samples=len(ids),
  )


def _samples(rows: np.ndarray) -> list:
  """A prompt of a quarter, the rest a response; groups of 8, rewards drawn."""
  from jaxagent.types import Outcome, Sample

  rng = np.random.default_rng(1)
  start = rows.shape[1] // 4
  n = rows.shape[1] - start
  return [
    Sample(
      prompt_id=str(i),
      group_id=str(i // 8),
      prompt_ids=row[:start],
      token_ids=row[start:],
      loss_mask=np.ones(n, bool),
      behaviour_logprobs=np.full(n, -12.0, np.float32),
      version=0,
      outcome=Outcome.OK,
      reward=float(rng.normal()),
      exec_s=1.0,
    )
    for i, row in enumerate(rows)
  ]


def transformers(model, arm: Arm) -> tuple[Callable, Callable]:
  """step(), peak bytes()."""
  import torch

  device = 'cuda' if torch.cuda.is_available() else 'cpu'
  torch.backends.cuda.matmul.allow_tf32 = True
  with torch.device(device):
    net = torch_models.qwen2(model)
  if arm.remat == 'full':
    net.gradient_checkpointing_enable({'use_reentrant': False})
  adam = torch.optim.AdamW(
    net.parameters(), lr=2e-5, weight_decay=0.01, fused=device == 'cuda'
  )
  ids = torch.tensor(tokens(model.vocab_size, arm.row), dtype=torch.long)
  ids = ids.to(device)

  def step() -> None:
    for micro in ids:
      with torch.autocast(device, dtype=torch.bfloat16):
        loss = net(input_ids=micro, labels=micro).loss / MICROS
      loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    adam.step()
    adam.zero_grad()
    assert np.isfinite(loss.item())

  def peak() -> int:
    return torch.cuda.max_memory_allocated() if device == 'cuda' else 0

  return step, peak


TRAINERS = {'jaxagent': ours, 'transformers': transformers}


def measure(name: str) -> dict[str, Any]:
  """One arm, in this process."""
  from benchmarks.shapes import SHAPES
  from jaxagent import plan

  arm = ARMS[name]
  model = SHAPES[arm.shape]
  began = time.perf_counter()
  step, peak = TRAINERS[arm.trainer](model, arm)
  for _ in range(WARM):
    step()
  ready = time.perf_counter() - began
  times = []
  for _ in range(REPEATS):
    began = time.perf_counter()
    step()
    times.append(time.perf_counter() - began)
  seconds = statistics.median(times)
  forward = plan.flops_per_token(model, arm.row)
  passes = 4 if arm.work == 'rl' else 3
  count = MICROS * MICRO_TOKENS
  return {
    'arm': name,
    **dataclasses.asdict(arm),
    'step_s': seconds,
    'tokens_per_s': count / seconds,
    'flops_per_s': passes * forward * count / seconds,
    'peak_gb': peak() / 1e9,
    'ready_s': ready,
    'times_s': times,
  }


def planned(row: dict[str, Any]) -> float:
  """Bytes that the plan expects of an arm; the weights are updated in place."""
  from benchmarks.shapes import SHAPES
  from jaxagent import plan

  model = SHAPES[row['shape']].replace(
    param_dtype='float32', remat=row['remat'], attention=row['attention']
  )
  memory = plan.plan(
    model,
    {},
    plan.PlanOptions(
      device='h200',
      tokens_per_sample=row['row'],
      micro_batch_tokens=MICRO_TOKENS,
      chunk_rows=row['chunk_rows'],
      with_value=False,
      with_reference=False,
    ),
  )['memory_per_device']
  return sum(v for k, v in memory.items() if k != 'policy_copy')


def table(result: dict[str, Any]) -> str:
  """Markdown; an arm that failed says with what."""
  lines = [
    '| shape | row | trainer | work | differs by | tokens/s | MFU | peak, GB '
    '| planned, GB |',
    '|---' * 9 + '|',
  ]
  for row in result['rows']:
    default = Arm(row['trainer'], row['shape'], row['row'])
    differs = ', '.join(
      f'{k} {row[k]}'
      for k in ('attention', 'remat', 'chunk_rows')
      if row[k] != getattr(default, k)
    )
    head = (
      f'| {row["shape"]} | {row["row"]} | {row["trainer"]} | {row["work"]} '
    )
    head += f'| {differs} '
    if 'error' in row:
      lines.append(head + f'| {row["error"]} | | | |')
      continue
    own = f'{planned(row) / 1e9:.1f}' if row['trainer'] == 'jaxagent' else ''
    lines.append(
      head + f'| {row["tokens_per_s"]:.0f} '
      f'| {row["flops_per_s"] / result["peak_flops"]:.2f} '
      f'| {row["peak_gb"]:.1f} | {own} |'
    )
  return '\n'.join(lines)


def _apart(name: str, seconds: float) -> dict[str, Any]:
  """`measure` in a process of its own, or what it failed with."""
  env = os.environ | {'XLA_PYTHON_CLIENT_PREALLOCATE': 'false'}
  command = [sys.executable, '-m', 'benchmarks.learner_step', '--arm', name]
  failed = {'arm': name, **dataclasses.asdict(ARMS[name])}
  try:
    done = subprocess.run(
      command, env=env, capture_output=True, text=True, timeout=seconds
    )
  except subprocess.TimeoutExpired:
    return failed | {'error': f'not done in {seconds:.0f} s'}
  if done.returncode:
    print(done.stderr[-2000:], flush=True)
    no_memory = any(w in done.stderr for w in ('OutOfMemory', 'RESOURCE_EXH'))
    return failed | {'error': 'out of memory' if no_memory else 'failed'}
  return json.loads(done.stdout.splitlines()[-1])


def peak_flops() -> float:
  """Of the sheet, for the device that is here; nan where it is not known."""
  import jax

  from jaxagent import plan

  kind = jax.devices()[0].device_kind.lower()
  found = [v for k, v in plan.PEAK_FLOPS.items() if k in kind and k != 'cpu']
  return found[0] if found else float('nan')


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--arms', default=','.join(ARMS))
  parser.add_argument('--arm', choices=ARMS, help='this one, in this process')
  parser.add_argument('--limit_s', type=float, default=300, help='an arm')
  parser.add_argument('--json', action='store_true', help='save the result')
  parser.add_argument('--cpu', action='store_true', help='on this CPU instead')
  parser.add_argument('--against', choices=('transformers',), help='with --cpu')
  parser.add_argument('--repeats', type=int, default=7, help='with --cpu')
  parser.add_argument('--peak', nargs=3, help=argparse.SUPPRESS)
  args = parser.parse_args()
  if args.cpu:
    os.environ['JAX_PLATFORMS'] = 'cpu'
    allocator.keep_freed_memory()  # as a run does
    from benchmarks import (
      learner_against,
    )  # imports jax, for the CPU from here on

    if args.peak:
      learner_against.tell_peak(*args.peak)
    elif args.against:
      learner_against.main(args.repeats, args.json)
    else:
      learner_cpu.main(args.repeats, args.json)
    return
  if args.against:
    parser.error('--against is for --cpu; on accelerators it is an arm.')
  if args.arm:
    print(json.dumps(measure(args.arm)))
    return
  unknown = set(args.arms.split(',')) - set(ARMS)
  if unknown:
    parser.error(f'--arms={sorted(unknown)}: choose from {list(ARMS)}.')
  os.environ['XLA_PYTHON_CLIENT_PREALLOCATE'] = 'false'
  rows: list[dict[str, Any]] = []
  result = {'peak_flops': peak_flops(), 'rows': rows}
  for name in args.arms.split(','):
    rows.append(_apart(name, args.limit_s))
    print({k: v for k, v in rows[-1].items() if k != 'times_s'}, flush=True)
    if args.json:
      machine.save('learner_step', result)
  print(table(result))


if __name__ == '__main__':
  main()
