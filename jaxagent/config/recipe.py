"""The recipe that a config names: what an experiment says before any work.

`config.recipe` is a name of REGISTRY, or a class of one's own: 'module:Class', or
'FILE.py:Class'. No other code asks which recipe a run has; what differs is a member
of `Recipe`.
"""

from __future__ import annotations

import abc
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from jaxagent import metrics, records
from jaxagent.config import checks, sample_records, sections
from jaxagent.files import modules
from jaxagent.options import Section
from jaxagent.types import Record

if TYPE_CHECKING:
  import contextlib

  from ml_collections import ConfigDict

  from jaxagent.runtime.context import RunContext
  from jaxagent.types import TaskSpec

REGISTRY: Mapping[str, str] = {
  'stepwise': 'jaxagent.recipes.ml_agent.recipe:Stepwise',
  'episodewise': 'jaxagent.recipes.ml_agent.recipe:Episodewise',
  'solutions': 'jaxagent.recipes.solutions.recipe:Solutions',
  'tree_search': 'jaxagent.recipes.solutions.recipe:TreeSearch',
  'agents': 'jaxagent.recipes.agents.recipe:Agents',
  'ideator': 'jaxagent.recipes.ideator.recipe:Ideator',
}


class Recipe(abc.ABC):
  """An experiment, from its data to its report; `run` does it.

  A subclass sets what differs from the defaults here. It is made with the config
  before any work, and must not import jax until `run` is called.

  name: of the recipe, in checkpoints and messages.
  stages: values of `config.stage` that it knows; 'all' is everything.
  record_type: class of the records of its executions (`types.Record`).
  sections: its own options, name in the config -> section.
  metric_names: name -> description of metrics of its own, such as 'ideas/rate'.
  rules: checks of the config beside those that every recipe has.
  trains: whether tasks are trained on, and so need a scale and a held-in split.
  every_heldout: whether no name in `tasks.heldout` means every bundled task.
  strict_format: whether text around a response makes it invalid in any case.
  collects: whether an expert acts on the held-in tasks, from ideas for its first steps.
  expert_is_measured: whether the expert's model is what is evaluated, with the
    limits of `config.rollout`.
  """

  name: ClassVar[str] = ''
  stages: ClassVar[tuple[str, ...]] = ('all',)
  record_type: ClassVar[type[Record] | None] = None
  sections: ClassVar[Mapping[str, type[Section]]] = {}
  metric_names: ClassVar[Mapping[str, str]] = {}
  rules: ClassVar[tuple[checks.Rule, ...]] = ()
  trains: ClassVar[bool] = True
  every_heldout: ClassVar[bool] = True
  strict_format: ClassVar[bool] = False
  collects: ClassVar[bool] = False
  expert_is_measured: ClassVar[bool] = False

  def __init__(self, config: ConfigDict):
    self.config = config

  @property
  def has_policy(self) -> bool:
    """Whether the configured stage samples a policy, which takes devices."""
    return True

  @property
  def runs_rl(self) -> bool:
    """Whether the configured stage trains by RL."""
    return False

  @property
  def can_fine_tune(self) -> bool:
    """Whether the config leaves data of the recipe's own for SFT, where it has SFT."""
    return True

  @property
  def may_fine_tune(self) -> bool:
    """Whether the config asks for SFT, and for data that it could have."""
    options = self.config.sft
    return bool(options.epochs) and bool(
      options.conversations or self.can_fine_tune
    )

  @property
  def validates(self) -> bool:
    """Whether RL has validation prompts, which `rl.validate_every` needs."""
    return False

  def system_message(self) -> str:
    """Returns the system message of the policy's prompts; '' for none."""
    return ''

  def shortest_prompt(self, spec: TaskSpec) -> str:
    """Returns a task's shortest prompt; '' where its length is known later."""
    return ''

  @abc.abstractmethod
  def plan(self, heldin: Sequence[str], heldout: Sequence[str]) -> list[str]:
    """Returns the lines of `--dry_run` about its stages, numbered from 2 on."""

  def stand_ins(self, context: RunContext) -> Sequence[Any]:
    """Returns the text models of which those that are scripted are named."""
    return (context.expert, context.editor, context.env.reader)

  def check_work_dir(self, work: pathlib.Path) -> None:
    """Raises UserError where the work directory lacks what the stage needs."""
    return

  @abc.abstractmethod
  def run(self, context: RunContext, stack: contextlib.ExitStack) -> None:
    """Runs the stages; what must be closed is pushed on `stack`."""


