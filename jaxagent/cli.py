"""The command `jaxagent VERB ...`: each verb is a `python -m jaxagent.MODULE`.

The process becomes that program: exit codes, signals and help are the program's own.
`train` and `plan` take options of the experiment without `config.` in front, and print
the whole command line that they run. Nothing here imports jax.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

import jaxagent
from jaxagent.files import bundled

# Verb -> (module, its arguments, what it does), in the order of the help.
VERBS = {
  'train': ('main', 'CONFIG ...', 'run or resume an experiment'),
  'plan': ('plan', 'CONFIG ...', 'memory, FLOPs and time of a run'),
  'recipes': ('recipes', 'list | new', 'experiments; write one of your own'),
  'tasks': ('tasks', 'list | check ...', 'the task folders'),
  'sandbox': (
    'sandbox',
    'run | self_check',
    'run a script; attack this machine',
  ),
  'track': (
    'trackers',
    'DIR --to NAME',
    'log a run to wandb, trackio or mlflow',
  ),
  'live': ('live', 'DIR', 'a page of the runs below DIR, while they go'),
  'why': ('why', 'DIR', 'how each rollout of a run ended, and why'),
  'audit': ('audit', 'DIR', 'derive every reward of a run again'),
  'pause': ('pause', 'DIR ...', 'edit the state that a run resumes from'),
  'traces': ('traces', 'DIR', 'trajectories as MLAgentBench keeps them'),
  'conversations': ('conversations', 'DIR FILE', 'expert steps as ShareGPT'),
  'models': ('models', 'import | export', 'from and to Hugging Face folders'),
  'grade': ('grade', '--jsonl FILE', 'submissions of mle-bench, MLAgentBench'),
  'metrics': ('metrics', '', 'the names of all that is logged'),
}
# Options of the program itself, which are no options of the experiment.
OWN = {
  'train': ('config', 'work_dir', 'dry_run', 'check', 'config_help'),
  'plan': (
    'config',
    'target',
    'device',
    'device_gb',
    'mfu',
    'json',
    'help',
    'h',
  ),
}
# Of these, options that take a value. The experiment's own know theirs.
VALUED = {'config', 'work_dir', 'target', 'device', 'device_gb', 'mfu'}
# Verbs that may import a recipe from the working directory, by its name. For the others
# what lies there, such as the folder of a script, is not looked into by Python.
IMPORTING = ('audit', 'why')
_USAGE = """\
usage: jaxagent VERB ...     ('jaxagent VERB --help' says more; --version)
"""
_EPILOG = """\
CONFIG is FILE.py[:VARIANT], or the name of a file in configs/; options follow:
  jaxagent train configs/stepwise_ppo.py --rl.updates 8 --work_dir workdir/short
'jaxagent recipes new NAME --dir DIR' writes a CONFIG of your own.
Each verb is also 'python -m jaxagent.VERB' (train: jaxagent.main).
"""
_CONFIG_HELP = """\
usage: jaxagent {verb} CONFIG [--KEY VALUE | --KEY=VALUE ...]

CONFIG      FILE.py[:VARIANT], or the name of a file in configs/{found}
--KEY       an option of the experiment, such as --rl.updates 8; a boolean
            without a value is True; a tuple is written as in Python, such as
            --rollout.stop "('#',)"
--work_dir DIR   where results go; the same command resumes what is there
--dry_run   print the plan and stop
--check     check config and files as a run does, and stop
--config_help    print every option with its default, and stop
"""


class Refused(ValueError):
  """A command line that names nothing to run; the message lists what there is."""


def command(argv: Sequence[str]) -> list[str]:
  """Returns the arguments of `python` that a command line stands for.

  argv: without the program's name; its first word is a verb. Raises Refused for a
  verb or a config that there is not.
  """
  verb, *rest = argv
  if verb not in VERBS:
    raise Refused(
      f'{verb!r} is no verb of jaxagent; choose from {", ".join(VERBS)}'
      f'{_nearest(verb, VERBS)}.'
    )
  if verb in OWN:
    rest = _experiment(verb, rest)
  return ['-m', f'jaxagent.{VERBS[verb][0]}', *rest]


def help_text() -> str:
  """Returns the help: one screen of 24 lines and 80 columns."""
  lines = (
    f'  {verb:14}{arguments:18}{text}\n'
    for verb, (_, arguments, text) in VERBS.items()
  )
  return _USAGE + '\n' + ''.join(lines) + '\n' + _EPILOG


def find_config(text: str) -> str:
  """Returns FILE.py[:VARIANT] of a config that is given by file or by name.

  A name is looked for in `configs` of the working directory, then among the bundled
  ones, as the tasks are. Raises Refused where neither has it.
  """
  name, colon, variant = text.partition(':')
  if os.path.isfile(f'{name}.py') and os.sep in name:
    return f'{name}.py{colon}{variant}'
  if name.endswith('.py') or os.sep in name:
    return text
  for folder in _config_folders():
    if name in _names(folder):
      return os.path.join(folder, f'{name}.py{colon}{variant}')
  found = _found()
  if not found:
    raise Refused(
      f'{name!r} is no file, and there is no config here or in the package; give '
      'FILE.py[:VARIANT], or write one: jaxagent recipes new NAME --dir DIR.'
    )
  raise Refused(
    f'{name!r} is no config; choose from {", ".join(found)}'
    f'{_nearest(name, found)}, or give FILE.py[:VARIANT].'
  )


def _experiment(verb: str, rest: Sequence[str]) -> list[str]:
  """Returns the flags of the module for CONFIG and its options."""
  first = rest[0] if rest else ''
  if first and not first.startswith('-'):
    rest = [f'--config={find_config(first)}', *rest[1:]]
  elif verb == 'train' and not {'config', 'config_help'} & {*map(_name, rest)}:
    found = _found()
    have = f': {", ".join(found)}, or FILE.py[:VARIANT]' if found else ''
    raise Refused(
      f'jaxagent {verb} takes a config before its options{have}; such as jaxagent {verb} '
      'configs/stepwise_ppo.py --rl.updates 8.'
    )
  return list(_long(verb, rest))


def _long(verb: str, arguments: Sequence[str]) -> Iterator[str]:
  """Yields each flag as --NAME=VALUE, with `config.` before the experiment's."""
  own = _own(verb)
  position = 0
  while position < len(arguments):
    argument = arguments[position]
    position += 1
    name, (_, given, value) = _name(argument), argument.partition('=')
    if not argument.startswith('-') or not name:
      yield argument
      continue
    if not (own(name) or name.startswith('config.')):
      name = f'config.{name}'
    if not given and position < len(arguments):
      if _is_value(arguments[position]):
        given, value = '=', arguments[position]
        position += 1
    if name in VALUED and not given:
      raise Refused(
        f'--{name} needs a value: --{name} VALUE or --{name}=VALUE.'
      )
    if name == 'config':
      value = find_config(value)
    yield f'--{name}{given}{value}'


