"""What a config may hold: one table, read before any work is done.

A rule looks at a few keys and complains in one sentence that names the
value, what it may be and the remedy. `tests/loops/test_rules.py` holds every
leaf of configs/common.py to be in the table or in `FREE`, and breaks every
rule once.
"""

from __future__ import annotations

import dataclasses
import math
import pathlib
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

from jaxagent.loops.errors import UserError

# Any text will do.
FREE = ('name', 'variant')
# What a Hugging Face config.json, `model.hf`, may leave out.
OPTIONAL = (
  'model.hf.vocab_size',
  'model.hf.head_dim',
  'model.hf.num_key_value_heads',
  'model.hf.rms_norm_eps',
  'model.hf.rope_theta',
  'model.hf.tie_word_embeddings',
)
POLICIES = ('starter', 'sft', 'rl')
_WITHOUT_DEVICES = ('collect',)  # loops that never touch an accelerator


@dataclasses.dataclass(frozen=True)
class Rule:
  """keys: what it constrains; skipped where one of `OPTIONAL` is absent.

  check: config -> the complaint, '' where there is none.
  stage: 'config' before anything else; 'run' likewise, but not for
    `--dry_run`, which may plan for a machine that is not here; 'devices' once
    the processes of a run have met and can count them.
  """

  keys: tuple[str, ...]
  check: Callable[[Any], str]
  stage: str = 'config'


def get(config, path: str):
  """`config.a.b` by its dotted name."""
  for part in path.split('.'):
    config = config[part]
  return config


def has(config, path: str) -> bool:
  """Whether `get` would find it."""
  for part in path.split('.'):
    if part not in config:
      return False
    config = config[part]
  return True


def leaves(config, prefix: str = '') -> Iterator[tuple[str, Any]]:
  """(dotted name, value) of everything that is no ConfigDict itself."""
  for name in config:
    value = config[name]
    if hasattr(value, 'keys'):
      yield from leaves(value, f'{prefix}{name}.')
    else:
      yield prefix + name, value


def complaint(config, stages: tuple[str, ...]) -> str:
  """The first complaint of the table, '' where there is none."""
  for rule in RULES:
    if rule.stage not in stages:
      continue
    absent = [key for key in rule.keys if not has(config, key)]
    if missing := [key for key in absent if key not in OPTIONAL]:
      return f'config.{missing[0]} is missing; give --config.{missing[0]}.'
    if not absent and (said := rule.check(config)):
      return said
  return ''


def _one_of(key: str, *choices: str) -> Rule:
  def check(config) -> str:
    value = get(config, key)
    if value in choices:
      return ''
    return (
      f'config.{key}={value!r} is not known; choose one of: '
      f'{", ".join(choices)}.'
    )

  return Rule((key,), check)


def _whole(key: str, least: int = 1, most: int | None = None) -> Rule:
  def check(config) -> str:
    value = get(config, key)
    if type(value) is int and value >= least:
      if most is None or value <= most:
        return ''
    span = f'of {least} or more' if most is None else f'from {least} to {most}'
    return (
      f'config.{key}={value!r} must be a whole number {span}; give '
      f'--config.{key}=N.'
    )

  return Rule((key,), check)


_BOUNDS = {
  'above': lambda value, bound: value > bound,
  'least': lambda value, bound: value >= bound,
  'below': lambda value, bound: value < bound,
  'most': lambda value, bound: value <= bound,
}
_WORDS = dict(above='above', least='at least', below='below', most='at most')


def _number(key: str, **bounds: float) -> Rule:
  """A finite number within `above`, `least`, `below`, `most`."""

  def check(config) -> str:
    value = get(config, key)
    if _finite(value):
      if all(_BOUNDS[how](value, bound) for how, bound in bounds.items()):
        return ''
    words = [f'{_WORDS[how]} {bound:g}' for how, bound in bounds.items()]
    return (
      f'config.{key}={value!r} must be a finite number {" and ".join(words)}; '
      f'give --config.{key}=X.'
    )

  return Rule((key,), check)


def _finite(value) -> bool:
  return isinstance(value, (int, float)) and math.isfinite(value)


def _of_type(key: str, kind: type, words: str) -> Rule:
  def check(config) -> str:
    value = get(config, key)
    if isinstance(value, kind):
      return ''
    return f'config.{key}={value!r} must be {words}.'

  return Rule((key,), check)


