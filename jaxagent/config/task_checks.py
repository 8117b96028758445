"""Checks of a config's tasks, and of the length of their prompts."""

from __future__ import annotations

import pathlib
import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from jaxagent.config import checks, model_checks, recipe
from jaxagent.errors import UserError
from jaxagent.files import bundled

if TYPE_CHECKING:
  from ml_collections import ConfigDict

  from jaxagent.types import TaskSpec


def tasks_dir(config: ConfigDict) -> str:
  from jaxagent.config.tasks import folder

  if folder(config).is_dir():
    return ''
  return (
    f'config.tasks_dir={config.tasks_dir!r} is not a folder here '
    f'({pathlib.Path.cwd()}); leave it out for the bundled tasks '
    f'({bundled.folder("tasks")}), or give --config.tasks_dir=DIR.'
  )


def chosen_tasks(config: ConfigDict) -> str:
  """Returns a complaint about names, splits, scales or ideas of tasks, else ''."""
  from jaxagent.config.tasks import choose_tasks, task_of
  from jaxagent.data.ideas import idea_pool

  try:
    heldin, heldout = choose_tasks(config)
    strange = [name for name in config.rl.tasks if name not in heldin]
    if strange:
      return (
        f'config.rl.tasks: {strange[0]!r} is not held-in; choose from: '
        f'{", ".join(heldin)}.'
      )
    specs = [task_of(config, name) for name in heldin + heldout]
    if lacking := next(filter(None, (_lacking(config, s) for s in specs)), ''):
      return f'config.tasks: {lacking}'
    if not recipe.find(config).trains:
      return ''
    if complaint := _not_trained_on(config, specs):
      return complaint
    # The pool of a model is as large as one asks it for.
    asks = recipe.find(config).collects and config.expert.kind == 'scripted'
    acted = heldin if asks else ()
    pools = {s.name: len(idea_pool(s)) for s in specs if s.name in acted}
  except (ValueError, OSError, UserError) as error:
    return str(error)
  for spec in specs:
    is_folder = spec.layout == 'mlagentbench'
    if spec.version == 2 and config.tasks.data != 'standin' and not is_folder:
      continue  # measured when it is prepared, and checked then
    if is_folder and (not spec.has_scale or spec.m_best_private is None):
      return (
        f'config.tasks: {spec.root}.yaml lacks m_init, m_best or m_best_private, '
        'between which scores of its two halves are placed; write them there, or '
        f'leave {spec.name} out.'
      )
    if not spec.has_scale or spec.m_best_private is None:
      return (
        f'config.tasks: {spec.name} lacks m_init, m_best or m_best_private in '
        f'task.yaml, between which scores are placed; {_measured(spec)}, or leave it '
        'out.'
      )
  for name, size in pools.items():
    if size < config.collect.idea_pool:
      return (
        f'config.collect.idea_pool={config.collect.idea_pool} asks for more '
        f'ideas than task {name} has ({size}); lower it or leave {name} out.'
      )
  return ''


def _measured(spec: TaskSpec) -> str:
  """Returns how both ends of a task's scale come to be measured."""
  from jaxagent.envs.specs.task_yaml2 import REFERENCE
  from jaxagent.envs.tasks import default_folder

  words = ['python -m jaxagent.tasks', 'measure', spec.name]
  if spec.root.parent != default_folder():
    words.insert(1, f'--tasks_dir {shlex.quote(str(spec.root.parent))}')
  if spec.version == 1:
    words.append('--search')
  first = ''
  if spec.version == 2 and not (spec.root / REFERENCE).is_file():
    first = f'write a stronger solution into {spec.root / REFERENCE} and '
  return f'{first}run `{" ".join(words)}`'


def _not_trained_on(config: ConfigDict, specs: Sequence[TaskSpec]) -> str:
  """Returns a complaint about folders of MLAgentBench that no run trains on, else ''."""
  from jaxagent.envs.specs import divided
  from jaxagent.envs.tasks import is_divided

  folders = [s for s in specs if s.layout == 'mlagentbench']
  if bare := [s.name for s in folders if not is_divided(s)]:
    return (
      f'config.tasks: {", ".join(bare)} without task.yaml: agents are measured '
      f"there (config.recipe='agents'), config.recipe={config.recipe!r} trains. So that "
      f'its rows are divided, write {folders[0].root.parent / bare[0]}.yaml with '
      f'{divided.TO_TRAIN} (docs/tasks.md).'
    )
  if folders and not recipe.find(config).collects:
    return (
      f'config.tasks: {", ".join(s.name for s in folders)}: a folder of MLAgentBench is '
      f'a workspace in which steps are taken; config.recipe={config.recipe!r} writes '
      'whole programs that read data/. Take configs/stepwise_ppo.py, or write a '
      'task.yaml.'
    )
  return ''


def _lacking(config: ConfigDict, spec: TaskSpec) -> str:
  """Returns what a task needs that the sandbox does not have, else ''."""
  from jaxagent.envs.specs import requirements

  box = config.sandbox
  image = box.docker_image if box.backend == 'docker' else ''
  return requirements.complaint(
    spec,
    gpus=box.gpus,
    image=image,
    memory_mb=box.memory_mb,
    backend=box.backend,
  )


def tokenizer_fits(config: ConfigDict) -> str:
  """Returns a complaint where a given tokenizer cannot be used, else ''.

  It must be readable, fit the model, and leave room for the shortest prompt.
  """
  given = config.tokenizer.path or config.model.path
  if not given or not recipe.find(config).has_policy:
    return ''
  from jaxagent.config import templates
  from jaxagent.files import readings

  where, hf = model_checks.model_of(config)
  try:
    tokenizer = templates.load(config, given)
    readings.check_readers(given, hf)
  except ValueError as error:
    return checks.line(error)
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


def prompt_room(config: ConfigDict) -> str:
  """Checks the shortest prompt by a bound for any tokenizer that a run may train.

  A byte-level one never joins what its first step, cutting the text into
  words, has parted.
  """
  if config.tokenizer.path or config.model.path:
    return ''  # the tokenizer itself will tell
  from jaxagent.data import bpe

  separator = 1
  shortest = _shortest(config, lambda text: bpe.word_count(text) + separator)
  return too_short(config, shortest)


def _shortest(config: ConfigDict, length: Callable[[str], int]) -> int:
  """Returns `length` of the shortest prompt, 0 where it is known later."""
  from jaxagent.config.tasks import choose_tasks, task_of

  own = recipe.find(config)
  specs = [task_of(config, n) for n in sum(choose_tasks(config), ())]
  texts = map(own.shortest_prompt, specs)
  return min(length(text) if text else 0 for text in texts)


def too_short(config: ConfigDict, shortest: int) -> str:
  """Returns the complaint where no prompt fits, else ''; `shortest` in tokens."""
  room = config.rollout.max_prompt_tokens
  if room >= shortest:
    return ''
  return (
    f'config.rollout.max_prompt_tokens={room} is below the shortest prompt '
    f'({shortest} tokens or more in style '
    f'{config.rollout.prompt_style!r}): every prompt would lose its '
    f'beginning; give --config.rollout.max_prompt_tokens={shortest} or more.'
  )
