"""Rules between two sections of a config, or between a config and this machine.

Each section checks its own options (`jaxagent.options`, `config.sections`). A rule
here looks at keys of several and complains in one sentence that names the value,
what it may be and the remedy. `tests/config/test_rules.py` breaks every one once.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from jaxagent.config import (
  checks,
  endpoints,
  engine_checks,
  model_checks,
  recipe,
  sections,
  task_checks,
  templates,
)
from jaxagent.files import readings

if TYPE_CHECKING:
  from ml_collections import ConfigDict


def complaint(config: ConfigDict, stages: tuple[str, ...]) -> str:
  """Returns the first complaint about a config, '' if there is none."""
  for stage in stages:
    if found := sections.complaint(config, stage):
      return found
    try:
      own = recipe.find(config).rules
    except (ValueError, TypeError) as error:
      return str(error)
    for rule in (*RULES, *own):
      present = all(checks.has(config, key) for key in rule.keys)
      if rule.stage == stage and present and (found := _checked(rule, config)):
        return found
  return ''


def _checked(rule: checks.Rule, config: ConfigDict) -> str:
  try:
    return rule.check(config)
  except OSError as error:  # of a path that is too long or may not be read
    key = rule.keys[0]
    value = str(checks.get(config, key))[:_MOST_SHOWN]
    return f'config.{key}={value!r} cannot be read: {error.strerror}.'


_MOST_SHOWN = 200  # characters of a path in an error


def _random_agent(config: ConfigDict) -> str:
  if config.agent != 'random' or not recipe.find(config).trains:
    return ''
  return (
    f'config.agent={config.agent!r} asks no model: nothing can be trained to act '
    f"so. It is for config.recipe='agents', not {config.recipe!r}."
  )


def _validation_prompts(config: ConfigDict) -> str:
  own, every = recipe.find(config), config.rl.validate_every
  if not every or not own.runs_rl or own.validates:
    return ''
  return (
    f'config.rl.validate_every={every} needs validation prompts, and '
    f'config.recipe={config.recipe!r} has none; set it to 0, or give the recipe '
    'some.'
  )


def _nested(key: str) -> Callable[[ConfigDict], str]:
  """Returns the check that a step ends before RL gives it up."""

  def check(config: ConfigDict) -> str:
    step, around = config.sandbox.step_timeout_s, checks.get(config, key)
    if step < around or not recipe.find(config).runs_rl:
      return ''
    return (
      f'config.sandbox.step_timeout_s={step} must be below config.{key}={around}: '
      'deadlines nest (execution < step < lease < watchdog).'
    )

  return check


RULES: tuple[checks.Rule, ...] = (
  checks.related(
    'rl.donate',
    'rl.rest',
    'rollout.engine',
    holds=lambda donate, rest, engine: (
      not donate or (rest == 'wait' and engine == 'native')
    ),
    say='config.rl.donate={0} writes the new policy over the old one, which is still '
    'used with config.rl.rest={1!r} and config.rollout.engine={2!r}; set it to False, '
    "or choose rest='wait' and engine='native'.",
  ),
  checks.related(
    'rl.product_dtype',
    'model.dtype',
    holds=lambda products, dtype: products != 'bfloat16' or dtype == 'float32',
    say='config.rl.product_dtype={0!r} is for a model in float32; with '
    'config.model.dtype={1!r} products are in that type already. Choose auto or float32.',
  ),
  checks.related(
    'sandbox.recorded',
    'sandbox.reuse',
    holds=lambda file, reuse: not file or reuse == 'off',
    say='config.sandbox.recorded={0!r} answers equal jobs already; set '
    "config.sandbox.reuse={1!r} to 'off', or the file to ''.",
  ),
  recipe.STAGE_RULE,
  checks.Rule(('agent', 'recipe'), _random_agent),
  checks.Rule(('rl.validate_every', 'recipe'), _validation_prompts),
  *(
    checks.Rule(('sandbox.step_timeout_s', key, 'recipe'), _nested(key))
    for key in ('rl.watchdog_s', 'rl.lease_s')
  ),
  checks.related(
    'instrumenter.timeout_s',
    'rl.watchdog_s',
    'instrumenter.kind',
    holds=lambda answer, watchdog, kind: (
      kind != 'openai' or 5 * answer < watchdog
    ),
    say='config.instrumenter.timeout_s={0}: two tries, two more of a cut answer and the '
    'waits between them must end well before config.rl.watchdog_s={1}; lower the first or raise the second.',
  ),
  checks.related(
    'sft.conversations',
    holds=lambda file: (
      isinstance(file, str) and (not file or pathlib.Path(file).is_file())
    ),
    say='config.sft.conversations={0!r} is not a file; give a ShareGPT file '
    "(.json or .jsonl), or ''.",
    stage='run',
  ),
  checks.Rule(
    (
      'rollout.max_prompt_tokens',
      'rollout.max_new_tokens',
      'model.hf.max_position_embeddings',
    ),
    model_checks.positions,
  ),
  checks.Rule(('model.hf.model_type',), model_checks.model_shape),
  checks.Rule(('mesh.fsdp', 'mesh.tensor'), model_checks.mesh_fits_model),
  *endpoints.rules(),
  templates.RULE,
  # What this machine and this version have.
  checks.Rule(('sandbox.backend',), checks.backend_is_installed, 'run'),
  checks.Rule(
    (
      'rollout.engine',
      'rollout.vllm.urls',
      'rollout.vllm.python',
      'rollout.vllm.sync',
    ),
    engine_checks.complaint,
    'run',
  ),
  checks.folder('tokenizer.path', *readings.ENTRY_FILES),
  checks.folder('model.path', 'config.json'),
  checks.folder('rl.critic_path', 'config.json'),
  checks.folder('model.lora.path', 'adapter_config.json'),
  checks.Rule(('rl.critic_path',), model_checks.critic_fits, 'run'),
  checks.Rule(
    ('rl.critic_path', 'model.lora.rank'), model_checks.critic_beside_adapters
  ),
  checks.Rule(('model.lora.rank', 'model.path'), model_checks.rank_fits_model),
  checks.Rule(
    ('model.lora.rank', 'model.path', 'sft.epochs'),
    model_checks.base_is_filled,
    'run',
  ),
  checks.Rule(('tasks_dir',), task_checks.tasks_dir),
  checks.Rule(
    ('tasks.heldin', 'tasks.heldout', 'rl.tasks'), task_checks.chosen_tasks
  ),
  checks.Rule(('rollout.max_prompt_tokens',), task_checks.prompt_room),
  checks.Rule(
    ('tokenizer.path', 'model.path', 'rollout.max_prompt_tokens'),
    task_checks.tokenizer_fits,
    'run',
  ),
  checks.Rule(
    ('mesh.data', 'mesh.fsdp', 'mesh.tensor'),
    model_checks.mesh_fits_devices,
    'devices',
  ),
  checks.Rule(('rl.offload',), model_checks.offload_fits_devices, 'devices'),
  checks.Rule(
    ('rollout.engine', 'rollout.vllm.sync'),
    engine_checks.nccl_complaint,
    'devices',
  ),
  model_checks.weights_fit('model.path'),
  model_checks.weights_fit('rl.critic_path'),
  checks.Rule(
    ('model.lora.path', 'model.path'), model_checks.adapters_fit, 'devices'
  ),
)
