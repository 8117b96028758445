"""What one rule of `loops.rules` may look at, and how it complains."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import math
import pathlib
import re
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

from jaxagent.loops.errors import UserError

WITHOUT_DEVICES = ('collect',)  # loops that never touch an accelerator
# Options that are dictionaries of whatever a server or a template reads.
OPEN = ('extra', 'chat_template_kwargs')


@dataclasses.dataclass(frozen=True)
class Rule:
  """keys: what it constrains; skipped where one of `rules.OPTIONAL` is absent.

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
  """(dotted name, value) of everything that is no ConfigDict itself, and of OPEN."""
  for name in config:
    value = config[name]
    if hasattr(value, 'keys') and name not in OPEN:
      yield from leaves(value, f'{prefix}{name}.')
    else:
      yield prefix + name, value


def one_of(key: str, *choices: str) -> Rule:
  def check(config) -> str:
    value = get(config, key)
    if value in choices:
      return ''
    return (
      f'config.{key}={value!r} is not known; choose one of: '
      f'{", ".join(choices)}.'
    )

  return Rule((key,), check)


def whole(key: str, least: int = 1, most: int | None = None) -> Rule:
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


def number(key: str, **bounds: float) -> Rule:
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


def flag(key: str) -> Rule:
  return _of_type(key, bool, 'True or False')