def _name(argument: str) -> str:
  """A flag's name; absl takes one dash or two."""
  return argument.partition('=')[0].removeprefix('-').removeprefix('-')


def _own(verb: str) -> Callable[[str], bool]:
  """Returns what says of a flag's name whether it is the program's own."""
  names = {*OWN[verb]}
  if verb == 'train':
    from absl import app, flags, logging  # noqa: F401 - they define flags

    app.define_help_flags()
    names |= {*flags.FLAGS}
  return lambda name: name in names or name.removeprefix('no') in names


def _is_value(text: str) -> bool:
  """Whether a word is a value, negative numbers among them, rather than a flag."""
  if not text.startswith('-') or text == '-':
    return True
  try:
    float(text)
  except ValueError:
    return False
  return True


def _config_folders() -> list[str]:
  return ['configs', str(bundled.folder('configs'))]


def _names(folder: str) -> list[str]:
  """Names of a folder's configs: its files that have a function `get_config`."""
  if not os.path.isdir(folder):
    return []
  found = []
  for file in sorted(os.listdir(folder)):
    if not file.endswith('.py'):
      continue
    try:
      with open(os.path.join(folder, file), 'rb') as text:
        if b'def get_config' in text.read():
          found.append(file.removesuffix('.py'))
    except OSError:  # no file, or not to be read
      continue
  return found


def _found() -> list[str]:
  return sorted(
    {name for folder in _config_folders() for name in _names(folder)}
  )


def _nearest(word: str, choices: Iterable[str]) -> str:
  import difflib

  near = difflib.get_close_matches(word, list(choices), 1)
  return f'; the nearest is {near[0]}' if near else ''


def _answer(argv: Sequence[str]) -> str:
  """Returns what is printed in place of a program; '' where one is run."""
  if argv[0] in ('--help', '-h', '-help', 'help'):
    return help_text()
  if argv[0] in ('--version', '-version', 'version'):
    return f'jaxagent {jaxagent.__version__}\n'
  if argv[0] == 'train' and {'--help', '-help', '-h'} & {*argv[1:]}:
    found = _found()
    names = f':\n            {", ".join(found)}' if found else ''
    return _CONFIG_HELP.format(verb='train', found=names)
  return ''


def main(argv: Sequence[str] | None = None) -> int:
  """Becomes the program of a verb; returns 0 after help, 2 where it is refused."""
  argv = list(sys.argv[1:] if argv is None else argv)
  if not argv:
    print(help_text(), end='', file=sys.stderr)
    return 2
  if text := _answer(argv):
    return _print(text)
  try:
    made = command(argv)
  except Refused as error:
    print(f'error: {error}', file=sys.stderr)
    return 2
  if argv[0] in OWN:
    print(f'running: {shlex.join(["python", *made])}', file=sys.stderr)
  for stream in (sys.stdout, sys.stderr):
    if stream is not None:  # closed by who started it
      stream.flush()
  flags = [] if argv[0] in IMPORTING else ['-P']
  os.execv(sys.executable, [sys.executable, *flags, *made])


def _print(text: str) -> int:
  """Prints; returns 1 where the output is closed or full."""
  try:
    print(text, end='', flush=True)
  except OSError:
    # What is still buffered would fail again when the interpreter ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 1
  return 0


if __name__ == '__main__':
  sys.exit(main())
