"""Entry point: `python -m jaxagent.main --config=configs/stepwise_ppo.py`.

Reads the flags and hands the config to `jaxagent.recipes.run`, which does the work.
"""

from __future__ import annotations

import os
import signal
import sys

if sys.version_info < (3, 11):  # noqa: UP036
  raise SystemExit(
    f'jaxagent needs Python >= 3.11; this is {sys.version.split()[0]}. '
    'Make a virtual environment with a newer interpreter.'
  )

from jaxagent import errors  # noqa: E402
from jaxagent.runtime import allocator  # noqa: E402
from jaxagent.runtime.stop import SIGNALS  # noqa: E402


def _stopped(number: int, frame: object) -> None:
  """Ends a process that a signal reaches before its run has begun."""
  del frame
  print(
    f'{signal.Signals(number).name}: stopped; nothing was begun. Rerun the same '
    'command.',
    file=sys.stderr,
  )
  raise SystemExit(errors.STOPPED)


if __name__ == '__main__':
  for _number in SIGNALS:
    signal.signal(_number, _stopped)
  allocator.keep_freed_memory()

# One process drives the devices; executions are other processes.
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
# No CUDA graphs but where a program asks for them (`jaxagent.devices.accelerator`).
if '--xla_gpu_enable_command_buffer' not in os.environ.get('XLA_FLAGS', ''):
  os.environ['XLA_FLAGS'] = ' '.join(
    [
      *os.environ.get('XLA_FLAGS', '').split(),
      '--xla_gpu_enable_command_buffer=',
    ]
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
_CHECK = flags.DEFINE_bool(
  'check',
  False,
  'Check config and files as a run does before it asks for devices, print the plan '
  'and stop.',
)
_CONFIG_HELP = flags.DEFINE_bool(
  'config_help',
  False,
  'Print every option with default, value and what it accepts, and stop.',
)


def main(argv: list[str]) -> int:
  """Checks the command line and hands over to the loop."""
  if len(argv) > 1:
    return _refuse(
      f'unexpected argument {argv[1]!r}; options start with --config.'
    )
  if _CONFIG_HELP.value:
    from jaxagent.config import table

    # Whoever reads it, such as `head`, may have enough.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    print(table.text(_CONFIG.value))
    return 0
  # Libraries log each file they write; progress is for people.
  if not flags.FLAGS['verbosity'].present:
    logging.set_verbosity(logging.WARNING)
  from jaxagent.config import settings
  from jaxagent.recipes import run

  config = _CONFIG.value
  with config.unlocked():
    config.work_dir = _WORK_DIR.value or config.work_dir
    config.dry_run = _DRY_RUN.value or config.dry_run
  try:
    given = config_flags.get_override_values(flags.FLAGS['config'])
    settings.prepare(config, given)
    if _CHECK.value:
      run.check(config)
    else:
      run.run(config)
      if signal.getsignal(signal.SIGTERM) is _stopped:
        for number in SIGNALS:  # the run is complete, and only ends
          signal.signal(number, signal.SIG_IGN)
  except errors.UserError as error:
    return _refuse(error)
  except (errors.DiskFull, errors.MachineryError) as error:
    return _refuse(error, code=1)
  except errors.ProcessLost as error:
    return _refuse(error, code=errors.LOST)
  except errors.Interrupted as error:
    print(f'{error}', file=sys.stderr)
    return errors.STOPPED
  return 0


def _refuse(reason: object, code: int = 2) -> int:
  """Prints an error in one line; returns the exit code."""
  print(f'error: {" ".join(str(reason).split())}', file=sys.stderr)
  return code


def _parse(argv: list[str]) -> list[str]:
  """Reads the flags; one that absl cannot read is refused like a bad config."""
  try:
    if not any(a.lstrip('-').startswith('help') for a in argv[1:]):
      from jaxagent.config import command_line, renamed

      argv[1:] = renamed.arguments(argv[1:])
      command_line.check_overrides(argv[1:])
    return flags.FLAGS(argv)
  except (flags.Error, ValueError) as error:
    raise SystemExit(_refuse(error)) from None


def cli() -> None:
  """Console entry."""
  sys.path.insert(0, os.getcwd())  # configs/ lie beside the package
  app.run(main, flags_parser=_parse)


if __name__ == '__main__':
  cli()
