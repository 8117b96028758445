"""Memory, FLOPs and time of a run, worked out without weights or accelerator.

`plan(...)` returns parameters, memory by role and device, the activation
peak, tokens and FLOPs an update, the expected time at a stated model FLOPs
utilisation, and whether it fits. The arithmetic is in the docstrings, so that
it can be checked by hand. `python -m jaxagent.plan --config=FILE[:VARIANT]`
prints it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from jaxagent.devices import accelerator, sharding
from jaxagent.models import attention
from jaxagent.models.config import ModelConfig
from jaxagent.models.flops import flops_per_token, training_factor

GB = 10**9  # a device sold as 80 GB holds 80e9 bytes
PEAK_FLOPS = accelerator.PEAK_FLOPS | {'cpu': 1e11}
RESERVED = 0.08  # of the device: runtime, collectives, fragmentation


def trained_params(model: ModelConfig) -> int:
  """All of them, or the adapters: rank (in + out) for each target kernel."""
  if not model.lora_rank:
    return model.num_params()
  per_layer = sum(map(sum, _adapted(model)))
  return model.lora_rank * per_layer * model.num_hidden_layers


def merged_params(model: ModelConfig) -> int:
  """Weights of the kernels that have adapters, in x out each; 0 without adapters."""
  if not model.lora_rank:
    return 0
  return model.num_hidden_layers * sum(map(math.prod, _adapted(model)))


def _adapted(model: ModelConfig) -> list[tuple[int, int]]:
  """(in, out) of each kernel of a layer that has an adapter."""
  d, f = model.hidden_size, model.intermediate_size
  q = model.num_attention_heads * model.head_dim
  kv = model.num_key_value_heads * model.head_dim
  sides = {
    'q': (d, q),
    'k': (d, kv),
    'v': (d, kv),
    'o': (q, d),
    'gate': (d, f),
    'up': (d, f),
    'down': (f, d),
  }
  return [sides[name] for name in model.lora_targets]


def activation_bytes(
  model: ModelConfig,
  tokens: int,
  chunk_rows: int,
  tensor: int = 1,
  *,
  gradients: float = 0.0,
  scores_row: float = 0.0,
  gathers: bool = False,
) -> float:
  """Peak of one micro-batch's pass on one device that holds `tokens`.

  gradients: bytes of its own gradients, which are made before they are added to
  those of the micro-batches before. scores_row: length of a row where scores of
  attention are arrays (`xla`), else 0. gathers: whether weights are split over fsdp,
  and gathered in the compute dtype where they are used: two layers at a time, and
  the table while there are logits.

  c = bytes of the compute dtype. Inside of a layer = norms and residuals 4 D, q and
  output 2 H h, k and v 2 K h, feed-forward 3 F, the last two groups split over
  `tensor`; with scores, `_SCORE` bytes for each of H tokens row. Kept for the
  backward pass: with remat 'full' one residual [tokens, D] a layer, with 'dots' the
  products besides, with 'none' `_KEPT` times the inside of every layer. Beside that
  either the logits of a chunk and their gradient, and two gradients of the table
  unless it is frozen, all float32, or the gradients and twice the inside of one layer.
  """
  c = 2 if model.dtype == 'bfloat16' else 4
  d, f = model.hidden_size, model.intermediate_size
  q = model.num_attention_heads * model.head_dim
  kv = model.num_key_value_heads * model.head_dim
  scores = _SCORE * model.num_attention_heads * tokens * scores_row / tensor
  inside = c * tokens * (4 * d + (2 * q + 2 * kv + 3 * f) / tensor)
  layers = model.num_hidden_layers
  backward = gradients
  if model.remat == 'none':
    saved = layers * (_KEPT * inside + scores)
  else:
    width = 1.0 * d
    if model.remat != 'full':
      width += 2 * d + (q + 2 * kv + 2 * f) / tensor
    saved = layers * c * tokens * width
    # The backward of the layer being recomputed holds its gradients too.
    backward += 2 * inside + scores
  rows = min(chunk_rows, tokens)
  table_rows = 0 if model.lora_rank else d
  logits = 2 * 4 * (rows + table_rows) * model.vocab_size / tensor
  if gathers:
    layer, table = _gathered(model, tensor)
    logits, backward = logits + table, backward + 2 * layer
  return saved + max(logits, backward)


def cache_bytes(model: ModelConfig, slots: int, tokens: float) -> float:
  """Keys and values of the native engine's cache: `slots` texts of `tokens`.

  2 K h a layer and column in the compute dtype, and `_SPARE` columns beside.
  """
  c = 2 if model.dtype == 'bfloat16' else 4
  column = 2 * c * model.num_key_value_heads * model.head_dim
  return slots * (tokens + _SPARE) * column * model.num_hidden_layers


# Columns that the cache has beyond the longest text: what a round may draw.
_SPARE = 32

# Measured on an H200 (`benchmarks.learner_step`): what XLA keeps of a layer beyond its
# inside (norms and rotations in float32, each factor of the gated product), and
# bytes a score of attention by einsums (float32 and its gradient, probabilities).
_KEPT, _SCORE = 2.2, 12.7

_CAPABILITY = {'a100': (8, 0), 'h100': (9, 0), 'h200': (9, 0)}


def _scores_row(model: ModelConfig, device: str, row: float) -> float:
  """`row` where scores are arrays on that device, else 0."""
  kernel = model.attention
  if kernel == 'auto' and device == 'cpu':
    kernel = 'blocks'
  elif kernel == 'auto' and device.startswith('tpu'):
    kernel = 'xla' if attention.no_splash('tpu', int(row)) else 'splash'
  elif kernel == 'auto':
    capability = _CAPABILITY.get(device)
    fits = capability and not attention.no_cudnn(
      capability, model.dtype, model.head_dim
    )
    kernel = 'cudnn' if fits else 'xla'
  return row if kernel == 'xla' else 0.0


@dataclasses.dataclass(frozen=True)
class PlanOptions:
  """Options of an update, and of the devices that do it.

  device: of PEAK_FLOPS; device_gb: its memory. mfu: share of its peak FLOPs
    that is expected.
  samples, tokens_per_sample: of one update.
  micro_batch_tokens: that a device passes at once, or one text of
    `tokens_per_sample` where that is longer.
  chunk_rows: tokens whose logits are there at once.
  critic: config of the value model's trunk; None: the policy's.
  offload: roles that lie on the host and come to the device to be used.
  donate: a step writes the new policy over the old one.
  engine_slots: texts of `tokens_per_sample` in the native engine's cache.
  merge_adapters: what samples has merged kernels of its own.
  """

  device: str = 'a100'
  device_gb: float = 80.0
  mfu: float = 0.4
  samples: int = 256
  tokens_per_sample: float = 2048.0
  micro_batch_tokens: int = 2048
  ppo_epochs: int = 1
  chunk_rows: int = 1024
  with_value: bool = True
  critic: ModelConfig | None = None
  with_reference: bool = True
  reference_dtype: str = 'float32'
  offload: tuple[str, ...] = ()
  donate: bool = False
  engine_slots: int = 0
  merge_adapters: bool = True

  def __post_init__(self):
    if self.device not in PEAK_FLOPS:
      raise ValueError(
        f'device={self.device!r} is not known; choose from {tuple(PEAK_FLOPS)}.'
      )


def plan(
  model: ModelConfig,
  mesh_shape: Mapping[str, int],
  options: PlanOptions = PlanOptions(),
) -> dict[str, Any]:
  """Memory (bytes a device), FLOPs and seconds of one update.

  Raises ValueError for a mesh that does not divide the model.
  """
  sizes = {axis: int(mesh_shape.get(axis, 1)) for axis in _AXES}
  sharding.check_model(model, sizes)
  devices = math.prod(sizes.values())
  critic = (options.critic or model) if options.with_value else None
  if critic is not None:
    sharding.check_model(critic, sizes)
  memory, host = _memory(model, critic, sizes, options)
  need = sum(memory.values())
  room = options.device_gb * GB * (1 - RESERVED)
  tokens = options.samples * options.tokens_per_sample
  flops = _update_flops(
    model,
    tokens,
    options.tokens_per_sample,
    options.ppo_epochs,
    critic,
    options.with_reference,
  )
  several_rows = options.micro_batch_tokens > options.tokens_per_sample
  peak = devices * PEAK_FLOPS[options.device] * options.mfu
  return {
    'params': model.num_params(),
    'trained_params': trained_params(model),
    'devices': devices,
    'mesh': sizes,
    'memory_per_device': memory,
    'host_memory_per_device': host,
    'need_bytes': need,
    'room_bytes': room,
    'fits': need <= room,
    'short_bytes': max(0.0, need - room),
    'advice': _advice(need - room, memory, model, several_rows),
    'tokens_per_update': tokens,
    'flops_per_update': flops,
    'mfu': options.mfu,
    'seconds_per_update': flops / peak,
  }


def full_sft(
  model: ModelConfig, found: Mapping[str, Any], options: PlanOptions
) -> dict[str, Any]:
  """Entries of `plan` that differ where SFT trains all weights before adapters.

  found: the plan of RL. {} where that needs more; else the memory of SFT, which has
  float32 weights and moments, no critic and no reference, and what samples has a copy
  in the compute dtype.
  """
  whole = model.replace(lora_rank=0, param_dtype='float32')
  alone = dataclasses.replace(options, with_value=False, with_reference=False)
  sft = plan(whole, found['mesh'], alone)
  memory = sft['memory_per_device']
  if model.dtype != 'float32':  # else it reads the weights themselves
    split = found['mesh']['fsdp'] * found['mesh']['tensor']
    memory['engine_weights'] = 2 * model.num_params() / split
    # The old policy goes when the new one is there: nothing else reads it.
    copy = memory['policy_copy'] - memory['activations']
    memory['policy_copy'] = max(0.0, copy)
  need = sum(memory.values())
  if need <= found['need_bytes']:
    return {}
  short, room = need - found['room_bytes'], found['room_bytes']
  several_rows = options.micro_batch_tokens > options.tokens_per_sample
  return {
    'stage': 'sft',
    'memory_per_device': memory,
    'host_memory_per_device': sft['host_memory_per_device'],
    'need_bytes': need,
    'fits': need <= room,
    'short_bytes': max(0.0, short),
    'advice': _advice(short, memory, whole, several_rows),
  }


def _all_roles(
  model: ModelConfig, critic: ModelConfig | None, options: PlanOptions
) -> dict[str, float]:
  """Returns bytes by role, before they are split among devices."""
  trained = trained_params(model)
  roles = _roles(model, model.num_params(), trained)
  if options.with_reference:
    stored = 4 if model.lora_rank else _stored(model)
    roles['reference'] = trained * (
      2 if options.reference_dtype == 'bfloat16' else stored
    )
  if critic is not None:
    roles |= _value_roles(critic)
  return roles


def _memory(
  model: ModelConfig,
  critic: ModelConfig | None,
  sizes: Mapping[str, int],
  options: PlanOptions,
) -> tuple[dict[str, float], dict[str, float]]:
  """Bytes by role on a device, and of what is offloaded on the host.

  Weights are float32 masters with two float32 moments (12 bytes a trained
  parameter), the float32 sum of gradients while a role is updated (only one role
  at a time), and a float32 frozen copy for the reference. With adapters these alone
  are trained, in float32; all roles share one base in the compute dtype, and what
  samples has merged kernels of its own, twice while new ones are made: a native engine,
  and vLLM's client, for a server that comes again, where it is not served adapters.
  fsdp and tensor split all of that,
  data copies it.

  Of what is offloaded `brought_back` has what no activations make room for. Loading
  and resuming need no more than the roles, which are read one array after another
  into their places.

  The engine's cache is counted whole on a device, for nothing says how it is split,
  and twice: a round of decoding copies at most all of it.
  """
  split = sizes['fsdp'] * sizes['tensor']
  trained = trained_params(model)
  roles = _all_roles(model, critic, options)
  memory = {name: bytes_ / split for name, bytes_ in roles.items()}
  host = {k: memory.pop(k) for k in list(memory) if k in options.offload}
  # Of the role that is updated: the larger of the two.
  updated = max(trained, trained_params(critic) if critic else 0)
  memory['gradients'] = 4 * updated / split
  row = options.tokens_per_sample
  memory['activations'] = activation_bytes(
    model,
    math.ceil(max(options.micro_batch_tokens, row)),
    options.chunk_rows,
    sizes['tensor'],
    gradients=memory['gradients'],
    scores_row=_scores_row(model, options.device, row),
    gathers=sizes['fsdp'] > 1,
  )
  # A step writes the new policy beside the old one, which a native engine reads on;
  # else it lies where activations were.
  copy = 0.0 if options.donate else 4 * trained / split
  reads_on = options.engine_slots and not model.lora_rank
  memory['policy_copy'] = (
    copy if reads_on else max(0.0, copy - memory['activations'])
  )
  if model.lora_rank and options.merge_adapters:
    merged = _stored(model) * merged_params(model) / split
    memory['engine_weights'] = merged
    memory['engine_merge'] = max(0.0, merged - memory['activations'])
  if host:
    memory['brought_back'] = _brought_back(host, memory['activations'])
  if options.engine_slots:
    cache = cache_bytes(model, options.engine_slots, row)
    memory |= {'engine_cache': cache, 'engine_round': cache}
  return memory, host


_AXES = ('data', 'fsdp', 'tensor')


def _roles(model: Any, total: Any, trained: Any) -> dict[str, float]:
  adapters = 4 * trained if model.lora_rank else 0
  return {
    'policy': _stored(model) * total + adapters,
    'policy_optimizer': 8 * trained,
  }


def _stored(model: ModelConfig) -> int:
  """Bytes of a weight that is no adapter."""
  return 2 if model.param_dtype == 'bfloat16' else 4


def _brought_back(host: Mapping[str, float], activations: float) -> float:
  """Bytes of offloaded roles on a device at once, beyond those of activations.

  A pass has the reference, or the value model, beside its activations; a step of an
  optimizer has moments, and the value model, and no activations.
  """
  get = lambda name: host.get(name, 0.0)
  passes = activations + max(get('reference'), get('value'))
  critic = get('value') + get('value_optimizer')
  return max(passes, critic, get('policy_optimizer')) - activations


def _value_roles(model: ModelConfig) -> dict[str, float]:
  """The trunk without an output table, and a head of one column.

  Adapters and a head, where the base is the policy's.
  """
  total = model.num_params()
  if model.lora_rank:
    own = trained_params(model) + model.hidden_size
    return {'value': 4 * own, 'value_optimizer': 8 * own}
  stored = _stored(model)
  untied = (
    0 if model.tie_word_embeddings else (model.vocab_size * model.hidden_size)
  )
  extra = model.hidden_size
  return {
    'value': stored * (total - untied + extra),
    'value_optimizer': 8 * (total - untied + extra),
  }


def _gathered(model: ModelConfig, tensor: int) -> tuple[float, float]:
  """Bytes of a layer's weights and of a table, whole but for `tensor`."""
  c = 2 if model.dtype == 'bfloat16' else 4
  table = model.vocab_size * model.hidden_size
  tables = table * (1 if model.tie_word_embeddings else 2)
  layer = (model.num_params() - tables) / model.num_hidden_layers
  return c * layer / tensor, c * table / tensor


