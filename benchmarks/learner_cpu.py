"""The learner on a CPU: seconds of its parts at the quickstart's shape, by turns.

  python -m benchmarks.learner_step --cpu [--repeats N] [--json]

Three learners of the quickstart's model (0.7M weights) in one process take the same
batches in turn: `packed` has several short rows a pass and the kernel `mapped`, as
before; `flat` is what `auto` takes on one CPU device; `bfloat16` is `flat` with
`rl.product_dtype=bfloat16`, for a CPU with tiles. A step of SFT has 8 texts, a step
of the value warm-up and an update of RL 32 samples of 166 tokens, 20 of standard
deviation (some 5,300 tokens; no rollouts are waited for). CPU seconds of the process
and seconds by the clock, medians of N after two that compile.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

from benchmarks import machine

VOCAB, TEXT, SPREAD = 1024, 166, 20
WARM = 2
ARMS = {
  'packed': {'attention': 'mapped', 'row_layout': 'packed'},
  'flat': {'attention': 'auto', 'row_layout': 'auto'},
  'bfloat16': {
    'attention': 'auto',
    'row_layout': 'auto',
    'product_dtype': 'bfloat16',
  },
}
PARTS = ('sft', 'value warm-up', 'rl')


def samples(count: int, seed: int = 0) -> list[Any]:
  """Drawn samples, two thirds prompt."""
  from jaxagent.types import Outcome, Sample

  rng = np.random.default_rng(seed)
  made = []
  for i in range(count):
    length = int(np.clip(rng.normal(TEXT, SPREAD), 60, 440))
    ids = rng.integers(1, VOCAB, length).astype(np.int32)
    start = 2 * length // 3
    made.append(
      Sample(
        prompt_id=str(i),
        group_id=str(i),
        prompt_ids=ids[:start],
        token_ids=ids[start:],
        loss_mask=np.ones(length - start, bool),
        behaviour_logprobs=np.full(length - start, -6.9, np.float32),
        version=0,
        outcome=Outcome.OK,
        reward=float(rng.normal()),
        exec_s=1.0,
      )
    )
  return made


class Arm:
  """A learner of each phase, and the same batches for all arms."""

  def __init__(self, attention: str, **options: Any):
    from jaxagent.learner import Learner, LearnerConfig
    from jaxagent.models import ModelConfig

    model = ModelConfig(
      vocab_size=VOCAB,
      hidden_size=128,
      intermediate_size=384,
      num_hidden_layers=3,
      num_attention_heads=4,
      num_key_value_heads=2,
      head_dim=32,
      attention=attention,
    )
    config = LearnerConfig(row_tokens=(256, 448), **options)
    self._rl, self._sft = Learner(model, config), Learner(model, config)
    self._sft.start_sft(lr=1e-3)
    self._samples = samples(32)
    self._rows = [
      (
        np.r_[s.prompt_ids, s.token_ids],
        np.r_[np.zeros(len(s.prompt_ids), bool), s.loss_mask],
      )
      for s in samples(8, seed=1)
    ]

  def step(self, part: str) -> float | None:
    """Runs one step of a part; returns its share of padding where that is told."""
    if part == 'sft':
      found = self._sft.sft_step(self._sft.sft_batches(self._rows))
    elif part == 'rl':
      found = self._rl.rl_update(self._samples)
    else:
      found = self._rl.value_update(self._samples)
    return found.get('learner/padding')


def measure(repeats: int) -> dict[str, Any]:
  """{part: {arm: {cpu_s, wall_s, padding, cpu_each_s, ratio: CPU s to packed's}}}"""
  arms = {name: Arm(**options) for name, options in ARMS.items()}
  result: dict[str, Any] = {}
  for part in PARTS:
    found: dict[str, Any] = {n: {'cpu': [], 'wall': []} for n in arms}
    for step in range(WARM + repeats):
      for name, arm in arms.items():
        wall, cpu = time.perf_counter(), time.process_time()
        found[name]['padding'] = arm.step(part)
        if step >= WARM:
          found[name]['wall'].append(time.perf_counter() - wall)
          found[name]['cpu'].append(time.process_time() - cpu)
    rows: dict[str, Any] = {
      name: {
        'cpu_s': statistics.median(f['cpu']),
        'wall_s': statistics.median(f['wall']),
        'padding': f['padding'],
        'cpu_each_s': f['cpu'],
      }
      for name, f in found.items()
    }
    result[part] = rows
    for name, row in rows.items():
      row['ratio'] = row['cpu_s'] / rows['packed']['cpu_s']
      print(
        f'{part}, {name}: {row["cpu_s"]:.3f} s of CPU (ratio {row["ratio"]:.2f}), '
        f'{row["wall_s"]:.3f} by the clock'
        + (f', padding {row["padding"]:.2f}' if row['padding'] else ''),
        flush=True,
      )
  return result


def main(repeats: int, save: bool) -> None:
  """Measures and prints; keeps the result where asked."""
  result = measure(repeats)
  if save:
    print(machine.save('learner_cpu', result))
