"""Weights from the trainer into a vLLM server: seconds and GB/s.

  python -m benchmarks.weight_sync [--sizes 16,128,512,2048] [--json]

For each size (MB of float32 weights) and each route a real server on this
machine: `shared_memory` (our plug-in) and `folder` (safetensors that the server
reloads) for all weights; `adapters` for those of rank 16 over a base that stays
(MB are those of the base). An update is what the trainer waits for. The first one is a warm-up; the
median of the others counts. Its parts: the trainer writes, with checksums; the
server checks and loads; the trainer scores a fixed request (what remains is the
server's answer to it, with an emptied prefix cache). The smallest size is updated
100 times, and the memory of all the server's processes is read before and after.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import pathlib
import statistics
import tempfile
import time
from typing import Any

import jax
from flax import nnx

from benchmarks import machine
from configs import common
from jaxagent.data import bpe
from jaxagent.models import init_decoder, lora
from jaxagent.runtime import engines
from jaxagent.testing import process_tree
from jaxagent.training import device

ROUTES = ('shared_memory', 'folder', 'adapters')
RANK = 16
SIZES = (16, 128, 512, 2048)  # MB
UPDATES, MANY = 5, 100
_SHARPER = 8.0  # the embedding, which is the output's table, too


def shape(mb: int) -> dict[str, int]:
  """Of a decoder with about `mb` million bytes of float32 weights."""
  layers = 4 if mb < 100 else 12
  # A layer has about 4 h^2 (attention) + 9 h^2 (MLP of width 3 h).
  hidden = round((mb * 1e6 / 4 / layers / 13) ** 0.5 / 64) * 64
  return {
    'hidden_size': hidden,
    'intermediate_size': 3 * hidden,
    'num_hidden_layers': layers,
    'num_attention_heads': hidden // 64,
    'num_key_value_heads': hidden // 64,
  }


def resident_mb(pid: int) -> float:
  """Of a process and all below it, shared pages by their share."""
  total = 0
  for one in [pid, *process_tree.below(pid)]:
    for line in pathlib.Path(f'/proc/{one}/smaps_rollup').open():
      if line.startswith('Pss:'):
        total += int(line.split()[1])
  return total / 1024


def measure(mb: int, route: str, updates: int, work: pathlib.Path) -> dict:
  """A row of the result."""
  config = common.base()
  config.model.hf.update(shape(mb))
  config.rollout.engine = 'vllm'
  if route != 'adapters':
    config.rollout.vllm.sync = route
  config.rollout.max_num_seqs = 8
  tokenizer = bpe.train([__doc__], 512)
  tokenizer.save(work / 'tokenizer')
  model = device.model_config(config, tokenizer.vocab_size)
  graphdef, params = init_decoder(model, 0)
  # So small a random model answers all tokens about alike, which no adapter changes by
  # the nat that a server is to prove.
  flat = dict(nnx.to_flat_state(params))
  table = flat['embed',]
  flat['embed',] = table.replace(_SHARPER * table[...])
  params = nnx.from_flat_state(flat)
  size = sum(leaf.nbytes for leaf in jax.tree.leaves(params)) / 1e9
  served = engines.Served(config, work, model, graphdef, params, tokenizer)
  moved = size
  if route == 'adapters':
    adapted = model.replace(lora_rank=RANK)
    params = lora.random_lora(adapted, params, size=0.1, seed=0)
    served = dataclasses.replace(served, adapted=adapted)
    adapters = lora.split_lora(params)[0]
    moved = sum(leaf.nbytes for leaf in jax.tree.leaves(adapters)) / 1e9
  engine: Any = engines.make_engine(served)  # its private parts are timed
  # Adapters are pushed but once with their base.
  moves = 'load' if route == 'adapters' else 'push'
  write, push, check = (
    engine._sync.write,
    getattr(engine._sync, moves),
    engine._probe.check,
  )
  parts: dict[str, list[float]] = {'write_s': [], 'load_s': [], 'probe_s': []}

  @contextlib.contextmanager
  def timed(part: str):
    begun = time.monotonic()
    yield
    parts[part].append(time.monotonic() - begun)

  async def timed_push(*args):
    with timed('load_s'):
      await push(*args)

  engine._sync.write = timed('write_s')(write)
  setattr(engine._sync, moves, timed_push)
  engine._probe.check = timed('probe_s')(check)
  times, memory, beside = [], [], []
  try:
    (url,) = engine._fleet.urls
    for version in range(updates + 1):
      begun = time.monotonic()
      engine.update_weights(params, version)
      times.append(time.monotonic() - begun)
      # Of adapters: the first requests of a version run meanwhile.
      engine.wait_for_proof()
      beside.append(time.monotonic() - begun - times[-1])
      memory.append(resident_mb(engine._fleet.pid(url)))
  finally:
    engine.close()
  seconds = statistics.median(times[1:])
  return {
    'mb': round(1e3 * size, 1),
    'moved_mb': round(1e3 * moved, 2),
    'route': route,
    'updates': updates,
    'seconds': seconds,
    'proof_beside_s': statistics.median(beside[1:]),
    **{name: statistics.median(times[1:]) for name, times in parts.items()},
    'gb_per_s': moved / seconds,
    'server_mb_after_first': memory[1],
    'server_mb_after_last': memory[-1],
  }


def line(row: dict) -> str:
  return (
    f'| {row["mb"]:.0f} | {row["route"]} | {_moved(row):.3g} | '
    f'{row["seconds"]:.2f} | '
    f'{row["write_s"]:.2f} | {row["load_s"]:.2f} | {row["probe_s"]:.2f} | '
    f'{row["gb_per_s"]:.2f} | {row["updates"]} | '
    f'{row["server_mb_after_first"]:.0f} | {row["server_mb_after_last"]:.0f} |'
  )


def _moved(row: dict) -> float:
  return row.get('moved_mb', row['mb'])


def table(result: dict[str, Any]) -> str:
  """Markdown."""
  head = (
    '| MB | route | MB moved | seconds an update | written | loaded | scored here | GB/s | '
    'updates | server, MB, after the first | and the last |'
  )
  return '\n'.join([head, '|' + '---|' * 11, *map(line, result['rows'])])


def main() -> None:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--sizes', default=','.join(map(str, SIZES)))
  parser.add_argument('--routes', default=','.join(ROUTES))
  parser.add_argument('--json', action='store_true', help='save the result')
  args = parser.parse_args()
  sizes = [int(s) for s in args.sizes.split(',')]
  rows = []
  for mb in sizes:
    for route in args.routes.split(','):
      many = mb == min(sizes) and route == 'shared_memory'
      with tempfile.TemporaryDirectory() as work:
        rows.append(
          measure(mb, route, MANY if many else UPDATES, pathlib.Path(work))
        )
      print(line(rows[-1]), flush=True)
  result = {'rows': rows}
  print(table(result))
  if args.json:
    print(machine.save('weight_sync', result))


if __name__ == '__main__':
  main()
