"""Prompts that a group shares, computed once: tokens a second and peak memory.

  python -m benchmarks.shared_prompts [--repeats N] [--json]

GRPO on one group of 8 answers to one prompt, 16 tokens of prompt to one of an answer,
on the CPU; 3.5M and 20M weights (`benchmarks.decode`). `plain` computes the prompt with
each answer, `shared` once (`rl.share_prompts`); both take the whole group in one pass,
and `plain` also in passes of 4,096 tokens. Tokens are those of the samples, prompts
counted eight times, over the seconds of an update; by turns in one process, medians of
N after one that compiles. Memory is the peak of resident bytes while updates run, above
those of the learner at rest, in a process for each arm.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np

from benchmarks import machine

GROUP, ANSWER, RATIO = 8, 64, 16
WARM = 1
ARMS = {
  'plain': (False, 16384),
  'plain in passes of 4096': (False, 4096),
  'shared': (True, 16384),
}
SIZES = ('3.5M', '20M')


def samples(vocab: int) -> list[Any]:
  """One group of `GROUP` answers with rewards that differ."""
  from jaxagent.types import Outcome, Sample

  rng = np.random.default_rng(0)
  prompt = rng.integers(1, vocab, RATIO * ANSWER).astype(np.int32)
  return [
    Sample(
      prompt_id=f'0/0/{i}',
      group_id='0',
      prompt_ids=prompt,
      token_ids=rng.integers(1, vocab, ANSWER).astype(np.int32),
      loss_mask=np.ones(ANSWER, bool),
      behaviour_logprobs=np.full(ANSWER, -np.log(vocab), np.float32),
      version=0,
      outcome=Outcome.OK,
      reward=float(i),
      exec_s=1.0,
    )
    for i in range(GROUP)
  ]


def learner(size: str, arm: str) -> Any:
  """A learner of GRPO without a reference."""
  from benchmarks.decode import MODELS
  from jaxagent.learner import Learner, LearnerConfig

  shared, pass_tokens = ARMS[arm]
  config = LearnerConfig(
    estimator='grpo',
    kl_coef=0.0,
    share_prompts=shared,
    micro_batch_tokens=pass_tokens,
    row_layout='flat',
    ppo_epochs=1,
  )
  made = Learner(MODELS[size].replace(max_position_embeddings=2048), config)
  made.start_rl()
  return made


def speed(size: str, repeats: int) -> dict[str, dict[str, float]]:
  """{arm: {wall_s, tokens_s, padding}}, by turns."""
  arms = {name: learner(size, name) for name in ARMS}
  group = samples(arms['plain'].model_config.vocab_size)
  tokens = GROUP * (RATIO + 1) * ANSWER
  walls: dict[str, list[float]] = {name: [] for name in ARMS}
  padding = {}
  for step in range(WARM + repeats):
    for name, one in arms.items():
      began = time.perf_counter()
      padding[name] = one.rl_update(group)['learner/padding']
      if step >= WARM:
        walls[name].append(time.perf_counter() - began)
  return {
    name: {
      'wall_s': statistics.median(each),
      'tokens_s': tokens / statistics.median(each),
      'padding': padding[name],
    }
    for name, each in walls.items()
  }


def memory(size: str, arm: str) -> dict[str, float]:
  """{rest_mb, peak_mb}: resident, of a process of its own."""
  out = subprocess.run(
    [sys.executable, '-m', __spec__.name, '--peak', size, arm],
    check=True,
    capture_output=True,
    text=True,
  )
  return json.loads(out.stdout.splitlines()[-1])


def peak(size: str, arm: str) -> dict[str, float]:
  """Runs updates and tells the resident megabytes before and at the peak."""
  one = learner(size, arm)
  group = samples(one.model_config.vocab_size)
  one.rl_update(group)  # compiled; what that took is given back below
  machine.forget_peak()
  rest = machine.resident_mb()
  one.rl_update(group)
  return {'rest_mb': rest, 'peak_mb': machine.resident_mb(peak=True)}


def measure(repeats: int) -> dict[str, Any]:
  """{size: {arm: {wall_s, tokens_s, padding, rest_mb, peak_mb}, ratios}}"""
  result: dict[str, Any] = {}
  for size in SIZES:
    rows: dict[str, Any] = speed(size, repeats)
    for arm, row in rows.items():
      row |= memory(size, arm)
      print(
        f'{size} {arm}: {row["tokens_s"]:.0f} tokens a second, padding '
        f'{row["padding"]:.2f}, {row["rest_mb"]:.0f} MB at rest and '
        f'{row["peak_mb"]:.0f} at the peak',
        flush=True,
      )
    plain, shared = rows['plain'], rows['shared']
    above = [row['peak_mb'] - row['rest_mb'] for row in (plain, shared)]
    ratios = {
      'tokens_s': shared['tokens_s'] / plain['tokens_s'],
      'memory': above[1] / above[0],
      'memory_of_process': shared['peak_mb'] / plain['peak_mb'],
    }
    print(f'{size} shared over plain: {ratios}', flush=True)
    result[size] = {'arms': rows, 'ratios': ratios}
  return result


def table(result: dict[str, Any]) -> str:
  """Markdown: a row for each size and arm, ratios to `plain`."""
  lines = [
    '| weights | arm | tokens/s | padding | MB at rest | more at the peak | tokens/s '
    'to plain | more at the peak to plain |',
    '|---' * 8 + '|',
  ]
  for size in SIZES:
    arms = result[size]['arms']
    plain = arms['plain']
    above = lambda row: row['peak_mb'] - row['rest_mb']  # noqa: E731
    lines += [
      f'| {size} | {name} | {row["tokens_s"]:.0f} | {row["padding"]:.2f} '
      f'| {row["rest_mb"]:.0f} | {above(row):.0f} '
      f'| {row["tokens_s"] / plain["tokens_s"]:.2f} '
      f'| {above(row) / above(plain):.2f} |'
      for name, row in arms.items()
    ]
  return '\n'.join(lines)


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--repeats', type=int, default=3)
  parser.add_argument('--json', action='store_true')
  parser.add_argument('--peak', nargs=2, help=argparse.SUPPRESS)
  options = parser.parse_args()
  if options.peak:
    print(json.dumps(peak(*options.peak)))
    return
  result = measure(options.repeats)
  if options.json:
    machine.save('shared_prompts', result)


if __name__ == '__main__':
  main()
