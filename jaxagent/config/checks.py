"""Kinds of rules for `config.rules`, and access to a config's options."""

from __future__ import annotations

import dataclasses
import importlib.util
import pathlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from jaxagent.config import sections

if TYPE_CHECKING:
  from ml_collections import ConfigDict


@dataclasses.dataclass(frozen=True)
class Rule:
  """A check of a config.

  keys: options that it constrains; skipped where one of them is absent.

  check: config -> the complaint, '' where there is none.
  stage: 'config' before anything else; 'run' likewise, but not for
    `--dry_run`, which may plan for a machine that is not here; 'devices' once
    the processes of a run have met and can count them.
  """

  keys: tuple[str, ...]
  check: Callable[[Any], str]
  stage: str = 'config'


def get(config: ConfigDict, path: str):
  """Returns the option with a dotted name, such as `rl.updates`."""
  for part in path.split('.'):
    config = config[part]
  return config


def has(config: ConfigDict, path: str) -> bool:
  """Whether a config has the option with a dotted name."""
  for part in path.split('.'):
    if not hasattr(config, 'keys') or part not in config:
      return False
    config = config[part]
  return True


def leaves(config: ConfigDict) -> Iterator[tuple[str, Any]]:
  """Yields (dotted name, value) of each option; one that is a dictionary is a leaf."""
  yield from _leaves(config, '', open_keys(config))


def _leaves(node: Any, at: str, whole: set[str]) -> Iterator[tuple[str, Any]]:
  for name in node:
    key, value = f'{at}{name}', node[name]
    if hasattr(value, 'keys') and key not in whole:
      yield from _leaves(value, f'{key}.', whole)
    else:
      yield key, value


def open_keys(config: ConfigDict) -> set[str]:
  """Returns the options that are dictionaries with keys of any name."""
  found = sections.all_options(config)
  return {key for key, made in found if made.kind is dict}


def related(
  *keys: str,
  holds: Callable[..., Any],
  say: str,
  stage: str = 'config',
) -> Rule:
  """Returns a rule between several options.

  holds: the keys' values -> whether they are allowed. say: the complaint, with {0},
    {1}, ... for the values and {recipe} for the recipe's name.
  """

  def check(config: ConfigDict) -> str:
    values = [get(config, key) for key in keys]
    return '' if holds(*values) else say.format(*values, recipe=config.recipe)

  return Rule(keys, check, stage)


def backend_is_installed(config: ConfigDict) -> str:
  name = config.sandbox.backend
  if name == 'local' or importlib.util.find_spec(name) is not None:
    return ''
  return (
    f'config.sandbox.backend={name!r} needs a package that is not installed: '
    f"pip install 'jaxagent[{name}]'."
  )


def folder(key: str, *files: str) -> Rule:
  """Returns a rule that an option is '' or a folder with one of `files`."""

  def check(config: ConfigDict) -> str:
    path = get(config, key)
    if not path or any((pathlib.Path(path) / f).is_file() for f in files):
      return ''
    return (
      f'config.{key}={path!r} is not a folder with {" or ".join(files)} '
      f"(looked from {pathlib.Path.cwd()}); give one that is, or ''."
    )

  return Rule((key,), check, 'run')


def line(error: Exception, most: int = 600) -> str:
  """Returns an error's message as one line, cut to `most` characters."""
  text = ' '.join(str(error).split())
  text = text if len(text) <= most else text[:most] + ' ...'
  return text.rstrip('.') + '.'