def _flag(key: str) -> Rule:
  return _of_type(key, bool, 'True or False')


def _related(
  *keys: str,
  holds: Callable[..., Any],
  say: str,
  stage: str = 'config',
) -> Rule:
  """holds: of the keys' values; say: with {0}, {1}, ... for the values."""

  def check(config) -> str:
    values = [get(config, key) for key in keys]
    return '' if holds(*values) else say.format(*values)

  return Rule(keys, check, stage)


def _all_finite(config) -> str:
  for name, value in leaves(config):
    if isinstance(value, float) and not math.isfinite(value):
      return f'config.{name}={value!r} must be finite; give a number.'
  return ''


def _names(key: str, choices: tuple[str, ...] = ()) -> Rule:
  """A tuple of different texts, each one of `choices` where there are any."""

  def check(config) -> str:
    given = get(config, key)
    if not isinstance(given, (tuple, list)):
      return f"config.{key}={given!r} must be a tuple such as ('wine',)."
    for i, name in enumerate(given):
      if not isinstance(name, str) or (choices and name not in choices):
        known = f'; choose from: {", ".join(choices)}' if choices else ''
        return f'config.{key}: {name!r} is not a known name{known}.'
      if name in given[:i]:
        return f'config.{key}: {name!r} is there twice; leave one out.'
    return ''

  return Rule((key,), check)


def _endpoint(role: str) -> tuple[Rule, Rule]:
  """Rules of a text model behind an address."""

  def address(config) -> str:
    options = config[role]
    if options.kind != 'openai' or _is_http(options.base_url):
      return ''
    return (
      f'config.{role}.base_url={options.base_url!r} must be an http or https '
      "address without user name or query, such as 'http://127.0.0.1:8000/v1'."
    )

  def named(config) -> str:
    options = config[role]
    if options.kind != 'openai' or str(options.model).strip():
      return ''
    return (
      f'config.{role}.model is empty: name the model that the endpoint '
      f'{options.base_url} serves, or set config.{role}.kind=scripted.'
    )

  kind = f'{role}.kind'
  return (
    Rule((kind, f'{role}.base_url'), address),
    # The paper's variant is planned without an endpoint at hand.
    Rule((kind, f'{role}.model'), named, 'run'),
  )


def _is_http(address) -> Any:
  try:
    url = urllib.parse.urlsplit(str(address))
    secret = url.username is not None or url.query
    return url.scheme in ('http', 'https') and url.hostname and not secret
  except ValueError:
    return False


def _backend_is_built(config) -> str:
  from jaxagent.sandbox.pool import BACKENDS

  if config.sandbox.backend in BACKENDS:
    return ''
  return (
    f'config.sandbox.backend={config.sandbox.backend!r} is not built yet; '
    f'choose one of: {", ".join(BACKENDS)}.'
  )


def _engine_is_built(config) -> str:
  if config.rollout.engine == 'native' or config.loop in _WITHOUT_DEVICES:
    return ''
  return (
    f'config.rollout.engine={config.rollout.engine!r} is not built yet; '
    'choose native.'
  )


def _folder(key: str, file: str) -> Rule:
  """'' or a folder that holds `file`."""

  def check(config) -> str:
    path = get(config, key)
    if not path or (pathlib.Path(path) / file).is_file():
      return ''
    return (
      f'config.{key}={path!r} is not a folder with {file} '
      f"(looked from {pathlib.Path.cwd()}); give one that is, or ''."
    )

  return Rule((key,), check, 'run')


def _tasks_dir(config) -> str:
  if pathlib.Path(config.tasks_dir).is_dir():
    return ''
  return (
    f'config.tasks_dir={config.tasks_dir!r} is not a folder here '
    f'({pathlib.Path.cwd()}); run from the repository root or give '
    '--config.tasks_dir.'
  )


def _model_shape(config) -> str:
  from jaxagent.models.config import ModelConfig

  hf = config.model.hf.to_dict()
  hf.setdefault('vocab_size', 1)  # the tokenizer's, which is made later
  try:
    ModelConfig.from_hf(hf)
  except (ValueError, TypeError, ZeroDivisionError) as error:
    return f'config.model.hf: {error}'
  heads, size = hf['num_attention_heads'], hf['hidden_size']
  if hf['model_type'] == 'qwen2' and not hf.get('head_dim') and size % heads:
    return (
      f'config.model.hf.hidden_size={size} does not divide by '
      f'config.model.hf.num_attention_heads={heads}; change one of them, or '
      'set head_dim.'
    )
  return ''


