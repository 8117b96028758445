"""Checks of a config before any work, and of the work directory it names."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import shutil

from jaxagent.loops.errors import UserError

CHOICES = {
  'loop': ('collect', 'sft', 'stepwise_ppo', 'evaluate'),
  'sandbox.backend': ('local', 'docker', 'ray'),
  'sandbox.min_tier': ('T3', 'T2', 'T1', 'T0'),
  'expert.kind': ('scripted', 'openai'),
  'editor.kind': ('scripted', 'openai'),
  'model.dtype': ('float32', 'bfloat16'),
  'sft.schedule': ('cosine', 'constant'),
  'rollout.engine': ('native', 'vllm'),
  'rollout.prompt_style': ('compact', 'full'),
  'rl.estimator': ('gae', 'grpo', 'dr_grpo', 'rloo', 'reinforce_pp'),
  'rl.weighting': ('none', 'duration', 'inclusion'),
  'rl.rest': ('carry_over', 'cancel', 'wait'),
  'rl.on_stale': ('hold', 'drop', 'keep'),
  'rl.kl_kind': ('k1', 'k2', 'k3'),
  'rl.kl_in': ('loss', 'reward'),
  'rl.aggregation': (
    'token-mean',
    'seq-mean-token-sum',
    'seq-mean-token-mean',
  ),
  'rl.importance_level': ('none', 'token', 'sequence'),
}
POSITIVE = (
  'collect.trajectories_per_task',
  'collect.max_steps',
  'collect.time_limit_s',
  'eval.trajectories_per_task',
  'eval.max_steps',
  'eval.k',
  'rl.batch_size',
  'rl.group_size',
  'rl.checkpoint_every',
  'rl.keep_checkpoints',
  'rl.minibatches',
  'rl.ppo_epochs',
  'rl.micro_batch_tokens',
  'rl.policy_lr',
  'rl.value_lr',
  'rl.watchdog_s',
  'rollout.max_new_tokens',
  'rollout.max_prompt_tokens',
  'rollout.temperature',
  'sandbox.memory_mb',
  'sandbox.slots',
  'sandbox.step_timeout_s',
  'sandbox.timeout_s',
  'sft.batch_size',
  'sft.checkpoint_every',
  'sft.epochs',
  'tokenizer.vocab_size',
)
# Where results go, not what they are: left out of the config's hash.
_PLACE = ('work_dir', 'dry_run', 'loop', 'name')


def get(config, path: str):
  """`config.a.b` by its dotted name."""
  for part in path.split('.'):
    config = config[part]
  return config


def validate(config) -> None:
  """Raises UserError naming the first bad value, its choices, the remedy."""
  for path, choices in CHOICES.items():
    value = get(config, path)
    if value not in choices:
      raise UserError(
        f'config.{path}={value!r} is not known; choose one of: '
        f'{", ".join(choices)}.'
      )
  for path in POSITIVE:
    if not get(config, path) > 0:
      raise UserError(
        f'config.{path}={get(config, path)!r} must be greater than zero.'
      )
  _validate_rl(config)
  _validate_places(config)


def _validate_rl(config) -> None:
  rl = config.rl
  if rl.oversample < 1:
    raise UserError(f'config.rl.oversample={rl.oversample} must be >= 1.')
  for name, whole in (('minibatches', 1), ('group_size', 1)):
    if rl.batch_size % (rl[name] * whole):
      raise UserError(
        f'config.rl.batch_size={rl.batch_size} does not divide by '
        f'config.rl.{name}={rl[name]}.'
      )
  if rl.estimator in ('grpo', 'dr_grpo', 'rloo') and rl.group_size < 2:
    raise UserError(
      f'config.rl.estimator={rl.estimator!r} compares samples of one prompt: '
      f'config.rl.group_size={rl.group_size} must be at least 2.'
    )
  if config.sandbox.timeout_s >= config.sandbox.step_timeout_s:
    raise UserError(
      f'config.sandbox.timeout_s={config.sandbox.timeout_s} must be below '
      f'config.sandbox.step_timeout_s={config.sandbox.step_timeout_s}: '
      'deadlines nest (execution < step).'
    )
  roll = config.rollout
  if roll.top_p < 1 or roll.top_k > 0:
    raise UserError(
      f'config.rollout.top_p={roll.top_p}, top_k={roll.top_k}: truncated '
      'sampling changes the log-probs that training divides by; set top_p=1 '
      'and top_k=0 for training.'
    )
  room = config.model.hf.max_position_embeddings
  need = roll.max_prompt_tokens + roll.max_new_tokens
  if need > room:
    raise UserError(
      f'config.rollout.max_prompt_tokens + max_new_tokens = {need} exceeds '
      f'config.model.hf.max_position_embeddings={room}.'
    )


def _validate_places(config) -> None:
  tasks = pathlib.Path(config.tasks_dir)
  if not tasks.is_dir():
    raise UserError(
      f'config.tasks_dir={config.tasks_dir!r} is not a folder here '
      f'({pathlib.Path.cwd()}); run from the repository root or give '
      '--config.tasks_dir.'
    )


def config_record(config) -> dict:
  """What decides the results: the config without its places."""
  record = json.loads(config.to_json_best_effort())
  return {k: v for k, v in record.items() if k not in _PLACE}


def config_sha(config) -> str:
  """First 16 hex digits of the SHA-256 of `config_record`."""
  text = json.dumps(config_record(config), sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()[:16]


def open_work_dir(config, min_free_mb: int = 500) -> pathlib.Path:
  """Makes or reopens the work directory; refuses another config's."""
  path = pathlib.Path(config.work_dir).resolve()
  try:
    path.mkdir(parents=True, exist_ok=True)
    probe = path / '.write_probe'
    probe.write_text('x')
    probe.unlink()
  except OSError as error:
    raise UserError(
      f'config.work_dir={config.work_dir!r} cannot be written: '
      f'{error.strerror}; choose another with --work_dir.'
    ) from error
  free_mb = shutil.disk_usage(path).free // 2**20
  if free_mb < min_free_mb:
    raise UserError(
      f'config.work_dir={config.work_dir!r} has {free_mb} MiB free; a run '
      f'needs {min_free_mb} MiB. Free space or choose another --work_dir.'
    )
  _check_same_config(config, path / 'config.json')
  return path


def _check_same_config(config, file: pathlib.Path) -> None:
  record = config_record(config)
  if not file.exists():
    temporary = file.with_suffix('.tmp')
    temporary.write_text(json.dumps(record, indent=1, sort_keys=True))
    os.replace(temporary, file)
    return
  try:
    before = json.loads(file.read_text())
  except ValueError as error:
    raise UserError(
      f'{file} is damaged ({error}); restore it or choose another --work_dir.'
    ) from error
  changed = _differences(before, record)
  if changed:
    shown = '; '.join(f'{k}: {a!r} -> {b!r}' for k, a, b in changed[:5])
    raise UserError(
      f'work directory {file.parent} was made by another config ({shown}'
      f'{"; ..." if len(changed) > 5 else ""}). Give --work_dir=NEW, or run '
      'with the config it was made by.'
    )


def _differences(before, after, prefix='') -> list[tuple]:
  if isinstance(before, dict) and isinstance(after, dict):
    rows = []
    for key in sorted(before.keys() | after.keys()):
      rows += _differences(before.get(key), after.get(key), f'{prefix}{key}.')
    return rows
  if json.dumps(before) != json.dumps(after):
    return [(prefix.rstrip('.'), before, after)]
  return []
