"""Entry point: `python -m jaxagent.main --config=configs/stepwise_ppo.py`.

Flags, nothing else: the loop that `config.loop` names does the work.
"""

from __future__ import annotations

import os
import runpy
import sys

if sys.version_info < (3, 11):  # noqa: UP036
  raise SystemExit(
    f'jaxagent needs Python >= 3.11; this is {sys.version.split()[0]}. '
    'Make a virtual environment with a newer interpreter.'
  )

# One process drives the devices; executions are other processes.
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
# No CUDA graphs but where a program asks for them (`jaxagent.accelerator`).
if '--xla_gpu_enable_command_buffer' not in os.environ.get('XLA_FLAGS', ''):
  os.environ['XLA_FLAGS'] = ' '.join(
    [*os.environ.get('XLA_FLAGS', '').split(), '--xla_gpu_enable_command_buffer=']
  )

from absl import app, flags, logging  # noqa: E402
from ml_collections import config_flags  # noqa: E402

_CONFIG = config_flags.DEFINE_config_file(
  'config',
  None,
  'The experiment, FILE.py[:VARIANT], such as configs/stepwise_ppo.py:tiny.',
  lock_config=True,
)
_WORK_DIR = flags.DEFINE_string(
  'work_dir', None, 'Where results go; overrides config.work_dir.'
)
_DRY_RUN = flags.DEFINE_bool(
  'dry_run',
  False,
  'Print the plan (stages, shapes, memory by role and device) and stop.',
)


def main(argv: list[str]) -> int:
  """Checks the command line and hands over to the loop."""
  if len(argv) > 1:
    return _refuse(
      f'unexpected argument {argv[1]!r}; options start with --config.'
    )
  # Libraries log each file they write; progress is for people.
  if not flags.FLAGS['verbosity'].present:
    logging.set_verbosity(logging.WARNING)
  from jaxagent import loops
  from jaxagent.loops import settings

  config = _CONFIG.value
  with config.unlocked():
    config.work_dir = _WORK_DIR.value or config.work_dir
    config.dry_run = _DRY_RUN.value or config.dry_run
  try:
    settings.expand_home(config)
    loops.run(config)
  except loops.UserError as error:
    return _refuse(error)
  except (loops.DiskFull, loops.MachineryError) as error:
    return _refuse(error, code=1)
  except loops.Interrupted as error:
    print(f'{error}', file=sys.stderr)
    return 143
  return 0


def _refuse(reason: object, code: int = 2) -> int:
  """Says why nothing (more) is done, in one line; returns the exit code."""
  print(f'error: {" ".join(str(reason).split())}', file=sys.stderr)
  return code


def check_overrides(argv: list[str]) -> None:
  """Raises ValueError for what ml_collections would not name as clearly.

  No or another file, a --config.KEY that the experiment has not, no number
  where it has one.
  """
  given = [a[len('--config=') :] for a in argv if a.startswith('--config=')]
  given += [b for a, b in zip(argv, argv[1:]) if a == '--config']
  if not given:
    raise ValueError(
      '--config is missing; give --config=FILE.py[:VARIANT], such as '
      '--config=configs/stepwise_ppo.py.'
    )
  file, _, variant = given[-1].partition(':')
  if not os.path.isfile(file):
    raise ValueError(
      f'--config={file}: no such file here ({os.getcwd()}); run from a '
      'checkout, whose configs/ and tasks/ an installed package has not, or '
      'give the path of one, such as CHECKOUT/configs/stepwise_ppo.py with '
      '--config.tasks_dir=CHECKOUT/tasks.'
    )
  # The experiments of a checkout import each other, from wherever it is run.
  sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(file))))
  config = runpy.run_path(file)['get_config'](variant)
  for arg in argv:
    if not arg.startswith('--config.'):
      continue
    path, _, text = arg[len('--config.') :].partition('=')
    node = config
    for depth, part in enumerate(path.split('.')):
      if not hasattr(node, 'keys') or part not in node:
        where = '.'.join(['config', *path.split('.')[:depth]])
        known = ', '.join(sorted(node.keys())) if hasattr(node, 'keys') else '-'
        if hasattr(node, 'keys') and not known:
          raise ValueError(
            f"--config.{path}: give {where} as a whole, --{where}=\"{{{part!r}: ...}}\"."
          )
        raise ValueError(
          f'--config.{path}: {where} has no {part!r}; it has: {known}.'
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


def _parse(argv: list[str]) -> list[str]:
  """absl's flags; what it cannot read is refused like a bad config."""
  try:
    if not any(a.lstrip('-').startswith('help') for a in argv[1:]):
      check_overrides(argv[1:])
    return flags.FLAGS(argv)
  except (flags.Error, ValueError) as error:
    raise SystemExit(_refuse(error)) from None


def cli() -> None:
  """Console entry."""
  sys.path.insert(0, os.getcwd())  # configs/ lie beside the package
  app.run(main, flags_parser=_parse)


if __name__ == '__main__':
  cli()
