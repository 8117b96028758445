"""`--dry_run`: stages and memory of a run, without weights or devices."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jaxagent import models, plan
from jaxagent.config import checks, recipe, settings
from jaxagent.config.tasks import choose_tasks, task_of, without_folder
from jaxagent.learner import LearnerConfig

if TYPE_CHECKING:
  from ml_collections import ConfigDict


# Limits of one execution, of a trajectory and of an evaluation, which a task's own may
# exceed, and the seconds of their unit.
_TIMES = {
  'sandbox.timeout_s': 1,
  'collect.time_limit_s': 1,
  'episode.time_limit_s': 1,
  'eval.time_limit_s': 1,
  'eval.hours': 3600,
}
_NAMED = 4  # tasks of a line


def print_plan(config: ConfigDict) -> None:
  """Prints stages, shapes, and memory by role and device."""
  heldin, heldout = choose_tasks(config)
  print(f'{config.name}:{config.variant}  config {settings.config_sha(config)}')
  for line in _stages(config, heldin, heldout):
    print('  ' + line)
  for line in _too_short(config, [*heldin, *heldout]):
    print('  ' + line)
  found = plan_of(config)
  print(f'\nmodel  {found["model_type"]}, {found["params"]:,} parameters')
  for line in _shapes(config, found) + plan.memory_lines(found):
    print('  ' + line)


def _stages(
  config: ConfigDict, heldin: Sequence[str], heldout: Sequence[str]
) -> list[str]:
  return [
    f'1 tasks      held-in {", ".join(heldin)}',
    f'             held-out {", ".join(heldout) or "none"}',
    *(
      f'             no folder of {name}, on which the paper evaluates: make tasks/{name} '
      f"from mle-bench's data ({level}; docs/tasks.md)"
      for name, level in without_folder(config).items()
    ),
    *recipe.find(config).plan(heldin, heldout),
    f'sandbox      {config.sandbox.backend}, at least '
    f'{config.sandbox.min_tier}, {config.sandbox.slots} slots '
    f'of {config.sandbox.threads} CPUs, {_limit(config.sandbox.timeout_s, "s")} and '
    f'{_limit(config.sandbox.memory_mb, "MiB")} each',
  ]


def _too_short(config: ConfigDict, names: Sequence[str]) -> list[str]:
  """Returns a line for each limit of time that is below what some tasks ask for."""
  asked = {name: task_of(config, name).limits.timeout_s for name in names}
  lines = []
  for key, unit_s in _TIMES.items():
    most = checks.get(config, key) if checks.has(config, key) else 0
    longer = [
      f'{name} {seconds:g} s'
      for name, seconds in asked.items()
      if 0 < most * unit_s < seconds
    ]
    if longer:
      rest = f' and {len(longer) - _NAMED} more' if longer[_NAMED:] else ''
      lines.append(
        f'limits       config.{key}={most:g} is below the own limit of '
        f'{", ".join(longer[:_NAMED])}{rest}'
      )
  return lines


def _limit(most: float, unit: str) -> str:
  return f'{most:g} {unit}' if most else f"the task's own {unit}"


@dataclasses.dataclass(frozen=True)
class Parts:
  """Models of a config, and the sizes of its texts and caches.

  critic: the value model's, where it is not the policy's. prompt_tokens,
  new_tokens: of the longest text. engine_slots: of the native engine, 0 without.
  """

  model: models.ModelConfig
  critic: models.ModelConfig | None
  learner: LearnerConfig
  prompt_tokens: int
  new_tokens: int
  engine_slots: int


def parts_of(config: ConfigDict, platform: str = 'gpu') -> Parts:
  """Reads the parts of a plan from a config, for devices of a platform.

  Raises UserError for a model that jaxagent does not implement.
  """
  from jaxagent.training import device

  # A tokenizer of the configured size; the one that the run trains may be
  # smaller, and one that is given is checked against its model by the run.
  given = device.tokenizer_folder(config)
  entries = 1 if given else config.tokenizer.vocab_size
  model = device.model_config(config, entries)
  roll = config.rollout
  return Parts(
    model=model,
    critic=device.critic_config(config, model),
    learner=device.learner_config(config, platform),
    prompt_tokens=roll.max_prompt_tokens,
    new_tokens=roll.max_new_tokens,
    engine_slots=_engine_slots(config),
  )


def plan_of(config: ConfigDict, **changes: Any) -> dict[str, Any]:
  """Returns `plan.plan` of a config; changes: other options of the plan.

  Raises UserError for a model that jaxagent does not implement, ValueError for a mesh
  that does not divide it.
  """
  parts = parts_of(config)
  learner = parts.learner
  options: dict[str, Any] = dict(
    samples=config.rl.batch_size,
    tokens_per_sample=float(parts.prompt_tokens + parts.new_tokens),
    micro_batch_tokens=learner.micro_batch_tokens,
    ppo_epochs=learner.ppo_epochs,
    chunk_rows=learner.chunk_rows,
    with_value=learner.uses_value,
    critic=parts.critic,
    with_reference=learner.uses_reference,
    reference_dtype=learner.reference_dtype,
    offload=learner.offload,
    donate=learner.donate,
    engine_slots=parts.engine_slots,
    merge_adapters=learner.merge_adapters,
  )
  given = plan.PlanOptions(**(options | changes))
  found = plan.plan(parts.model, dict(config.mesh), given)
  if learner.full_sft:
    found |= plan.full_sft(parts.model, found, given)
  return found | {'model_type': parts.model.model_type}


def _engine_slots(config: ConfigDict) -> int:
  """Returns the slots of the native engine; 0 for vLLM.

  A vLLM server has memory of its own.
  """
  from jaxagent.runtime import engines

  if config.rollout.engine != 'native':
    return 0
  return config.rollout.max_num_seqs or engines.SLOTS


def _shapes(config: ConfigDict, found: Mapping[str, Any]) -> list[str]:
  mesh = found['mesh']
  return [
    f'mesh       data {mesh["data"]} x fsdp {mesh["fsdp"]} x tensor '
    f'{mesh["tensor"]} = {found["devices"]} devices',
    f'rows       prompt up to {config.rollout.max_prompt_tokens} + response '
    f'up to {config.rollout.max_new_tokens} tokens; '
    f'at most {config.rl.micro_batch_tokens} tokens of a '
    'micro-batch on a device, or one row that is longer',
  ]
