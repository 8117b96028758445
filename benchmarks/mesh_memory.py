"""Bytes on the fullest of eight simulated devices while a learner loads and resumes.

`python -m benchmarks.mesh_memory --json` prints them over those of a ready learner;
it needs no accelerator. It asks for what a run asks for, `training.multi_process`, so that two
checkouts can be compared. Arrays are counted by `jax.live_arrays` in a thread beside,
as often as it can, and each time that a file's tensor or a checkpoint has been read.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import pathlib
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

DEVICES = 8
MESHES = ({'fsdp': DEVICES},)


def live_bytes() -> Counter[int]:
  """Bytes of live arrays by the device's number; what is on the host is not counted."""
  import jax

  found: Counter[int] = Counter()
  seen = set()
  for array in jax.live_arrays():
    if array.is_deleted() or array.sharding.memory_kind == 'pinned_host':
      continue
    for shard in array.addressable_shards:
      with contextlib.suppress(RuntimeError):  # deleted meanwhile
        where = shard.device.id, shard.data.unsafe_buffer_pointer()
        if where not in seen:
          seen.add(where)
          found[shard.device.id] += shard.data.nbytes
  return found


class Peak:
  """The most bytes that one device has had while it was watched."""

  def __init__(self) -> None:
    self.bytes = 0

  def look(self) -> None:
    """Counts now."""
    self.bytes = max(self.bytes, max(live_bytes().values(), default=0))


@contextlib.contextmanager
def watched() -> Iterator[Peak]:
  """Looks in a thread of its own, and whenever an array is placed."""
  import jax

  peak, done = Peak(), threading.Event()
  place = jax.make_array_from_callback

  def placed(*args: Any, **kwargs: Any) -> Any:
    array = place(*args, **kwargs)
    peak.look()
    return array

  def look() -> None:
    while not done.is_set():
      with contextlib.suppress(RuntimeError):
        peak.look()
      time.sleep(0.02)

  thread = threading.Thread(target=look, daemon=True)
  jax.make_array_from_callback = placed
  thread.start()
  try:
    yield peak
  finally:
    done.set()
    thread.join()
    jax.make_array_from_callback = place
    peak.look()


def measure(
  folder: pathlib.Path, work: pathlib.Path, mesh: dict, critic: bool
) -> dict[str, float]:
  """Peaks while a model's folder loads and while a run resumes, and what stays.

  All over the fullest device's bytes of a ready learner, whose state is counted
  by its shardings.
  """
  import jax

  from jaxagent.checkpoint import CheckpointManager
  from jaxagent.learner import LearnerConfig
  from jaxagent.models import ModelConfig
  from jaxagent.training import multi_process

  plan = multi_process.Plan(
    ModelConfig.from_hf(folder, scan_layers=True),
    LearnerConfig(
      policy_lr=1e-6,
      value_lr=1e-5,
      sft_lr=2e-5,
      ppo_epochs=1,
      kl_coef=0.001,
      entropy_metric=False,
      row_tokens=(64,),
      micro_batch_tokens=512,
    ),
    mesh=mesh,
    seed=0,
    pad_id=0,
    path=str(folder),
    critic_path=str(folder) if critic else '',
  )
  gc.collect()
  with watched() as loading:
    learner = multi_process.make_learner(plan)
  ready: Counter[int] = Counter()
  for leaf in jax.tree.leaves(learner.state()):
    for shard in getattr(leaf, 'addressable_shards', ()):
      ready[shard.device.id] += shard.data.nbytes
  full = max(ready.values())
  gc.collect()
  stays = max(live_bytes().values())
  manager = CheckpointManager(work)
  multi_process.save(learner, manager, 1, {})
  gc.collect()
  with watched() as resuming:
    kept = multi_process.restore(learner, manager)
  assert kept is not None
  return {
    'ready_mb': full / 1e6,
    'loading': loading.bytes / full,
    'stays': stays / full,
    'resuming': resuming.bytes / full,
  }


def _arms(root: pathlib.Path) -> list[dict[str, Any]]:
  from jaxagent.models import ModelConfig, hf, init_decoder

  model = ModelConfig(
    vocab_size=2048,
    hidden_size=256,
    intermediate_size=768,
    num_hidden_layers=4,
    num_attention_heads=8,
    num_key_value_heads=2,
    head_dim=32,
    tie_word_embeddings=False,
  )
  folder = root / 'model'
  _, params = init_decoder(model, 0)
  hf.save_hf(folder, model, params)
  del params
  rows: list[dict[str, Any]] = []
  for mesh in MESHES:
    for critic in (False, True):
      work = root / f'work{len(rows)}'
      found = measure(folder, work, mesh, critic)
      rows.append({'mesh': mesh, 'critic': critic, **found})
  return rows


def table(result: dict[str, Any]) -> str:
  """The most bytes of a device over those of a ready learner, before and now."""
  lines = [
    '| critic of its own | while | b279f23 | now |',
    '|---|---|---|---|',
  ]
  for old, new in zip(result['before']['rows'], result['now']['rows']):
    for phase in ('loading', 'stays', 'resuming'):
      text = 'after loading' if phase == 'stays' else phase
      critic = 'yes' if new['critic'] else 'no'
      lines.append(
        f'| {critic} | {text} | {old[phase]:.2f} | {new[phase]:.2f} |'
      )
  return '\n'.join(lines)


def main(argv: list[str] | None = None) -> int:
  """Prints the ratios; with --json as JSON, to a file where one is named."""
  parser = argparse.ArgumentParser(prog='python -m benchmarks.mesh_memory')
  parser.add_argument('--json', nargs='?', const='-', metavar='FILE')
  args = parser.parse_args(argv)
  os.environ['JAX_PLATFORMS'] = 'cpu'
  flags = os.environ.get('XLA_FLAGS', '')
  os.environ['XLA_FLAGS'] = (
    f'{flags} --xla_force_host_platform_device_count={DEVICES}'
  )
  from benchmarks import machine

  with tempfile.TemporaryDirectory() as root:
    rows = _arms(pathlib.Path(root))
  result = {'machine': machine.describe(), 'rows': rows}
  if args.json is None:
    for row in rows:
      print(row)
  elif args.json == '-':
    print(json.dumps(result, indent=1))
  else:
    pathlib.Path(args.json).write_text(json.dumps(result, indent=1) + '\n')
  return 0


if __name__ == '__main__':
  sys.exit(main())