def _mesh_fits_model(config) -> str:
  hf, mesh = config.model.hf, config.mesh
  for name, axis in (
    ('num_attention_heads', 'tensor'),
    ('num_key_value_heads', 'tensor'),
    ('intermediate_size', 'tensor'),
    ('vocab_size', 'tensor'),
    ('hidden_size', 'fsdp'),
  ):
    if hf.get(name) and hf[name] % mesh[axis]:
      return (
        f'config.model.hf.{name}={hf[name]} does not divide by '
        f'config.mesh.{axis}={mesh[axis]}; choose an axis that divides it.'
      )
  return ''


def _mesh_fits_devices(config) -> str:
  if config.loop in _WITHOUT_DEVICES:
    return ''
  import jax

  try:
    found = jax.device_count()
  except RuntimeError as error:
    return f'no device for config.mesh: {" ".join(str(error).split())}'
  mesh = {axis: config.mesh[axis] for axis in config.mesh}
  need = math.prod(mesh.values())
  if need <= found:
    return ''
  sizes = ', '.join(f'config.mesh.{k}={v}' for k, v in mesh.items())
  return (
    f'{sizes} needs {need} devices, but {found} '
    f'{"is" if found == 1 else "are"} here; lower an axis or start more '
    'processes.'
  )


def _chosen_tasks(config) -> str:
  """Names, splits, and what the statistics and the ideas need of a task."""
  from jaxagent.data.ideas import idea_pool
  from jaxagent.envs.tasks import load_task
  from jaxagent.loops.host import choose_tasks

  try:
    heldin, heldout = choose_tasks(config)
    folder = pathlib.Path(config.tasks_dir)
    specs = [load_task(name, folder) for name in heldin + heldout]
    pools = {s.name: len(idea_pool(s)) for s in specs if s.name in heldin}
  except (ValueError, OSError, UserError) as error:
    return str(error)
  for spec in specs:
    if spec.m_init is None or spec.m_best is None:
      return (
        f'config.tasks: {spec.name} has no m_init or m_best in task.yaml, '
        f'between which scores are placed; run `python -m jaxagent.tasks '
        f'measure {spec.name}` or leave it out.'
      )
  for name, size in pools.items():
    if size < config.collect.idea_pool:
      return (
        f'config.collect.idea_pool={config.collect.idea_pool} asks for more '
        f'ideas than task {name} has ({size}); lower it or leave {name} out.'
      )
  return ''


def _prompt_room(config) -> str:
  """The bound that holds for every byte-level tokenizer.

  Such a tokenizer never joins what its first step, cutting the text into
  words, has parted. The shortest prompt is that of an empty script.
  """
  from tokenizers import pre_tokenizers

  from jaxagent import types
  from jaxagent.envs.prompts import render_prompt
  from jaxagent.envs.tasks import load_task
  from jaxagent.loops.host import choose_tasks

  cut = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str
  shortest = math.inf
  for name in sum(choose_tasks(config), ()):
    spec = load_task(name, pathlib.Path(config.tasks_dir))
    state = types.State('', name, {}, None, None)
    text = render_prompt(state, spec, style=config.rollout.prompt_style)
    shortest = min(shortest, len(cut(text)) + 1)  # and the separator
  return too_short(config, shortest)


def too_short(config, shortest: int) -> str:
  """The complaint where no prompt fits; `shortest` in tokens."""
  room = config.rollout.max_prompt_tokens
  if room >= shortest:
    return ''
  return (
    f'config.rollout.max_prompt_tokens={room} is below the shortest prompt '
    f'({shortest} tokens or more in style '
    f'{config.rollout.prompt_style!r}): every prompt would lose its '
    f'beginning; give --config.rollout.max_prompt_tokens={shortest} or more.'
  )


