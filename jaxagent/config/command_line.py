"""An experiment of the command line: `--config=FILE.py[:VARIANT] --config.KEY=VALUE`."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from typing import Any

from absl import flags
from ml_collections import ConfigDict, config_flags

from jaxagent import options
from jaxagent.config import renamed, sections
from jaxagent.files import bundled

HELP = (
  'The experiment, FILE.py[:VARIANT], such as configs/stepwise_ppo.py:tiny.'
)


def read(argv: Sequence[str]) -> Any:
  """Returns the config that `--config` and `--config.KEY=VALUE` of `argv` make, locked.

  argv: without the program's name; nothing else may be in it. Raises ValueError,
  one line, for what is not understood.
  """
  argv = renamed.arguments(argv)
  check_overrides(argv)
  values = flags.FlagValues()
  config_flags.DEFINE_config_file(
    'config', None, HELP, flag_values=values, lock_config=True, sys_argv=argv
  )
  try:
    rest = values(['config', *argv])[1:]
  except flags.Error as error:
    raise ValueError(str(error)) from error
  if rest:
    raise ValueError(
      f'unexpected argument {rest[0]!r}; options start with --config.'
    )
  given = config_flags.get_override_values(values['config'])
  renamed.upgrade(values.config, given)
  return values.config


def check_overrides(argv: list[str]) -> None:
  """Raises ValueError for overrides that ml_collections would not report clearly.

  No file, two, or another one, a --config.KEY that the experiment has not, no number
  where it has one.
  """
  given = [a[len('--config=') :] for a in argv if a.startswith('--config=')]
  given += [b for a, b in zip(argv, argv[1:]) if a == '--config']
  if not given and '--config_help' in argv:
    return
  if not given:
    raise ValueError(
      '--config is missing; give --config=FILE.py[:VARIANT], such as '
      '--config=configs/stepwise_ppo.py.'
    )
  if len(given) > 1:  # absl takes the last, ml_collections the first
    raise ValueError(
      f'--config is given {len(given)} times ({", ".join(given)}); give one.'
    )
  file, *variant = given[0].split(':', 1)  # as ml_collections calls it
  if not os.path.isfile(file):
    raise ValueError(
      f'--config={file}: no such file here ({os.getcwd()}); give the path of '
      f'one, such as {bundled.folder("configs")}/stepwise_ppo.py, or of one of '
      'your own: jaxagent recipes new NAME --dir DIR.'
    )
  # The bundled experiments import each other, from wherever they are run, and others
  # import them.
  beside = os.path.dirname(os.path.dirname(os.path.abspath(file)))
  sys.path += [beside, str(bundled.root())]
  get_config = runpy.run_path(file).get('get_config')
  if not callable(get_config):
    raise ValueError(
      f'--config={file}: it has no function get_config(variant) that returns the '
      'options; see configs/stepwise_ppo.py.'
    )
  config = get_config(*variant)
  if not isinstance(config, ConfigDict):
    raise ValueError(
      f'--config={file}: get_config gives a {type(config).__name__}; it must return '
      'the options, see configs/stepwise_ppo.py.'
    )
  for arg in argv:
    if not arg.startswith('--config.'):
      continue
    path, _, text = arg[len('--config.') :].partition('=')
    node = config
    for depth, part in enumerate(path.split('.')):
      if not hasattr(node, 'keys') or part not in node:
        where = '.'.join(['config', *path.split('.')[:depth]])
        if said := sections.retired(path):
          raise ValueError(f'{arg} {said}')
        known = sorted(node.keys()) if hasattr(node, 'keys') else ['-']
        if not known:
          raise ValueError(
            f'--config.{path}: give {where} as a whole, --{where}="{{{part!r}: ...}}".'
          )
        raise ValueError(
          f'--config.{path}: {options.unknown(where, part, known)}'
        )
      node = node[part]
    _check_number(arg, text, type(node))


def _check_number(arg: str, text: str, kind: type) -> None:
  words = {int: 'a whole number', float: 'a number'}.get(kind)
  if not words or '=' not in arg:
    return
  try:
    kind(text)
  except ValueError:
    raise ValueError(f'{arg}: {text!r} must be {words}.') from None
