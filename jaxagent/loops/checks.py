"""What one rule of `loops.rules` may look at, and how it complains."""

from __future__ import annotations

import dataclasses
import importlib.util
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

from jaxagent.loops import sections

WITHOUT_DEVICES = ('collect',)  # loops that never touch an accelerator


@dataclasses.dataclass(frozen=True)
class Rule:
  """keys: what it constrains; skipped where one of them is absent.

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
    if not hasattr(config, 'keys') or part not in config:
      return False
    config = config[part]
  return True


def leaves(config) -> Iterator[tuple[str, Any]]:
  """(dotted name, value) of each option; one that is a dictionary is a leaf."""
  yield from _leaves(config, '', open_keys(config))


def _leaves(node, at: str, whole: set[str]) -> Iterator[tuple[str, Any]]:
  for name in node:
    key, value = f'{at}{name}', node[name]
    if hasattr(value, 'keys') and key not in whole:
      yield from _leaves(value, f'{key}.', whole)
    else:
      yield key, value


def open_keys(config) -> set[str]:
  """Returns the options that are dictionaries with keys of any name."""
  found = sections.all_options(config)
  return {key for key, made in found if made.kind is dict}


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


def line(error: Exception, most: int = 600) -> str:
  """An error's words as one line of a bearable length, with a full stop."""
  text = ' '.join(str(error).split())
  text = text if len(text) <= most else text[:most] + ' ...'
  return text.rstrip('.') + '.'