_HF = 'model.hf.'
RULES: tuple[Rule, ...] = (
  Rule((), _all_finite),
  # What there is to choose.
  _one_of('loop', 'collect', 'sft', 'stepwise_ppo', 'evaluate'),
  _one_of('sandbox.backend', 'local', 'docker', 'ray'),
  _one_of('sandbox.min_tier', 'T3', 'T2', 'T1', 'T0'),
  _one_of('expert.kind', 'scripted', 'openai'),
  _one_of('editor.kind', 'scripted', 'openai'),
  _one_of('model.dtype', 'float32', 'bfloat16'),
  _one_of('model.remat', 'none', 'full', 'dots', 'dots_no_batch'),
  _one_of('sft.schedule', 'cosine', 'constant'),
  _one_of('rollout.engine', 'native', 'vllm'),
  _one_of('rollout.prompt_style', 'compact', 'full'),
  _one_of('rl.estimator', 'gae', 'grpo', 'dr_grpo', 'rloo', 'reinforce_pp'),
  _one_of('rl.weighting', 'none', 'duration', 'inclusion'),
  _one_of('rl.rest', 'carry_over', 'cancel', 'wait'),
  _one_of('rl.on_stale', 'hold', 'drop', 'keep'),
  _one_of('rl.kl_kind', 'k1', 'k2', 'k3'),
  _one_of('rl.kl_in', 'loss', 'reward'),
  _one_of(
    'rl.aggregation',
    'token-mean',
    'seq-mean-token-sum',
    'seq-mean-token-mean',
  ),
  _one_of('rl.importance_level', 'none', 'token', 'sequence'),
  _names('eval.policies', POLICIES),
  _names('tasks.heldin'),
  _names('tasks.heldout'),
  _flag('dry_run'),
  _flag('sandbox.zygote'),
  _flag('model.scan_layers'),
  _flag('rl.shuffle_rewards'),
  _flag('reward.binary'),
  _flag('reward.format_term'),
  _flag('reward.corner_term'),
  _flag(_HF + 'tie_word_embeddings'),
  # Whole numbers.
  _whole('seed', 0, 2**31 - 1),
  _whole('sandbox.slots'),
  _whole('sandbox.memory_mb', 256),  # scikit-learn alone takes about 150
  _whole('collect.trajectories_per_task'),
  _whole('collect.max_steps'),
  _whole('collect.idea_pool'),
  _whole('collect.ideas_kept'),
  _whole('tokenizer.vocab_size', 259),  # all bytes and three specials
  _whole(_HF + 'hidden_size'),
  _whole(_HF + 'intermediate_size'),
  _whole(_HF + 'num_hidden_layers'),
  _whole(_HF + 'num_attention_heads'),
  _whole(_HF + 'num_key_value_heads'),
  _whole(_HF + 'max_position_embeddings'),
  _whole(_HF + 'vocab_size'),
  _whole(_HF + 'head_dim'),
  _whole('mesh.data'),
  _whole('mesh.fsdp'),
  _whole('mesh.tensor'),
  _whole('sft.epochs'),
  _whole('sft.batch_size'),
  _whole('sft.warmup_steps', 0),
  _whole('sft.checkpoint_every'),
  _whole('rollout.top_k', 0),
  _whole('rollout.max_prompt_tokens'),
  _whole('rollout.max_new_tokens'),
  _whole('rl.updates'),
  _whole('rl.batch_size'),
  _whole('rl.group_size'),
  _whole('rl.max_staleness', -1),
  _whole('rl.ppo_epochs'),
  _whole('rl.minibatches'),
  _whole('rl.micro_batch_tokens'),
  _whole('rl.checkpoint_every'),
  _whole('rl.keep_checkpoints'),
  _whole('eval.trajectories_per_task'),
  _whole('eval.max_steps'),
  _whole('eval.k'),
  # Numbers.
  _number('sandbox.timeout_s', above=0),
  _number('sandbox.step_timeout_s', above=0),
  _number('collect.time_limit_s', above=0),
  _number('collect.varied_start', least=0, most=1),
  _number(_HF + 'rms_norm_eps', above=0),
  _number(_HF + 'rope_theta', above=0),
  _number('sft.lr', above=0),
  _number('rollout.temperature', above=0),
  _number('rollout.top_p', above=0, most=1),
  _number('rl.weight_cap', least=0),
  _number('rl.oversample', least=1),
  _number('rl.watchdog_s', above=0),
  _number('rl.policy_lr', above=0),
  _number('rl.value_lr', above=0),
  _number('rl.clip_low', above=0, below=1),
  _number('rl.clip_high', above=0),
  _number('rl.value_clip', above=0),
  _number('rl.gamma', above=0, most=1),
  _number('rl.lam', least=0, most=1),
  _number('rl.kl_coef', least=0),
  _number('rl.entropy_coef', least=0),
  _number('rl.max_grad_norm', above=0),
  _number('rl.importance_cap', above=0),
  # What belongs together.
  _related(
    'rl.weight_cap',
    holds=lambda cap: cap == 0 or cap >= 1,
    say='config.rl.weight_cap={0} is below the mean weight, 1; give 1 or '
    'more, or 0 for no cap.',
  ),
  _related(
    'rl.batch_size',
    'rl.minibatches',
    holds=lambda batch, parts: batch % parts == 0,
    say='config.rl.batch_size={0} does not divide by '
    'config.rl.minibatches={1}; change one of them.',
  ),
  _related(
    'rl.batch_size',
    'rl.group_size',
    holds=lambda batch, group: batch % group == 0,
    say='config.rl.batch_size={0} does not divide by '
    'config.rl.group_size={1}; change one of them.',
  ),
  _related(
    'rl.estimator',
    'rl.group_size',
    holds=lambda name, group: (
      name not in ('grpo', 'dr_grpo', 'rloo') or group >= 2
    ),
    say='config.rl.estimator={0!r} compares samples of one prompt: '
    'config.rl.group_size={1} must be at least 2.',
  ),
  _related(
    'sandbox.timeout_s',
    'sandbox.step_timeout_s',
    holds=lambda execution, step: execution < step,
    say='config.sandbox.timeout_s={0} must be below '
    'config.sandbox.step_timeout_s={1}: deadlines nest (execution < step < '
    'watchdog).',
  ),
  _related(
    'sandbox.step_timeout_s',
    'rl.watchdog_s',
    holds=lambda step, watchdog: step < watchdog,
    say='config.sandbox.step_timeout_s={0} must be below '
    'config.rl.watchdog_s={1}: deadlines nest (execution < step < watchdog).',
  ),
  _related(
    'collect.time_limit_s',
    'sandbox.timeout_s',
    holds=lambda whole, one: whole >= one,
    say='config.collect.time_limit_s={0} of a trajectory must be at least '
    'config.sandbox.timeout_s={1} of one execution; raise the first or lower '
    'the second.',
  ),
  _related(
    'collect.ideas_kept',
    'collect.idea_pool',
    holds=lambda kept, pool: kept <= pool,
    say='config.collect.ideas_kept={0} are more than '
    'config.collect.idea_pool={1}, from which they are chosen; lower the '
    'first.',
  ),
  _related(
    'eval.k',
    'eval.trajectories_per_task',
    holds=lambda k, runs: k <= runs,
    say='config.eval.k={0} needs as many runs of a task, but '
    'config.eval.trajectories_per_task={1}; lower k or raise the runs.',
  ),
  _related(
    'rollout.top_p',
    'rollout.top_k',
    holds=lambda p, k: p == 1 and k == 0,
    say='config.rollout.top_p={0}, top_k={1}: truncated sampling changes the '
    'log-probs that training divides by; set top_p=1 and top_k=0.',
  ),
  _related(
    'rollout.max_prompt_tokens',
    'rollout.max_new_tokens',
    _HF + 'max_position_embeddings',
    holds=lambda prompt, new, room: prompt + new <= room,
    say='config.rollout.max_prompt_tokens={0} and max_new_tokens={1} '
    'together exceed config.model.hf.max_position_embeddings={2}; lower one '
    'of the first two.',
  ),
  _related(
    'work_dir',
    holds=lambda path: str(path).strip(),
    say='config.work_dir={0!r} is empty; say where results go with --work_dir.',
  ),
  Rule((_HF + 'model_type',), _model_shape),
  Rule(('mesh.fsdp', 'mesh.tensor'), _mesh_fits_model),
  *_endpoint('expert'),
  *_endpoint('editor'),
  # What this machine and this version have.
  Rule(('sandbox.backend',), _backend_is_built, 'run'),
  Rule(('rollout.engine',), _engine_is_built, 'run'),
  _folder('tokenizer.path', 'tokenizer.json'),
  _folder('model.path', 'config.json'),
  Rule(('tasks_dir',), _tasks_dir),
  Rule(('tasks.heldin', 'tasks.heldout'), _chosen_tasks),
  Rule(('rollout.max_prompt_tokens',), _prompt_room),
  Rule(
    ('mesh.data', 'mesh.fsdp', 'mesh.tensor'), _mesh_fits_devices, 'devices'
  ),
)