def _update_flops(
  model: Any,
  tokens: Any,
  context: Any,
  epochs: int,
  critic: Any,
  with_reference: bool,
) -> float:
  """Forward 1, backward 2, recomputation 1 where layers are rematerialised.

  Old log-probs and the reference: one forward each. Critic: one forward for
  the values, then as the policy, without the output table.
  """
  policy = flops_per_token(model, context)
  total = policy * (1 + bool(with_reference) + epochs * training_factor(model))
  if critic is not None:
    value = flops_per_token(critic, context, head=False)
    total += value * (1 + epochs * training_factor(critic))
  return tokens * total


def _advice(
  short: float, memory: dict, model: ModelConfig, several_rows: bool
) -> str:
  """Returns what to change in a config that does not fit; 'fits' if it does.

  several_rows: a micro-batch has several rows of the longest text on a device.
  """
  if short <= 0:
    return 'fits'
  tips = []
  if memory['activations'] > short:
    if model.remat != 'full':
      tips.append('set model.remat=full')
    if several_rows:
      tips.append('halve rl.micro_batch_tokens')
  if 2 * memory.get('engine_cache', 0) > short:
    tips.append('lower rollout.max_num_seqs')
  tips.append('raise mesh.fsdp')
  return f'short by {short / GB:.1f} GB a device: ' + '; '.join(tips)


