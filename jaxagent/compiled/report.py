"""A run's programs compiled for a target: memory, collectives, products, and the verdict.

`compile_all` compiles each in turn and `summary` says whether all fit beside what else
a device holds then.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from jax.sharding import Mesh

from jaxagent import plan
from jaxagent.compiled import analytic, hlo, memory, products, sampling
from jaxagent.compiled.programs import Learner, Program, Run, device_bytes
from jaxagent.devices import sharding

GB = plan.GB


@dataclasses.dataclass(frozen=True)
class Measured:
  """One program, compiled; bytes and FLOPs of one device.

  memory: arguments, results that are none of them, and temporaries. error: why there
  is none of this, in one line.
  """

  memory: int = 0
  arguments: int = 0
  temporaries: int = 0
  results: int = 0
  collectives: Mapping[str, int] = dataclasses.field(default_factory=dict)
  unknown_loops: tuple[str, ...] = ()
  flops: float = 0.0
  unknown_calls: tuple[str, ...] = ()
  compile_s: float = 0.0
  error: str = ''


def measure(
  program: Program, platform: str, known: dict[str, Any] | None = None
) -> Measured:
  """Compiles it. What the compiler refuses is an error in the result.

  platform: of the devices, as jax names it. known: what was compiled before, by its
  text, which is not compiled again; added to.
  """
  began = time.monotonic()
  found, known = Measured(), {} if known is None else known
  try:
    for lowered, times in program.lower():
      text = lowered.as_text()
      if text not in known:
        known[text] = memory.compiled(lowered, platform)
      compiled, need = known[text]
      found = _joined(found, compiled, need, times)
  except Exception as error:  # noqa: BLE001 - a compiler's, of many kinds
    text = ' '.join(str(error).split())
    return Measured(error=f'{type(error).__name__}: {text[:500]}')
  return dataclasses.replace(found, compile_s=time.monotonic() - began)


def _joined(
  found: Measured, compiled: Any, need: memory.Memory, times: int
) -> Measured:
  """Adds one more that runs after what there is."""
  text = compiled.as_text()
  moved, multiplied = hlo.collectives(text), products.products(text)
  collectives = dict(found.collectives)
  for kind, size in moved.bytes.items():
    collectives[kind] = collectives.get(kind, 0) + times * size
  larger = need.total > found.memory
  return dataclasses.replace(
    found,
    memory=max(need.total, found.memory),
    arguments=need.arguments if larger else found.arguments,
    temporaries=need.temporaries if larger else found.temporaries,
    results=need.results if larger else found.results,
    collectives=collectives,
    unknown_loops=found.unknown_loops + moved.unknown_loops,
    flops=found.flops + times * multiplied.flops,
    unknown_calls=found.unknown_calls + multiplied.unknown,
  )


def roles(learner: Learner, sampler: sampling.Sampler | None) -> dict[str, int]:
  """Bytes a device of all that is alive beside a program, by role.

  What is offloaded is on the host. A native engine has a cache, whole on one
  device, and holds the policy of before an update until the new one is handed over.
  Merged kernels are kept by vLLM's client, too.
  """
  found = {
    name: device_bytes(tree)
    for name, tree in learner.roles.items()
    if name not in learner.run.options.offload
  }
  if sampler is None:
    if learner.run.keeps_merged:
      found['engine_weights'] = found['frozen']
    return found
  found[sampling.CACHE] = device_bytes(sampler.cache())
  if sampler.moves:
    found['engine_weights'] = device_bytes(sampler.params)
  elif learner.run.model.lora_rank:
    found['engine_weights'] = found['frozen']  # merged kernels
  elif not learner.run.options.donate:
    found['policy_copy'] = found['policy']
  return found


def compiled_plan(
  run: Run,
  mesh: Mesh,
  room: float | None,
  say: Callable[[str], None] = lambda line: print(
    line, file=sys.stderr, flush=True
  ),
  only: Sequence[str] | None = None,
) -> dict[str, Any]:
  """All programs of a run, or those named, compiled for the mesh's devices.

  room: bytes that a device has for them; None is no limit. say: gets a line for each
  program as it is done. Returns what `plan --json FILE` writes, figures a device.
  """
  learner = Learner(run, mesh)
  sampler = sampling.Sampler(learner) if run.engine else None
  alive = roles(learner, sampler)
  first, *then = sharding.scatter_stages(mesh)
  platform = mesh.devices.flat[0].platform
  plane = len(first[0]) if first and then else 0
  volumes = analytic.Volumes(run, dict(mesh.shape), platform, plane)
  found: dict[str, dict[str, Any]] = {}
  known: dict[str, Any] = {}
  every = [*learner.each(), *(sampler.each() if sampler else ())]
  for program in every:
    if only is not None and program.name not in only:
      continue
    measured = measure(program, platform, known)
    beside = sum(
      size for name, size in alive.items() if name not in program.holds
    )
    found[program.name] = _record(
      program, measured, beside, volumes.of(program.name), mesh.size, run
    )
    say(line_of(program.name, found[program.name]))
  return {
    'mesh': dict(mesh.shape),
    'rows': run.rows,
    'row_tokens': run.row_tokens,
    'roles_gb': {name: size / GB for name, size in alive.items()},
    'programs': found,
    **verdict(found, room, run, sharding.rows_multiple(mesh)),
    'jax': jax.__version__,
  }


def _record(
  program: Any, measured: Any, beside: Any, volume: Any, devices: int, run: Any
) -> dict[str, Any]:
  if measured.error:
    return {'error': measured.error}
  record = {
    'memory_gb': measured.memory / GB,
    'arguments_gb': measured.arguments / GB,
    'temporaries_gb': measured.temporaries / GB,
    'beside_gb': beside / GB,
    'total_gb': (measured.memory + beside) / GB,
    'collectives_gb': {k: v / GB for k, v in measured.collectives.items()},
    'compile_s': round(measured.compile_s, 1),
  }
  if volume is not None:
    record['analytic_gb'] = sum(volume.values()) / GB
    record['analytic_by_kind_gb'] = {k: v / GB for k, v in volume.items()}
  model_flops = analytic.model_flops(run, program.name) / devices
  if model_flops:
    record['products_over_model'] = round(measured.flops / model_flops, 3)
  if measured.unknown_loops:
    record['unknown_loops'] = list(measured.unknown_loops)
  if measured.unknown_calls:
    record['unknown_calls'] = sorted(set(measured.unknown_calls))
  return record


def verdict(
  found: Mapping[str, Mapping[str, Any]],
  room: float | None,
  run: Run,
  devices: int,
) -> dict[str, Any]:
  """fits, room_gb, short_gb, and what can be done where it does not fit."""
  broken = [name for name, record in found.items() if 'error' in record]
  totals = {n: r['total_gb'] for n, r in found.items() if 'error' not in r}
  largest = max(totals, key=totals.__getitem__, default='')
  short = 0.0
  if room is not None and largest:
    short = max(0.0, totals[largest] - room / GB)
  advice = 'fits'
  if broken:
    advice = f'{", ".join(broken)}: not compiled'
  elif short:
    advice = f'short by {short:.1f} GB a device in {largest}: ' + '; '.join(
      _remedies(run, largest, found[largest], devices)
    )
  return {
    'room_gb': None if room is None else room / GB,
    'fits': not broken and not short,
    'short_gb': short,
    'advice': advice,
  }


def _remedies(
  run: Run, name: str, record: Mapping[str, Any], devices: int
) -> list[str]:
  """Names what a config can do about a program that is too large on so many devices."""
  tips = []
  if name in ('prefill', 'decode') or record['beside_gb'] > record['memory_gb']:
    if run.engine:
      tips.append(f'lower rollout.max_num_seqs (now {run.engine.slots})')
  if name.endswith(('_grads', 'logprobs', 'values')):
    if run.model.remat != 'full':
      tips.append('set model.remat=full')
    if run.rows > devices:
      tips.append('lower rl.micro_batch_tokens')
    else:
      tips.append(
        'lower rollout.max_prompt_tokens or max_new_tokens '
        f'(a row has {run.row_tokens} tokens)'
      )
  return [*tips, 'take more devices (mesh.fsdp)']


def line_of(name: str, record: Mapping[str, Any]) -> str:
  """One program for people."""
  if 'error' in record:
    return f'  {name:<18} does not compile: {record["error"]}'
  moved = record['collectives_gb']
  kinds = ', '.join(
    f'{k} {v:.3g}' for k, v in sorted(moved.items()) if v >= 5e-4
  )
  of = ''
  if 'analytic_gb' in record:
    of = f' of {record["analytic_gb"]:.3g} by hand'
  ratio = record.get('products_over_model')
  more = f"; products {ratio:.2f} of the model's" if ratio else ''
  if 'unknown_calls' in record:
    more += f' without {", ".join(record["unknown_calls"])}'
  if 'unknown_loops' in record:
    more += f'; {len(record["unknown_loops"])} loops counted once'
  return (
    f'  {name:<18}{record["memory_gb"]:9.3f} GB and {record["beside_gb"]:.3f} '
    f'beside it; collectives {sum(moved.values()):.3g} GB{of}'
    f'{f" ({kinds})" if kinds else ""}{more}'
  )
