"""The device side of a run: tokenizer, model, learner and engine."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import jax

from jaxagent import models, types
from jaxagent.checkpoint import CheckpointManager
from jaxagent.config import recipe, templates
from jaxagent.config.agents import prompter_of, stop_of
from jaxagent.data import bpe, chat
from jaxagent.errors import UserError
from jaxagent.files import readings
from jaxagent.learner import Learner, LearnerConfig
from jaxagent.models import hf, identity
from jaxagent.models.config import LORA_TARGETS
from jaxagent.runtime import engines
from jaxagent.sandbox import cpu_levels
from jaxagent.training import multi_process
from jaxagent.training.policy import PolicySampler

if TYPE_CHECKING:
  from ml_collections import ConfigDict

  from jaxagent.runtime.context import RunContext

Tokenizer = bpe.ByteBPE | chat.ChatTokenizer


def make_tokenizer(context: RunContext, texts: Iterable[str]) -> Tokenizer:
  """Returns the configured tokenizer, the model's own, or one trained on `texts`.

  Raises UserError where the installed libraries give texts other ids than
  tokenizer.json does, or than the run had when it began.
  """
  own = context.work / 'tokenizer'
  try:
    if folder := tokenizer_folder(context.config):
      tokenizer = templates.load(
        context.config, folder, recipe.find(context.config).system_message()
      )
      made = model_config(context.config, tokenizer.vocab_size)
      readings.check_readers(folder, made.to_hf(), texts)
    elif (own / 'tokenizer.json').exists():
      tokenizer = bpe.load(own)
    else:
      tokenizer = bpe.train(texts, context.config.tokenizer.vocab_size)
      tokenizer.save(own)
    own.mkdir(parents=True, exist_ok=True)
    # A resumed run must have the ids that it began with.
    readings.check_same(own / readings.PROBE_FILE, tokenizer)
    if folder:
      readings.copy(folder, own)
      chat.bake(own, templates.kwargs_of(context.config))
  except ValueError as error:
    raise UserError(str(error)) from error
  return tokenizer


def tokenizer_folder(config: ConfigDict) -> str:
  """Returns the folder of the given tokenizer; '' if the run trains one."""
  return config.tokenizer.path or config.model.path


def model_config(config: ConfigDict, vocab_size: int) -> models.ModelConfig:
  """Returns the model of `config.model` with the run's own options.

  vocab_size: entries of the tokenizer.

  Raises UserError where it does not fit the model, or jaxagent does not implement the
  model.
  """
  options = config.model
  where = f'config.model.path={options.path!r}'
  source = options.path
  if not source:
    where = 'config.model.hf'
    source = options.hf.to_dict()
    source.setdefault('vocab_size', -(-vocab_size // 64) * 64)
  try:
    made = models.ModelConfig.from_hf(
      source,
      dtype=options.dtype,
      scan_layers=options.scan_layers,
      remat=options.remat,
      attention=options.attention,
      **_adapters(options),
    )
  except (ValueError, TypeError, OSError) as error:
    raise UserError(f'{where}: {error}') from error
  if made.vocab_size < vocab_size:
    raise UserError(
      f'{where} has a vocabulary of {made.vocab_size}, smaller than the '
      f"tokenizer's {vocab_size}: give the tokenizer that belongs to it with "
      '--config.tokenizer.path=DIR.'
    )
  return made


def _adapters(options: ConfigDict) -> dict[str, Any]:
  """Returns the fields of a `ModelConfig` that adapters have; {} without.

  Their base lies in the precision that is computed in.
  """
  lora = options.lora
  if not lora.rank:
    return {}
  return {
    'lora_rank': lora.rank,
    'lora_alpha': float(lora.alpha),
    'lora_targets': tuple(t for t in LORA_TARGETS if t in lora.targets),
    'param_dtype': options.dtype,
  }


def critic_config(
  config: ConfigDict, policy: models.ModelConfig
) -> models.ModelConfig | None:
  """Returns the model of `config.rl.critic_path`; None if there is none.

  It runs with the options of the policy.
  """
  if not config.rl.critic_path:
    return None
  return models.ModelConfig.from_hf(
    config.rl.critic_path, **multi_process.run_options(policy)
  )


_LANES = 128  # rows are multiples of it where attention has a flash kernel


def row_lengths(longest: int, platform: str) -> tuple[int, ...]:
  """Returns powers of two from 256 on, and the longest (accelerators: 128 divides it).

  >>> row_lengths(544, 'cpu'), row_lengths(544, 'gpu')
  ((256, 512, 544), (256, 512, 640))
  """
  if platform != 'cpu':
    longest = -(-longest // _LANES) * _LANES
  powers, length = [], 256
  while length < longest:
    powers.append(length)
    length *= 2
  return (*powers, longest)


def learner_config(config: ConfigDict, platform: str = '') -> LearnerConfig:
  """Returns the learner's options, from `config.rl` and other sections.

  platform: of the devices it is for, '' for those here.
  """
  rl, roll = config.rl, config.rollout
  longest = roll.max_prompt_tokens + roll.max_new_tokens
  return LearnerConfig.of(
    rl,
    temperature=roll.temperature,
    steps=rl.updates * rl.ppo_epochs * rl.minibatches,
    sft_lr=config.sft.lr,
    row_tokens=row_lengths(longest, platform or jax.default_backend()),
    product_dtype=_product_dtype(config, platform),
    full_sft=_fine_tunes_all(config),
    merge_adapters=not _serves_adapters(config),
  )


def _product_dtype(config: ConfigDict, platform: str) -> str:
  """Returns `rl.product_dtype`, chosen by the processor for 'auto'."""
  chosen = config.rl.product_dtype
  if chosen != 'auto':
    return chosen
  here = jax.devices() if not platform else []
  one_cpu = len(here) == 1 and here[0].platform == 'cpu'
  tiles = one_cpu and 'amx_bf16' in cpu_levels.machine_flags()
  return 'bfloat16' if tiles else 'float32'


def _serves_adapters(config: ConfigDict) -> bool:
  """Returns whether the engine takes adapters as they are, beside their base."""
  roll = config.rollout
  served = roll.engine == 'vllm' and roll.vllm.adapters == 'served'
  return served and bool(config.model.lora.rank)


def _fine_tunes_all(config: ConfigDict) -> bool:
  """Returns whether SFT trains all weights of a model that has adapters in RL.

  Without SFT nothing makes room for their moments.
  """
  lora = config.model.lora
  if not lora.rank or 'sft' in lora.stages:
    return False
  return recipe.find(config).may_fine_tune


def make_learner(
  context: RunContext, tokenizer: Any
) -> Learner | multi_process.Leader:
  """Makes a learner with fresh parameters, or those of `config.model.path`.

  Of several processes, the one that leads them (`training.multi_process`).
  """
  config = context.config
  made = model_config(config, tokenizer.vocab_size).replace(
    eos_token_id=tokenizer.eos_ids, pad_token_id=tokenizer.pad_id
  )
  adapters = config.model.lora
  hf.write_config(
    context.work / 'model',
    made,
    stages=tuple(adapters.stages),
    base=str(pathlib.Path(config.model.path).absolute())
    if config.model.path
    else '',
  )
  try:
    return multi_process.make_learner(
      multi_process.Plan(
        made,
        learner_config(config),
        mesh=dict(config.mesh),
        seed=config.seed,
        pad_id=tokenizer.pad_id,
        path=config.model.path,
        critic_path=config.rl.critic_path,
        adapter_path=config.model.lora.path,
      )
    )
  except ValueError as error:
    raise UserError(str(error)) from error


def make_policy(
  context: RunContext, learner: Learner | multi_process.Leader, tokenizer: Any
) -> PolicySampler:
  """Makes the policy: the learner's weights in the configured engine."""
  roll = context.config.rollout
  served = engines.Served(
    context.config,
    context.work,
    learner.sampled_config,
    learner.graphdef,
    learner.policy_params,
    tokenizer,
    learner.model_config if _serves_adapters(context.config) else None,
  )
  return PolicySampler(
    engine=engines.make_engine(served),
    tokenizer=tokenizer,
    specs={name: task.spec for name, task in context.prepared.items()},
    prompter=prompter_of(context.config),
    sampling=types.Sampling(
      max_new_tokens=roll.max_new_tokens,
      temperature=roll.temperature,
      stop_token_ids=tokenizer.eos_ids,
      stop=stop_of(context.config),
    ),
    max_prompt_tokens=roll.max_prompt_tokens,
  )