def memory_lines(found: Mapping[str, Any]) -> list[str]:
  """A plan's memory by role, and the sum of what a device holds."""
  lines = []
  if found.get('stage') == 'sft':
    lines = ['memory     of SFT of all weights, which needs more than RL:']
  lines += [
    f'{role:<18}{size / GB:9.3f} GB a device'
    for role, size in found['memory_per_device'].items()
  ]
  lines += [
    f'{role:<18}{size / GB:9.3f} GB on the host'
    for role, size in found['host_memory_per_device'].items()
  ]
  total = found['need_bytes'] / GB
  return [*lines, f'{"needed":<18}{total:9.3f} GB a device']


def text(name: str, found: Mapping[str, Any]) -> str:
  """The plan as lines for people."""
  lines = [
    f'{name}: {found["params"] / 1e9:.3f}B parameters, '
    f'{found["trained_params"] / 1e9:.3f}B trained, '
    f'{found["devices"]} devices {found["mesh"]}'
  ]
  lines += ['  ' + line for line in memory_lines(found)]
  lines += [
    f'  {"usable":<18}{found["room_bytes"] / GB:9.3f} GB a device: '
    f'{found["advice"]}',
    f'  tokens an update  {found["tokens_per_update"]:.3g}',
    f'  FLOPs an update   {found["flops_per_update"]:.3g}',
    f'  expected          {found["seconds_per_update"]:.1f} s an update at '
    f'{found["mfu"]:.0%} MFU (an estimate, not measured)',
  ]
  return '\n'.join(lines)


