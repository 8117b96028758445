"""`--dry_run`: what a run would do and need, without weights or devices."""

from __future__ import annotations

from jaxagent.loops import settings
from jaxagent.loops.host import choose_tasks


def print_plan(config) -> None:
  """Stages, shapes, and memory by role and device."""
  heldin, heldout = choose_tasks(config)
  print(f'{config.name}:{config.variant}  config {settings.config_sha(config)}')
  for line in _stages(config, heldin, heldout):
    print('  ' + line)
  from jaxagent.loops import device

  # A tokenizer of the configured size; the run's own may be smaller.
  model = device.model_config(config, config.tokenizer.vocab_size)
  print(f'\nmodel  {model.model_type}, {model.num_params():,} parameters')
  for line in memory_lines(config, model):
    print('  ' + line)


def _stages(config, heldin, heldout) -> list[str]:
  collect, sft, rl = config.collect, config.sft, config.rl
  trajectories = collect.trajectories_per_task * len(heldin)
  evaluated = config.eval.trajectories_per_task * (len(heldin) + len(heldout))
  steps = evaluated * config.eval.max_steps
  policies = [p for p in config.eval.policies if p != 'starter']
  return [
    f'1 tasks      held-in {", ".join(heldin)}',
    f'             held-out {", ".join(heldout) or "none"}',
    f'2 collect    {trajectories} trajectories of up to {collect.max_steps} '
    f'steps ({config.expert.kind} expert, {config.editor.kind} editor)',
    f'3 sft        {sft.epochs} epochs, batch {sft.batch_size}, lr {sft.lr:g}',
    f'4 rl         {rl.updates} updates of {rl.batch_size} steps '
    f'({rl.estimator}, {rl.rest}, {rl.weighting} weights), lr {rl.policy_lr:g} '
    f'policy and {rl.value_lr:g} value, KL {rl.kl_coef:g}',
    f'5 evaluate   {evaluated} trajectories, at most {steps} steps, for each '
    f'of {" and ".join(policies) or "no policy"}',
    f'sandbox      {config.sandbox.backend}, at least '
    f'{config.sandbox.min_tier}, {config.sandbox.slots} slots, '
    f'{config.sandbox.timeout_s:g} s and {config.sandbox.memory_mb} MiB each',
  ]


def memory_lines(config, model) -> list[str]:
  """Mesh, batch shapes and bytes a device, by role.

  Sharded state divides by fsdp x tensor; master weights, gradients and both
  Adam moments are float32. Activations with full rematerialisation: one
  residual stream a layer, and one layer's own at a time.
  """
  mesh = dict(config.mesh)
  shards = mesh['fsdp'] * mesh['tensor']
  devices = shards * mesh['data']
  n = model.num_params()
  gib = 1 / 2**30
  roles = {
    'policy weights': 4 * n,
    'policy gradients': 4 * n,
    'policy Adam moments': 8 * n,
    'reference weights': 4 * n,
    'value weights': 4 * n,
    'value gradients': 4 * n,
    'value Adam moments': 8 * n,
  }
  tokens = config.rl.micro_batch_tokens // (mesh['data'] * mesh['fsdp'])
  width = 2 if config.model.dtype == 'bfloat16' else 4
  layers = model.num_hidden_layers
  one = tokens * width * (4 * model.hidden_size + 3 * model.intermediate_size)
  held = tokens * width * model.hidden_size * layers
  if config.model.remat == 'none':
    held = one * layers
  activations = held + one
  lines = [
    f'mesh       data {mesh["data"]} x fsdp {mesh["fsdp"]} x tensor '
    f'{mesh["tensor"]} = {devices} devices',
    f'rows       prompt up to {config.rollout.max_prompt_tokens} + response '
    f'up to {config.rollout.max_new_tokens} tokens; '
    f'{config.rl.micro_batch_tokens} tokens a micro-batch',
  ]
  for role, size in roles.items():
    lines.append(f'{role:22} {size * gib / shards:9.3f} GiB a device')
  lines.append(f'{"activations":22} {activations * gib:9.3f} GiB a device')
  total = sum(roles.values()) * gib / shards + activations * gib
  lines.append(f'{"total":22} {total:9.3f} GiB a device')
  return lines