def find(config: ConfigDict) -> Recipe:
  """Returns the recipe of a config.

  Raises ValueError, naming member and file, where it cannot be used.
  """
  made = load(config.recipe)
  for name, section in made.sections.items():
    if name not in config:
      raise ValueError(
        f'config.recipe={config.recipe!r} has options config.{name}, which this '
        f'config lacks; add them with add_section(config, {name!r}, '
        f'{section.__name__}) in the config file.'
      )
  return made(config)


def load(place: str) -> type[Recipe]:
  """Returns the class that a name of REGISTRY, or MODULE:CLASS, stands for.

  Raises ValueError, naming member and file, where it cannot be used.
  """
  where = f'config.recipe={place!r}'
  module_name, _, class_name = REGISTRY.get(place, place).rpartition(':')
  if not module_name:
    raise ValueError(
      f'{where} is unknown; choose one of: {", ".join(REGISTRY)}; or give your own '
      'as module:Class or FILE.py:Class.'
    )
  module = _imported(where, module_name)
  file = getattr(module, '__file__', module_name)
  found = getattr(module, class_name, None)
  if not isinstance(found, type):
    raise ValueError(f'{where}: {file} has no class {class_name}.')
  if complaint := _complaint(found):
    raise ValueError(f'{where}: {class_name} in {file} {complaint}')
  try:
    _make_known(found)
  except (ValueError, TypeError) as error:
    raise ValueError(f'{where}: {class_name} in {file}: {error}') from error
  return found


def _make_known(found: type[Recipe]) -> None:
  """Adds a recipe's record, options and metrics to those that are known.

  Raises ValueError or TypeError where one cannot be, or is another's.
  """
  assert found.record_type is not None  # `_complaint` has looked
  records.register(found.record_type)
  metrics.add(found.metric_names)
  for name, section in found.sections.items():
    sections.add(name, section)


def _imported(where: str, name: str) -> Any:
  try:
    return modules.imported(name)
  except Exception as error:  # a module of a user's may raise anything
    raise ValueError(
      f'{where}: {name} does not import: {type(error).__name__}: '
      f'{checks.line(error)}'
    ) from error


def _complaint(found: type) -> str:
  """Returns what a class lacks to be a recipe, '' if nothing."""
  if not issubclass(found, Recipe):
    return 'is no recipe; derive it from jaxagent.recipes.Recipe.'
  if not (isinstance(found.name, str) and found.name):
    return 'lacks the member name: a word for checkpoints and messages.'
  if absent := sorted(getattr(found, '__abstractmethods__', ())):
    return f'lacks the member {absent[0]}; see jaxagent.recipes.Recipe.'
  kind = found.record_type
  if not isinstance(kind, type) or not issubclass(kind, Record):
    return (
      f'lacks the member record_type: {kind!r} is no subclass of '
      'jaxagent.types.Record.'
    )
  return _of_mappings(found) or _of_record(kind)


def _of_mappings(found: type[Recipe]) -> str:
  for name in ('sections', 'metric_names'):
    if not isinstance(value := getattr(found, name), Mapping):
      return (
        f'has {name}={value!r:.80}; it must be a dictionary, see '
        'jaxagent.recipes.Recipe.'
      )
  return ''


def _of_record(kind: type[Record]) -> str:
  problem = sample_records.complaint(kind)
  if not problem:
    return ''
  return (
    f'has a record_type without a reward: {modules.place_of(kind)}.derive: '
    f'{" ".join(problem.split())[:600]}'
  )


def _stage(config: ConfigDict) -> str:
  stages = find(config).stages
  if config.stage in stages:
    return ''
  return (
    f'config.stage={config.stage!r} is unknown to config.recipe={config.recipe!r}; '
    f'choose one of: {", ".join(stages)}.'
  )


STAGE_RULE = checks.Rule(('stage', 'recipe'), _stage)
