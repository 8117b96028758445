"""The device side of a run: tokenizer, model, learner and engine."""

from __future__ import annotations

import pathlib

from jaxagent import models, sharding, types
from jaxagent.checkpoint import CheckpointError, CheckpointManager
from jaxagent.data import bpe
from jaxagent.data.records import state_from_json
from jaxagent.envs.prompts import render_prompt
from jaxagent.learner import Learner, LearnerConfig
from jaxagent.loops import checks
from jaxagent.loops.errors import UserError
from jaxagent.loops.policy import Policy
from jaxagent.rollout.native_engine import NativeEngine


def make_tokenizer(host, records) -> bpe.ByteBPE:
  """The configured tokenizer, or one trained on the experts' steps."""
  options = host.config.tokenizer
  own = host.work / 'tokenizer'
  try:
    if options.path:
      return bpe.load(pathlib.Path(options.path))
    if (own / 'tokenizer.json').exists():
      return bpe.load(own)
  except ValueError as error:
    raise UserError(str(error)) from error
  tokenizer = bpe.train(_texts(host, records), options.vocab_size)
  tokenizer.save(own)
  return tokenizer


def check_prompts(host, tokenizer, starts) -> None:
  """Raises UserError where even the shortest prompt would be cut."""
  style = host.config.rollout.prompt_style
  shortest = min(
    len(
      tokenizer.encode_prompt(
        render_prompt(start.state, host.spec(task), style=style)
      )
    )
    for task, start in starts.items()
  )
  if complaint := checks.too_short(host.config, shortest):
    raise UserError(complaint)


def _texts(host, records):
  style = host.config.rollout.prompt_style
  for record in records:
    for step in record['steps']:
      state = state_from_json(step['state'])
      yield render_prompt(state, host.spec(state.task), style=style)
      yield step['response']


def model_config(config, vocab_size: int) -> models.ModelConfig:
  """The config's HF dictionary with the run's own options."""
  hf = config.model.hf.to_dict()
  hf.setdefault('vocab_size', -(-vocab_size // 64) * 64)
  if hf['vocab_size'] < vocab_size:
    raise UserError(
      f'config.model.hf.vocab_size={hf["vocab_size"]} is smaller than the '
      f"tokenizer's {vocab_size} entries: they do not fit each other."
    )
  try:
    made = models.ModelConfig.from_hf(hf)
  except ValueError as error:
    raise UserError(f'config.model.hf: {error}') from error
  return made.replace(
    dtype=config.model.dtype,
    scan_layers=config.model.scan_layers,
    remat=config.model.remat,
  )


def learner_config(config) -> LearnerConfig:
  """`config.rl` and `config.rollout` as the learner's dataclass."""
  rl, roll = config.rl, config.rollout
  longest = roll.max_prompt_tokens + roll.max_new_tokens
  buckets = tuple(b for b in (256, 512, 1024, 2048, 4096) if b < longest)
  return LearnerConfig(
    policy_lr=rl.policy_lr,
    value_lr=rl.value_lr,
    sft_lr=config.sft.lr,
    max_grad_norm=rl.max_grad_norm,
    ppo_epochs=rl.ppo_epochs,
    minibatches=rl.minibatches,
    estimator=rl.estimator,
    gamma=rl.gamma,
    lam=rl.lam,
    clip_low=rl.clip_low,
    clip_high=rl.clip_high,
    value_clip=rl.value_clip,
    kl_kind=rl.kl_kind,
    kl_in=rl.kl_in,
    kl_coef=rl.kl_coef,
    entropy_coef=rl.entropy_coef,
    entropy_metric=True,
    aggregation=rl.aggregation,
    importance_level=rl.importance_level,
    importance_cap=rl.importance_cap,
    temperature=roll.temperature,
    micro_batch_tokens=rl.micro_batch_tokens,
    row_tokens=(*buckets, longest),
  )


def make_learner(host, tokenizer) -> Learner:
  """A learner with fresh parameters, or those of `config.model.path`."""
  config = host.config
  try:
    made, params = _model(config, tokenizer)
    return Learner(
      made,
      learner_config(config),
      mesh=sharding.make_mesh(dict(config.mesh)),
      seed=config.seed,
      policy_params=params,
      pad_id=tokenizer.pad_id,
    )
  except ValueError as error:
    raise UserError(str(error)) from error


def _model(config, tokenizer):
  """(model config, parameters or None for a random start)."""
  if not config.model.path:
    return model_config(config, tokenizer.vocab_size), None
  from jaxagent.models import hf

  made, _, params = hf.load_hf(
    pathlib.Path(config.model.path),
    dtype=config.model.dtype,
    scan_layers=config.model.scan_layers,
    remat=config.model.remat,
  )
  if made.vocab_size < tokenizer.vocab_size:
    raise UserError(
      f'config.model.path={config.model.path!r} has a vocabulary of '
      f"{made.vocab_size}, smaller than the tokenizer's "
      f'{tokenizer.vocab_size}: give the tokenizer that belongs to it with '
      '--config.tokenizer.path.'
    )
  return made, params


def make_policy(host, learner: Learner, tokenizer) -> Policy:
  """The learner's policy behind the configured engine."""
  roll = host.config.rollout
  engine = NativeEngine(
    learner.graphdef,
    learner.policy_params,
    learner.model_config,
    pad_id=tokenizer.pad_id,
    eos_ids=tokenizer.eos_ids,
    prompt_buckets=_powers(64, roll.max_prompt_tokens),
    batch_buckets=(1, 4, 16, 48),
    new_buckets=(roll.max_new_tokens,),
    seed=host.config.seed,
  )
  return Policy(
    engine=engine,
    tokenizer=tokenizer,
    specs={name: task.spec for name, task in host.prepared.items()},
    style=roll.prompt_style,
    sampling=types.Sampling(
      max_new_tokens=roll.max_new_tokens,
      temperature=roll.temperature,
      stop_token_ids=tokenizer.eos_ids,
    ),
    max_prompt_tokens=roll.max_prompt_tokens,
  )


def _powers(low: int, high: int) -> tuple[int, ...]:
  sizes = []
  while low < high:
    sizes.append(low)
    low *= 2
  return (*sizes, high)


def restore_rl(host, learner: Learner) -> None:
  """Loads the newest RL policy of the work directory."""
  learner.start_rl()
  manager = CheckpointManager(host.work / 'rl' / 'checkpoints')
  try:
    restored = manager.restore_latest(learner.state())
  except CheckpointError as error:
    raise UserError(str(error)) from error
  if restored is None:
    raise _untrained(host.work)
  learner.load_state(restored.arrays)


def check_trained(work: pathlib.Path) -> None:
  """Raises UserError where there is no RL policy to evaluate."""
  if not has_rl(work):
    raise _untrained(work)


def has_rl(work: pathlib.Path) -> bool:
  """Whether RL has saved an update."""
  return bool(CheckpointManager(work / 'rl' / 'checkpoints').steps())


def _untrained(work: pathlib.Path) -> UserError:
  return UserError(
    f'{work / "rl"} holds no RL checkpoint; train first with '
    '--config=configs/stepwise_ppo.py, or name the work directory of a '
    'trained run with --work_dir.'
  )
