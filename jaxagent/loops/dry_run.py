"""`--dry_run`: stages and memory of a run, without weights or devices."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from jaxagent import models, plan
from jaxagent.learner import LearnerConfig
from jaxagent.loops import settings
from jaxagent.loops.host import choose_tasks

if TYPE_CHECKING:
  from ml_collections import ConfigDict


def print_plan(config: ConfigDict) -> None:
  """Prints stages, shapes, and memory by role and device."""
  heldin, heldout = choose_tasks(config)
  print(f'{config.name}:{config.variant}  config {settings.config_sha(config)}')
  for line in _stages(config, heldin, heldout):
    print('  ' + line)
  found = plan_of(config)
  print(f'\nmodel  {found["model_type"]}, {found["params"]:,} parameters')
  for line in _shapes(config, found) + plan.memory_lines(found):
    print('  ' + line)


def _stages(config: ConfigDict, heldin, heldout) -> list[str]:
  tasks = len(heldin), len(heldin) + len(heldout)
  return [
    f'1 tasks      held-in {", ".join(heldin)}',
    f'             held-out {", ".join(heldout) or "none"}',
    *(
      _of_searches(config, tasks[1])
      if config.loop == 'tree_search'
      else _of_training(config, *tasks)
    ),
    f'sandbox      {config.sandbox.backend}, at least '
    f'{config.sandbox.min_tier}, {config.sandbox.slots} slots '
    f'of {config.sandbox.threads} CPUs, {_limit(config.sandbox.timeout_s, "s")} and '
    f'{_limit(config.sandbox.memory_mb, "MiB")} each',
  ]


def _of_training(config: ConfigDict, heldin: int, tasks: int) -> list[str]:
  """Returns the plan lines of a run that trains.

  heldin, tasks: how many tasks are held-in, and how many there are in all.
  """
  rl = config.rl
  policies = [p for p in config.eval.policies if p != 'starter']
  collected, evaluated = (
    _of_solutions(config)
    if config.loop == 'rl_for_mle'
    else _of_trajectories(config)
  )
  return [
    f'2 collect    {collected(heldin)}',
    f'3 sft        {_sft(config)}',
    f'4 rl         {rl.updates} updates of {rl.batch_size} '
    f'{_unit(config)} '
    f'({rl.estimator}, {rl.rest}, {rl.weighting} weights), lr {rl.policy_lr:g} '
    f'policy and {rl.value_lr:g} value, KL {rl.kl_coef:g}',
    f'5 evaluate   {evaluated(tasks)}, for each '
    f'of {" and ".join(policies) or "no policy"}',
  ]


def _sft(config: ConfigDict) -> str:
  sft, file = config.sft, config.sft.conversations
  if config.loop == 'rl_for_mle' and not (file or config.solution.programs):
    return 'none'
  text = f'{sft.epochs} epochs, batch {sft.batch_size}, lr {sft.lr:g}'
  return f'{text}, conversations of {file}' if file else text


def _of_searches(config: ConfigDict, tasks: int) -> list[str]:
  """Returns the plan lines of a tree search; no model is trained."""
  writer, search = config.writer, config.search
  author = "the work directory's policy"
  if writer.kind == 'openai':
    author = f'{writer.model or "a model"} behind an endpoint'
  runs, n = search.runs * tasks, writer.samples * tasks
  samples = f'{n} solutions from scratch, {n} improved' if n else 'none'
  return [
    f'2 samples    {samples}',
    f'3 search     {runs} searches of {search.steps} programs each '
    f'({search.drafts} drafts), {runs * search.steps} programs by {author}',
  ]


def _limit(most: float, unit: str) -> str:
  return f'{most:g} {unit}' if most else f"the task's own {unit}"


def _unit(config: ConfigDict) -> str:
  """Returns the unit that a batch is counted in."""
  if config.loop == 'episodewise_ppo':
    return f'trajectories of up to {config.episode.max_steps} steps'
  return 'solutions' if config.loop == 'rl_for_mle' else 'steps'


def _of_trajectories(config: ConfigDict):
  """Returns two functions: number of tasks -> text about (collecting, evaluating)."""
  collect = config.collect

  def collected(tasks: int) -> str:
    return (
      f'{collect.trajectories_per_task * tasks} trajectories of up to '
      f'{collect.max_steps} steps ({config.expert.kind} expert, '
      f'{config.editor.kind} editor)'
    )

  def evaluated(tasks: int) -> str:
    runs = config.eval.trajectories_per_task * tasks
    return f'{runs} trajectories, at most {runs * config.eval.max_steps} steps'

  return collected, evaluated


def _of_solutions(config: ConfigDict):
  options = config.solution

  def collected(tasks: int) -> str:
    programs = options.programs
    return f'{programs} programs by script' if programs else 'none'

  def evaluated(tasks: int) -> str:
    n = options.samples * tasks
    return f'{n} solutions from scratch, {n} improved'

  return collected, evaluated


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
  from jaxagent.loops import device

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
  )
  found = plan.plan(
    parts.model,
    dict(config.mesh),
    plan.PlanOptions(**(options | changes)),
  )
  return found | {'model_type': parts.model.model_type}


def _engine_slots(config: ConfigDict) -> int:
  """Returns the slots of the native engine; 0 for vLLM.

  A vLLM server has memory of its own.
  """
  from jaxagent.loops import engines

  if config.rollout.engine != 'native':
    return 0
  return config.rollout.max_num_seqs or engines.SLOTS


def _shapes(config: ConfigDict, found) -> list[str]:
  mesh = found['mesh']
  return [
    f'mesh       data {mesh["data"]} x fsdp {mesh["fsdp"]} x tensor '
    f'{mesh["tensor"]} = {found["devices"]} devices',
    f'rows       prompt up to {config.rollout.max_prompt_tokens} + response '
    f'up to {config.rollout.max_new_tokens} tokens; '
    f'at most {config.rl.micro_batch_tokens} tokens of a '
    'micro-batch on a device, or one row that is longer',
  ]
