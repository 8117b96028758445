"""Checks of a config's model, critic and mesh, before any weight is read."""

from __future__ import annotations

import json
import math
import pathlib
from typing import TYPE_CHECKING, Any

from jaxagent.config import checks, recipe

if TYPE_CHECKING:
  from ml_collections import ConfigDict

  from jaxagent.models.config import ModelConfig


def model_of(config: ConfigDict) -> tuple[str, dict[str, Any]]:
  """Returns (its name in a complaint, its config.json), by `model.path` or `model.hf`."""
  path = config.model.path
  if not path:
    return 'config.model.hf', config.model.hf.to_dict()
  try:
    raw = json.loads((pathlib.Path(path) / 'config.json').read_text())
  except (OSError, ValueError):
    raw = {}  # a later rule says what is wrong with the folder
  where = f'config.json of config.model.path={path!r}'
  return where, raw if isinstance(raw, dict) else {}


def model_shape(config: ConfigDict) -> str:
  from jaxagent.models.config import ModelConfig

  where, hf = model_of(config)
  if not hf:
    return ''
  hf.setdefault('vocab_size', 1)  # the tokenizer's, which is made later
  try:
    ModelConfig.from_hf(hf)
  except (ValueError, TypeError, ZeroDivisionError) as error:
    return f'{where}: {error}'
  heads, size = hf['num_attention_heads'], hf['hidden_size']
  if hf['model_type'] == 'qwen2' and not hf.get('head_dim') and size % heads:
    return (
      f'{where}: hidden_size={size} does not divide by '
      f'num_attention_heads={heads}; change one of them, or set head_dim.'
    )
  return ''


def head_dim(config: ConfigDict) -> tuple[int, str]:
  """Returns the policy's head_dim and the config entry it came from.

  0: not known yet.
  """
  from jaxagent.models.config import ModelConfig

  where, hf = model_of(config)
  try:
    return ModelConfig.from_hf({'vocab_size': 1} | hf).head_dim, where
  except (ValueError, TypeError, ZeroDivisionError):
    return 0, where  # another rule says what is wrong with it


def positions(config: ConfigDict) -> str:
  where, hf = model_of(config)
  prompt, new = config.rollout.max_prompt_tokens, config.rollout.max_new_tokens
  room = hf.get('max_position_embeddings')
  if room is None or prompt + new <= room:
    return ''
  return (
    f'config.rollout.max_prompt_tokens={prompt} and max_new_tokens={new} '
    f'together exceed max_position_embeddings={room} of {where}; lower one of '
    'the first two.'
  )


def mesh_fits_model(config: ConfigDict) -> str:
  mesh = config.mesh
  where, hf = model_of(config)
  for name, axis in (
    ('num_attention_heads', 'tensor'),
    ('num_key_value_heads', 'tensor'),
    ('intermediate_size', 'tensor'),
    ('vocab_size', 'tensor'),
    ('hidden_size', 'fsdp'),
  ):
    if hf.get(name) and hf[name] % mesh[axis]:
      return (
        f'{where}: {name}={hf[name]} does not divide by '
        f'config.mesh.{axis}={mesh[axis]}; choose an axis that divides it.'
      )
  return ''


def weights_fit(key: str) -> checks.Rule:
  """Returns a rule on names, shapes and dtypes of all weights of a folder."""

  def check(config: ConfigDict) -> str:
    folder = checks.get(config, key)
    if not folder or not recipe.find(config).has_policy:
      return ''
    from jaxagent.models import hf

    try:
      hf.check_folder(folder)
    except (ValueError, OSError) as error:
      return f'config.{key}: {checks.line(error)}'
    return ''

  return checks.Rule((key,), check, 'devices')


def critic_fits(config: ConfigDict) -> str:
  """Returns a complaint where a critic of its own does not fit the policy."""
  path, roll = config.rl.critic_path, config.rollout
  if not path:
    return ''
  where = f'config.rl.critic_path={path!r}'
  if config.rl.estimator != 'gae':
    return (
      f'{where} is for config.rl.estimator=gae, the only one with a critic, not for '
      f'{config.rl.estimator!r}; leave the path out, or set estimator=gae.'
    )
  from jaxagent.models.config import ModelConfig

  try:
    critic = ModelConfig.from_hf(path)
  except (ValueError, TypeError, OSError) as error:
    return f'{where}: {checks.line(error)}'
  _, policy = model_of(config)
  tokens = policy.get('vocab_size') or config.tokenizer.vocab_size
  if critic.vocab_size < tokens:
    return (
      f'{where} knows {critic.vocab_size} tokens, the policy {tokens}: give a '
      'critic that has the same tokenizer.'
    )
  longest = roll.max_prompt_tokens + roll.max_new_tokens
  if critic.max_position_embeddings < longest:
    return (
      f'{where} reads {critic.max_position_embeddings} tokens at most, prompt '
      f'and response have up to {longest}; lower '
      'config.rollout.max_prompt_tokens.'
    )
  return ''