def related(
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


def all_finite(config) -> str:
  for name, value in leaves(config):
    if isinstance(value, float) and not math.isfinite(value):
      return f'config.{name}={value!r} must be finite; give a number.'
  return ''


def names(key: str, choices: tuple[str, ...] = ()) -> Rule:
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


def texts(key: str, example: str) -> Rule:
  """A tuple of texts, none of them empty."""

  def check(config) -> str:
    given = get(config, key)
    if isinstance(given, (tuple, list)) and all(
      isinstance(text, str) and text for text in given
    ):
      return ''
    return (
      f'config.{key}={given!r} must be a tuple of texts, none empty, such as '
      f'({example!r},); give --config.{key}="(\'TEXT\',)".'
    )

  return Rule((key,), check)


def addresses(key: str) -> Rule:
  """A tuple of addresses of servers, perhaps empty."""

  def check(config) -> str:
    given = get(config, key)
    if isinstance(given, (tuple, list)) and all(map(is_http, given)):
      return ''
    return (
      f'config.{key}={given!r} must be a tuple of addresses, such as '
      f"('http://127.0.0.1:8000',); give --config.{key}=\"('URL',)\"."
    )

  return Rule((key,), check)


def is_http(address) -> Any:
  """Whether it is a server's address without user name or query."""
  try:
    url = urllib.parse.urlsplit(str(address))
    secret = url.username is not None or url.query
    return url.scheme in ('http', 'https') and url.hostname and not secret
  except ValueError:
    return False


def is_ray_address(address) -> bool:
  """'', 'auto', HOST:PORT or [IPV6]:PORT."""
  if address in ('', 'auto'):
    return True
  try:
    url = urllib.parse.urlsplit(f'//{address}')
    alone = url.netloc == address and not re.search(r'[\s@]', address)
    return bool(alone and url.hostname and url.port)
  except ValueError:  # no port of a machine
    return False


def backend_is_installed(config) -> str:
  name = config.sandbox.backend
  if name == 'local' or importlib.util.find_spec(name) is not None:
    return ''
  return (
    f'config.sandbox.backend={name!r} needs a package that is not installed: '
    f"pip install 'jaxagent[{name}]'."
  )


def folder(key: str, *files: str) -> Rule:
  """'' or a folder that holds one of `files`."""

  def check(config) -> str:
    path = get(config, key)
    if not path or any((pathlib.Path(path) / f).is_file() for f in files):
      return ''
    return (
      f'config.{key}={path!r} is not a folder with {" or ".join(files)} '
      f"(looked from {pathlib.Path.cwd()}); give one that is, or ''."
    )

  return Rule((key,), check, 'run')


def tasks_dir(config) -> str:
  if pathlib.Path(config.tasks_dir).is_dir():
    return ''
  return (
    f'config.tasks_dir={config.tasks_dir!r} is not a folder here '
    f'({pathlib.Path.cwd()}); run from the root of a checkout or give '
    '--config.tasks_dir=CHECKOUT/tasks.'
  )


def _model(config) -> tuple[str, dict[str, Any]]:
  """(its name in a complaint, its config.json): `model.path` or `model.hf`."""
  path = config.model.path
  if not path:
    return 'config.model.hf', config.model.hf.to_dict()
  try:
    raw = json.loads((pathlib.Path(path) / 'config.json').read_text())
  except (OSError, ValueError):
    raw = {}  # a later rule says what is wrong with the folder
  where = f'config.json of config.model.path={path!r}'
  return where, raw if isinstance(raw, dict) else {}


def model_shape(config) -> str:
  from jaxagent.models.config import ModelConfig

  where, hf = _model(config)
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


def head_dim(config) -> tuple[int, str]:
  """Of the policy, and what says so; 0 where that is not known yet."""
  from jaxagent.models.config import ModelConfig

  where, hf = _model(config)
  try:
    return ModelConfig.from_hf({'vocab_size': 1} | hf).head_dim, where
  except (ValueError, TypeError, ZeroDivisionError):
    return 0, where  # another rule says what is wrong with it


def positions(config) -> str:
  where, hf = _model(config)
  prompt, new = config.rollout.max_prompt_tokens, config.rollout.max_new_tokens
  room = hf.get('max_position_embeddings')
  if room is None or prompt + new <= room:
    return ''
  return (
    f'config.rollout.max_prompt_tokens={prompt} and max_new_tokens={new} '
    f'together exceed max_position_embeddings={room} of {where}; lower one of '
    'the first two.'
  )


def mesh_fits_model(config) -> str:
  mesh = config.mesh
  where, hf = _model(config)
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


def weights_fit(key: str) -> Rule:
  """Names, shapes and dtypes of all weights, before any is read."""

  def check(config) -> str:
    folder = get(config, key)
    if not folder or config.loop in WITHOUT_DEVICES:
      return ''
    from jaxagent.models import hf

    try:
      hf.check_folder(folder)
    except (ValueError, OSError) as error:
      return f'config.{key}: {_line(error)}'
    return ''

  return Rule((key,), check, 'devices')


def critic_fits(config) -> str:
  """A critic of its own reads what the policy reads."""
  path, roll = config.rl.critic_path, config.rollout
  if not path:
    return ''
  where = f'config.rl.critic_path={path!r}'
  if config.rl.estimator != 'gae':
    return (
      f'{where} is for config.rl.estimator=gae, which alone has a critic, not '
      f'{config.rl.estimator!r}; set one of them back.'
    )
  from jaxagent.models.config import ModelConfig

  try:
    critic = ModelConfig.from_hf(path)
  except (ValueError, TypeError, OSError) as error:
    return f'{where}: {_line(error)}'
  _, policy = _model(config)
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


def _line(error: Exception, most: int = 600) -> str:
  """An error's words as one line of a bearable length, with a full stop."""
  text = ' '.join(str(error).split())
  text = text if len(text) <= most else text[:most] + ' ...'
  return text.rstrip('.') + '.'


def mesh_fits_devices(config) -> str:
  if config.loop in WITHOUT_DEVICES:
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


def offload_fits_devices(config) -> str:
  """Devices with a memory that is not the host's."""
  roles = tuple(config.rl.offload)
  if not roles or config.loop in WITHOUT_DEVICES:
    return ''
  from jaxagent import sharding
  from jaxagent.learner import offload

  said = offload.complaint(roles, sharding.make_mesh(dict(config.mesh)))
  return said and f'config.rl.{said}'


def chosen_tasks(config) -> str:
  """Names, splits, and what the statistics and the ideas need of a task."""
  from jaxagent.data.ideas import idea_pool
  from jaxagent.envs.tasks import load_task
  from jaxagent.loops.host import choose_tasks

  try:
    heldin, heldout = choose_tasks(config)
    strange = [name for name in config.rl.tasks if name not in heldin]
    if strange:
      return (
        f'config.rl.tasks: {strange[0]!r} is not held-in; choose from: '
        f'{", ".join(heldin)}.'
      )
    folder = pathlib.Path(config.tasks_dir)
    specs = [load_task(name, folder) for name in heldin + heldout]
    if config.loop == 'agent':
      return ''  # nothing is trained
    if bare := [s.name for s in specs if s.layout == 'mlagentbench']:
      return (
        f'config.tasks: {", ".join(bare)} without task.yaml: agents are measured '
        f"there (config.loop='agent'), config.loop={config.loop!r} trains. Write "
        'a task.yaml with validation and private rows (docs/tasks.md).'
      )
    pools = {s.name: len(idea_pool(s)) for s in specs if s.name in heldin}
  except (ValueError, OSError, UserError) as error:
    return str(error)
  for spec in specs:
    if not spec.has_scale or spec.m_best_private is None:
      return (
        f'config.tasks: {spec.name} lacks m_init, m_best or m_best_private in '
        f'task.yaml, between which scores are placed; run `python -m jaxagent.tasks '
        f'measure {spec.name}` or leave it out.'
      )
  for name, size in pools.items():
    # The pool of a model is as large as one asks it for.
    if config.expert.kind == 'scripted' and size < config.collect.idea_pool:
      return (
        f'config.collect.idea_pool={config.collect.idea_pool} asks for more '
        f'ideas than task {name} has ({size}); lower it or leave {name} out.'
      )
  return ''


def tokenizer_fits(config) -> str:
  """Of a given tokenizer: it can be read, fits the model, leaves room."""
  given = config.tokenizer.path or config.model.path
  if not given or config.loop in WITHOUT_DEVICES:
    return ''
  from jaxagent import readings
  from jaxagent.loops import templates

  where, hf = _model(config)
  try:
    tokenizer = templates.load(config, given)
    readings.check_readers(given, hf)
  except ValueError as error:
    return _line(error)
  if complaint := templates.complaint(config, tokenizer):
    return complaint
  entries = hf.get('vocab_size')
  if entries is not None and entries < tokenizer.vocab_size:
    return (
      f'{where} has vocab_size={entries}, smaller than the '
      f'{tokenizer.vocab_size} of the tokenizer in {given!r}: give the '
      'tokenizer that belongs to it with --config.tokenizer.path=DIR.'
    )
  shortest = _shortest(config, lambda text: len(tokenizer.encode_prompt(text)))
  return too_short(config, shortest)


def prompt_room(config) -> str:
  """The bound that holds for every tokenizer that a run may train.

  A byte-level one never joins what its first step, cutting the text into
  words, has parted.
  """
  if config.tokenizer.path or config.model.path:
    return ''  # the tokenizer itself will tell
  from jaxagent.data import bpe

  separator = 1
  shortest = _shortest(config, lambda text: bpe.word_count(text) + separator)
  return too_short(config, shortest)


def _shortest(config, length: Callable[[str], int]) -> int:
  """`length` of the shortest prompt, that of an empty script."""
  from jaxagent import types
  from jaxagent.envs.tasks import load_task
  from jaxagent.loops.agents import prompter_of
  from jaxagent.loops.host import choose_tasks

  if config.loop in ('rl_for_mle', 'tree_search'):
    return 0  # the data's beginning is in it: `solutions.PromptIds` tells
  lengths = []
  for name in sum(choose_tasks(config), ()):
    spec = load_task(name, pathlib.Path(config.tasks_dir))
    state = types.State('', name, {}, None, None)
    text = prompter_of(config).text(state, spec)
    lengths.append(length(text))
  return min(lengths)


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
