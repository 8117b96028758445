"""All options of a run: the section of each package under its name.

A section from outside the package, such as a recipe's own, is added by name
(`config.base.add_section`); its keys are read, listed and refused like all others,
where a config has it.
"""

from __future__ import annotations

import dataclasses
import keyword
import re
from collections.abc import Iterator, Mapping
from typing import Any

from jaxagent import options
from jaxagent.config import stages
from jaxagent.envs.config import EnvOptions
from jaxagent.llm import config as llm
from jaxagent.models import options as models
from jaxagent.options import Section
from jaxagent.rewards.config import RewardOptions
from jaxagent.rollout.config import RolloutOptions, VllmOptions
from jaxagent.sandbox.config import SandboxOptions

# Name in a config -> section; '' holds the keys that stand alone.
SECTIONS: Mapping[str, type[Section]] = {
  '': stages.RunConfig,
  'tasks': stages.TaskOptions,
  'sandbox': SandboxOptions,
  'expert': llm.ExpertOptions,
  'editor': llm.EditorOptions,
  'reader': llm.ReaderOptions,
  'env': EnvOptions,
  'reward': RewardOptions,
  'instrumenter': llm.InstrumenterOptions,
  'solution': stages.SolutionConfig,
  'writer': llm.WriterOptions,
  'search': stages.SearchConfig,
  'embeddings': llm.EmbeddingsOptions,
  'collect': stages.CollectConfig,
  'episode': stages.EpisodeConfig,
  'tokenizer': models.TokenizerOptions,
  'model': models.ModelOptions,
  'model.hf': models.HfOptions,
  'model.lora': models.LoraOptions,
  'mesh': models.MeshOptions,
  'sft': stages.SftConfig,
  'rollout': RolloutOptions,
  'rollout.vllm': VllmOptions,
  'rl': stages.RlConfig,
  'eval': stages.EvalConfig,
}
_added: dict[str, type[Section]] = {}


@dataclasses.dataclass(frozen=True)
class Retired:
  """A removed key: the one value it had, and the reason."""

  value: Any
  why: str


_TRUNCATED = (
  'truncated sampling changes the log-probs that training divides by, and the '
  'policy is always sampled whole'
)
RETIRED: Mapping[str, Retired] = {
  'rollout.top_p': Retired(1.0, _TRUNCATED),
  'rollout.top_k': Retired(0, _TRUNCATED),
}


def add(name: str, section: type[Section]) -> None:
  """Adds a section from outside under a name of one word.

  Adding again under the same name replaces the section. Raises ValueError for a
  name that is no word or that the package has, and for a relation of what are no
  options; TypeError for what is no `Section`.
  """
  word = re.fullmatch(r'[a-z][a-z0-9_]*', name)
  # `config.items` is a method, and `config.class` cannot be written.
  if not word or hasattr(dict, name) or keyword.iskeyword(name):
    raise ValueError(
      f'section {name!r} must be a word of small letters, such as ideas, and no '
      'word of Python or method of a dictionary.'
    )
  if name in _top_names():
    raise ValueError(
      f'section {name!r} is taken; choose another name than: '
      f'{", ".join(sorted(_top_names()))}.'
    )
  is_section = isinstance(section, type) and issubclass(section, Section)
  # Without its own decorator a class has the options of its base alone.
  if not is_section or '__dataclass_fields__' not in vars(section):
    raise TypeError(
      f'section {name!r}={section!r} must be a frozen dataclass that derives '
      'from jaxagent.options.Section.'
    )
  for rule in section.all_relations():
    if absent := [n for n in rule.names if n not in section.options()]:
      raise ValueError(
        f'section {name!r}: a relation reads {absent[0]!r}, which is no option; '
        f'its options are: {", ".join(section.options())}.'
      )
  section()  # raises ValueError if its own defaults are refused
  _added[name] = section


def known(config: Any = None) -> dict[str, type[Section]]:
  """Returns the package's sections by name, and of those added a config's own."""
  own = {n: s for n, s in _added.items() if config is not None and n in config}
  return {**SECTIONS, **own}


def _top_names() -> set[str]:
  """Returns the keys at the top of a config: of sections and single options."""
  found = {name.partition('.')[0] for name in SECTIONS} - {''}
  return found | set(SECTIONS[''].options())


def defaults() -> dict[str, Any]:
  """Returns the package's options with defaults, sections as nested dictionaries."""
  tree: dict[str, Any] = {}
  for name, section in SECTIONS.items():
    node = tree
    for part in filter(None, name.split('.')):
      node = node.setdefault(part, {})
    node.update(section.defaults())
  return tree


def all_options(config: Any = None) -> Iterator[tuple[str, options.Option]]:
  """Yields (dotted key, option) of every section; see `known`."""
  for name, section in known(config).items():
    for key, made in section.options().items():
      yield (f'{name}.{key}' if name else key), made


def rows(config: Any = None) -> list[options.Row]:
  """Returns the table's lines of every section, in order; see `known`."""
  return [
    row
    for name, section in known(config).items()
    for row in section.rows(f'{name}.' if name else '')
  ]


def paths(config: Any = None) -> tuple[str, ...]:
  """Returns the keys that are files or folders; see `known`."""
  return tuple(key for key, made in all_options(config) if made.is_path)


def read(config: Any, name: str) -> Any:
  """Returns a config's section as its dataclass; raises ValueError."""
  return known(config)[name].of(_values(config, name))


def retired(key: str) -> str:
  """Returns the complaint about a retired key, '' for any other key."""
  if key not in RETIRED:
    return ''
  return f'is retired: {RETIRED[key].why}; leave it out.'


def complaint(config: Any, stage: str) -> str:
  """Returns the first complaint of the sections, '' if there is none.

  stage: 'config' checks single values, then what stands in one section together;
    'run' and 'devices' the relations of that stage.
  """
  whole = known(config)
  if stage == 'config':
    for name, section in whole.items():
      if found := _no_section(config, name):
        return found
      if found := _unknown_key(config, name, section):
        return found
      values, at = _values(config, name), _at(name)
      if found := section.options_complaint(values, at):
        return found
  for name, section in whole.items():
    values, at = _values(config, name), _at(name)
    if found := section.relations_complaint(values, at, stage):
      return found
  return ''


def _at(name: str) -> str:
  return f'config.{name}.' if name else 'config.'


def _values(config: Any, name: str) -> Mapping[str, Any]:
  for part in filter(None, name.split('.')):
    config = config[part] if part in config else {}
  return config


def _no_section(config: Any, name: str) -> str:
  """Returns the complaint about a section that holds no options, else ''."""
  values = _values(config, name)
  if hasattr(values, 'keys'):
    return ''
  return (
    f'config.{name}={values!r} is a section, which holds options; set them one '
    f'by one, as in config.{name}.{next(iter(known(config)[name].options()))}.'
  )


def _unknown_key(config: Any, name: str, section: type[Section]) -> str:
  values, at = _values(config, name), _at(name)
  below = f'{name}.' if name else ''
  inner = {
    other.removeprefix(below).partition('.')[0]
    for other in known(config)
    if other != name and other.startswith(below)
  }
  for key in values:
    if key in section.options() or key in inner:
      continue
    if said := retired(f'{below}{key}'):
      return f'{at}{key}={values[key]!r} {said}'
    if not section.is_open:
      names = [*section.options(), *inner]
      return options.unknown(at.rstrip('.'), key, names)
  return ''