def restore_rl(
  context: RunContext, learner: Learner | multi_process.Leader
) -> None:
  """Loads the RL policy of the work directory: the best that is kept, or the newest.

  See `config.rl.keep_best`.
  """
  learner.start_rl()
  manager = checkpoints_of(context.work)
  if multi_process.restore(learner, manager, best=True) is None:
    raise _untrained(context.work)


def restore_best(
  context: RunContext, learner: Learner | multi_process.Leader
) -> None:
  """Loads the policy with the best validation into the learner that RL has trained.

  Nothing changes where it is the learner's own, or where no checkpoint has a score.
  """
  manager = checkpoints_of(context.work)
  if manager.best_step() not in (None, learner.updates):
    multi_process.restore(learner, manager, best=True)


def checkpoints_of(work: pathlib.Path) -> CheckpointManager:
  """Returns the manager that reads the checkpoints of RL in a work directory."""
  return CheckpointManager(work / 'rl' / 'checkpoints')


def check_base(config: ConfigDict, work: pathlib.Path) -> None:
  """Raises UserError where checkpoints have adapters of another base than `model.path`.

  A base that a full SFT made is looked at when RL resumes.
  """
  lora, path = config.model.lora, config.model.path
  if not lora.rank or not path or _fine_tunes_all(config):
    return
  for stage in ('rl', 'sft'):
    manager = CheckpointManager(work / stage / 'checkpoints')
    if stage not in lora.stages or (found := manager.latest()) is None:
      continue
    where = manager.path(found.step)
    if not (saved := found.host['learner'].get('adapters')):
      raise UserError(
        f'{where} has all weights, and config.model.lora.rank={lora.rank} trains '
        'adapters there; give the config that it was made with, or another --work_dir.'
      )
    base = identity.folder_digest(path, model_config(config, 1))
    if saved['base'] == base:
      return
    raise UserError(
      f'{where} has adapters of another base (digest {saved["base"]}) than '
      f'config.model.path={path!r} ({base}); give the model that it was made with, or '
      'another --work_dir.'
    )


def check_trained(work: pathlib.Path) -> None:
  """Raises UserError where there is no RL policy to evaluate."""
  if not has_rl(work):
    raise _untrained(work)


def has_rl(work: pathlib.Path) -> bool:
  """Whether RL has saved an update."""
  return bool(checkpoints_of(work).steps())


def _untrained(work: pathlib.Path) -> UserError:
  return UserError(
    f'{work / "rl"} holds no RL checkpoint; train first with the same config and '
    '--config.stage=all, or name the work directory of a trained run with --work_dir.'
  )