def rank_fits_model(config: ConfigDict) -> str:
  """Returns a complaint about adapters wider than the model, else ''."""
  where, hf = model_of(config)
  rank, size = config.model.lora.rank, hf.get('hidden_size')
  if not isinstance(size, int) or rank <= size:
    return ''
  return (
    f'config.model.lora.rank={rank} is more than hidden_size={size} of {where}, the '
    'rank of a whole kernel; lower it.'
  )


def critic_beside_adapters(config: ConfigDict) -> str:
  """Returns a complaint about a critic of its own beside adapters, else ''."""
  path, rank = config.rl.critic_path, config.model.lora.rank
  if not path or not rank:
    return ''
  return (
    f'config.rl.critic_path={path!r} would be trained in full beside the adapters of '
    f'config.model.lora.rank={rank}, which is not implemented; leave the path out: the '
    'critic has adapters of its own on the same base.'
  )


def base_is_filled(config: ConfigDict) -> str:
  """Returns a complaint where adapters would be trained on random weights, else ''."""
  own, lora = recipe.find(config), config.model.lora
  if not lora.rank or config.model.path or not own.has_policy:
    return ''
  where = (
    f'config.model.lora.rank={lora.rank}: adapters on random weights learn'
  )
  if lora.path:
    return (
      f'config.model.lora.path={lora.path!r} has adapters of a model that config.'
      "model.path='' does not name; give its folder with --config.model.path=DIR."
    )
  if 'sft' in lora.stages:
    return (
      f"{where} nothing, and config.model.path is ''; give a model, or set "
      '--config.model.lora.stages="(\'rl\',)", by which SFT trains all weights first.'
    )
  if own.may_fine_tune:
    return ''
  return (
    f"{where} nothing, config.model.path is '' and there is no SFT that would fill "
    f'them (config.sft.epochs={config.sft.epochs}); give a model, or data and epochs '
    'of SFT.'
  )


def adapters_fit(config: ConfigDict) -> str:
  """Returns a complaint where `model.lora.path` does not fit the model, else ''."""
  given, path = config.model.lora, config.model.path
  if not given.path or not path or not recipe.find(config).has_policy:
    return ''
  from jaxagent.models import identity, lora
  from jaxagent.models.config import ModelConfig

  where = f'config.model.lora.path={given.path!r}'
  try:
    model = ModelConfig.from_hf(path, param_dtype=config.model.dtype)
    found = lora.check_peft(given.path, model)
    base = identity.folder_digest(path, model) if found.base else ''
  except (ValueError, OSError) as error:
    return f'{where}: {checks.line(error)}'
  if said := _other_adapters(given, found.config):
    return (
      f'config.model.lora.{said}, which the adapters of {where} have; set that.'
    )
  if found.base != base:
    return (
      f'{where} has adapters of another base (digest {found.base}) than '
      f'config.model.path={path!r} ({base}); give the model that they were trained on.'
    )
  return ''


def _other_adapters(given: ConfigDict, found: ModelConfig) -> str:
  """Returns 'KEY=VALUE is not VALUE' of the first option that differs, else ''."""
  if given.rank != found.lora_rank:
    return f'rank={given.rank} is not {found.lora_rank}'
  if not math.isclose(given.alpha, found.lora_alpha, rel_tol=1e-6):
    return f'alpha={given.alpha} is not {found.lora_alpha}'
  if set(given.targets) != set(found.lora_targets):
    return f'targets={given.targets} is not {found.lora_targets}'
  return ''


def mesh_fits_devices(config: ConfigDict) -> str:
  if not recipe.find(config).has_policy:
    return ''
  import jax

  try:
    found = jax.device_count()
  except RuntimeError as error:
    return f'no device for config.mesh: {" ".join(str(error).split())}'
  mesh = {axis: config.mesh[axis] for axis in config.mesh}
  need = math.prod(mesh.values())
  sizes = ', '.join(f'config.mesh.{k}={v}' for k, v in mesh.items())
  several = jax.process_count()
  if several > 1 and need < found:
    return (
      f'{sizes} takes {need} of the {found} devices of {several} processes; every '
      'process has to be in the mesh: raise an axis or start fewer processes.'
    )
  if need <= found:
    return ''
  return (
    f'{sizes} needs {need} devices, but {found} '
    f'{"is" if found == 1 else "are"} here; lower an axis or start more '
    'processes.'
  )


def offload_fits_devices(config: ConfigDict) -> str:
  """Returns a complaint where `rl.offload` would do nothing on the devices, else ''."""
  roles = tuple(config.rl.offload)
  if not roles or not recipe.find(config).has_policy:
    return ''
  from jaxagent.devices import sharding
  from jaxagent.learner import offload

  said = offload.complaint(roles, sharding.make_mesh(dict(config.mesh)))
  return said and f'config.rl.{said}'
