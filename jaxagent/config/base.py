"""The full set of options with defaults, which every experiment starts from.

Options and their defaults are those of `jaxagent.config.sections`; docs/config.md
lists them. A config is a `ml_collections.ConfigDict`, locked: an unknown key
stops the run. Files in `configs/` call `base()` and change what their
experiment is about. Units are in the names (`_s`, `_mb`, `_kb`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict, FieldReference

from jaxagent.config import recipe as recipes
from jaxagent.config import sections
from jaxagent.options import Section


def base(recipe: str = '') -> ConfigDict:
  """Returns the options of a run on one two-core machine, offline.

  recipe: of `config.recipe`, with its own sections, results in `workdir/NAME`;
    '' for the default.

  Raises ValueError, naming member and file, where the recipe cannot be used.
  """
  config = _config(sections.defaults(), '')
  if recipe:
    found = recipes.load(recipe)
    config.recipe, config.work_dir = recipe, f'workdir/{found.name}'
    for name, section in found.sections.items():
      add_section(config, name, section)
  return config


def add_section(config: ConfigDict, name: str, section: type[Section]) -> None:
  """Adds an experiment's own options to a config, in place.

  They are set, listed and refused like all others, as `config.NAME.OPTION`.
  Raises ValueError or TypeError, see `sections.add`.
  """
  sections.add(name, section)
  with config.unlocked():
    config[name] = _config(section.defaults(), f'{name}.')


def _config(tree: Mapping[str, Any], at: str) -> ConfigDict:
  config = ConfigDict()
  for name, value in tree.items():
    key = f'{at}{name}'
    if not isinstance(value, dict):
      config[name] = value
    elif key in sections.known():
      config[name] = _config(value, f'{key}.')
    else:
      config[name] = _open(value)
  return config


def _open(value: Mapping[str, Any]) -> FieldReference:
  """Makes an option that is a dictionary; on the command line it is its text."""
  return FieldReference(dict(value), field_type=object)


def variant(name: str, choices: tuple[str, ...]) -> str:
  """The variant asked for after the colon, checked against `choices`."""
  name = name or choices[0]
  if name not in choices:
    raise ValueError(
      f'unknown variant {name!r}; choose one of: {", ".join(choices)} '
      f'(as in --config=FILE.py:{choices[0]}).'
    )
  return name
