"""The command line of compiled plans, within a process that has the target's devices."""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from jaxagent import plan
from jaxagent.compiled import report, targets
from jaxagent.compiled.programs import Engine, Run, micro_rows
from jaxagent.config import command_line, settings
from jaxagent.devices import sharding
from jaxagent.errors import UserError
from jaxagent.models import attention
from jaxagent.recipes.dry_run import Parts, parts_of


def main(argv: Sequence[str]) -> int:
  """Compiles a config's programs for `--target`, prints the plan.

  Returns 0 where the run fits, 1 where it does not, 2 where it is refused.
  """
  try:
    args, overrides = plan.read_arguments(argv)
    target = targets.parse(args.target or '')
    targets.check_packages(target)
    sys.path.insert(0, str(pathlib.Path.cwd()))
    config = command_line.read([f'--config={args.config}', *overrides])
    sizes = mesh_of(target, dict(config.mesh))
    with config.unlocked():
      config.dry_run = True
      config.mesh.update(sizes)
    settings.prepare(config)
    settings.validate(config)
    parts = parts_of(config, 'cpu' if target.name.startswith('cpu') else 'gpu')
    check_attention(target, parts)
    run = run_of(parts, sizes)
    mesh = sharding.make_mesh(sizes, targets.devices(target))
    for model in filter(None, (parts.model, parts.critic)):
      attention.choose(
        model.attention,
        model.dtype,
        model.head_dim,
        run.row_tokens,
        mesh.devices.flat[0],
      )
    room, why = targets.room_bytes(target)
  except (ValueError, OSError, UserError) as error:
    return plan.refuse(error)
  quiet = args.json == ''
  head = heading(args.config, target, run, sizes)
  if not quiet:
    print(head, flush=True)
  found = report.compiled_plan(
    run, mesh, room, lambda line: print(line, file=_where(quiet), flush=True)
  )
  found = {'config': args.config, 'target': target.name, **found}
  found |= {'room': why}
  if quiet:
    print(json.dumps(found, indent=1))
  else:
    print('\n'.join(closing(found)))
    plan.write_json(args.json, found)
  return 0 if found['fits'] else 1


def _where(quiet: bool):
  return sys.stderr if quiet else sys.stdout


def mesh_of(target: targets.Target, mesh: Mapping[str, int]) -> dict[str, int]:
  """All devices of the target: fsdp takes what data and tensor leave.

  Raises ValueError where they do not divide the devices.
  """
  data, tensor = int(mesh['data']), int(mesh['tensor'])
  taken = data * tensor
  if taken < 1 or target.count % taken:
    raise ValueError(
      f'mesh.data={data} x mesh.tensor={tensor} do not divide the {target.count} '
      f'devices of --target={target.name}; choose sizes whose product is one of '
      f'{[n for n in range(1, target.count + 1) if target.count % n == 0]}.'
    )
  return {'data': data, 'fsdp': target.count // taken, 'tensor': tensor}


def check_attention(target: targets.Target, parts: Parts) -> None:
  """Raises ValueError where `model.attention='cudnn'` cannot be on the target."""
  for model in (parts.model, parts.critic):
    if model is None or model.attention != 'cudnn':
      continue
    gpu = targets.gpu(target)
    if gpu is None:
      why = f'needs an NVIDIA GPU, and --target={target.name} has none'
    else:
      tokens = parts.learner.row_tokens[-1]
      why = attention.no_cudnn(
        gpu.capability, model.dtype, model.head_dim, tokens
      )
    if why:
      raise ValueError(
        f"config.model.attention='cudnn': {why}; choose 'auto', or another target."
      )


def run_of(parts: Parts, sizes: Mapping[str, int]) -> Run:
  """Returns what is compiled: micro-batches of the longest rows, as many as a run has."""
  options = parts.learner
  row_tokens = options.row_tokens[-1]
  rows = micro_rows(options.micro_batch_tokens, row_tokens, sizes)
  engine = None
  if parts.engine_slots:
    engine = Engine(parts.engine_slots, parts.prompt_tokens, parts.new_tokens)
  merges = bool(parts.model.lora_rank) and options.merge_adapters
  kept = merges and engine is None
  return Run(parts.model, options, rows, row_tokens, parts.critic, engine, kept)


def heading(
  name: str, target: targets.Target, run: Run, sizes: Mapping[str, int]
) -> str:
  """Describes what is compiled, in two lines."""
  mesh = ' x '.join(f'{axis} {size}' for axis, size in sizes.items())
  without = (
    '; SFT of all weights is not compiled' if run.options.full_sft else ''
  )
  return (
    f'{name}: {run.model.num_params() / 1e9:.3f}B parameters for {target.name}, '
    f'{mesh} = {target.count} devices\n  {run.rows} rows of {run.row_tokens} tokens '
    f'a micro-batch; figures a device{without}'
  )


def closing(found: Mapping[str, Any]) -> list[str]:
  """Describes what is alive beside the programs, and gives the verdict."""
  lines = [
    f'  {role:<18}{size:9.3f} GB'
    for role, size in found['roles_gb'].items()
    if size
  ]
  totals = {
    name: record['total_gb']
    for name, record in found['programs'].items()
    if 'total_gb' in record
  }
  if totals:
    largest = max(totals, key=totals.__getitem__)
    lines.append(f'  {"largest":<18}{totals[largest]:9.3f} GB: {largest}')
  room = found['room_gb']
  usable = '' if room is None else f'{room:9.3f} GB, '
  lines.append(f'  {"usable":<18}{usable}{found["room"]}')
  return [*lines, f'  {found["advice"]}']