def main(argv: Sequence[str] | None = None) -> int:
  """Prints a config's plan; exit 1 where it does not fit, 2 where it is refused."""
  argv = list(sys.argv[1:] if argv is None else argv)
  from jaxagent.errors import UserError

  try:
    args, overrides = read_arguments(argv)
    if args.target is not None:
      return _compiled(args, argv)
    found = _by_arithmetic(args, overrides)
  except (ValueError, OSError, UserError) as error:
    return refuse(error)
  if args.json == '':
    print(json.dumps(found, indent=1))
  else:
    print(text(args.config, found))
    write_json(args.json, found)
  return 0 if found['fits'] else 1


def refuse(reason: object) -> int:
  """Says why nothing is planned, in one line; returns the exit code."""
  print(f'error: {" ".join(str(reason).split())}', file=sys.stderr)
  return 2


def write_json(file: str | None, found: Mapping[str, Any]) -> None:
  """Writes a plan where `--json FILE` names a file."""
  if file:
    pathlib.Path(file).write_text(json.dumps(found, indent=1) + '\n')


def read_arguments(
  argv: Sequence[str],
) -> tuple[argparse.Namespace, list[str]]:
  """(the command line's own options, those that are the experiment's).

  Raises ValueError for what is neither.
  """
  parser = argparse.ArgumentParser(
    prog='python -m jaxagent.plan',
    description='Memory, FLOPs and time of a run, by arithmetic or compiled.',
    epilog='--config.KEY=VALUE changes the experiment, as for jaxagent.main.',
    allow_abbrev=False,
    exit_on_error=False,
  )
  parser.add_argument('--config', required=True, metavar='FILE[:VARIANT]')
  parser.add_argument(
    '--target',
    metavar='FAMILY:SHAPE',
    help='compile every program for these devices, such as cpu:8 or a100:1x1x8',
  )
  parser.add_argument('--device', choices=sorted(PEAK_FLOPS))
  parser.add_argument('--device_gb', type=float)
  parser.add_argument('--mfu', type=float)
  parser.add_argument(
    '--json', nargs='?', const='', metavar='FILE', help='alone: printed'
  )
  try:
    args, rest = parser.parse_known_args(argv)
  except argparse.ArgumentError as error:
    raise ValueError(str(error)) from error
  if args.json and not pathlib.Path(args.json).absolute().parent.is_dir():
    raise ValueError(
      f'--json={args.json}: there is no folder {pathlib.Path(args.json).parent}; '
      'make it, or give another file.'
    )
  return args, rest


def _by_arithmetic(args: argparse.Namespace, overrides: list[str]) -> dict:
  from jaxagent.config import command_line, settings
  from jaxagent.recipes.dry_run import plan_of

  sys.path.insert(0, str(pathlib.Path.cwd()))
  config = command_line.read([f'--config={args.config}', *overrides])
  settings.prepare(config)
  options = {
    name: getattr(args, name) for name in ('device', 'device_gb', 'mfu')
  }
  return plan_of(config, **{k: v for k, v in options.items() if v is not None})


def _compiled(args: argparse.Namespace, argv: Sequence[str]) -> int:
  """Starts a process whose environment is the target's; its exit code."""
  from jaxagent.compiled import targets

  given = [
    n for n in ('device', 'device_gb', 'mfu') if getattr(args, n) is not None
  ]
  if given:
    raise ValueError(
      f'--{given[0]} is for the plan by arithmetic; leave it out with --target.'
    )
  target = targets.parse(args.target)
  targets.check_packages(target)
  command = [sys.executable, '-m', 'jaxagent.compiled', *argv]
  environment = targets.environment(target, os.environ)
  return subprocess.run(command, env=environment, check=False).returncode


if __name__ == '__main__':
  sys.exit(main())
