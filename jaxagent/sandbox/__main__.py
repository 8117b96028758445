"""python -m jaxagent.sandbox {run SCRIPT ... | self_check | image}"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys

from jaxagent.sandbox import (
  cpu_levels,
  docker_backend,
  errors,
  guard,
  image,
  pool,
  selfcheck,
)
from jaxagent.types import Job, Limits


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(prog='python -m jaxagent.sandbox')
  commands = parser.add_subparsers(dest='command', required=True)
  run = commands.add_parser('run', help='run one script, contained')
  run.add_argument('script')
  run.add_argument('--dir', help='folder copied into the workspace')
  run.add_argument('--timeout', type=float, default=Limits.timeout_s)
  for name in ('memory_mb', 'pids', 'disk_mb', 'output_kb'):
    run.add_argument(f'--{name}', type=int, default=getattr(Limits, name))
  run.add_argument('--collect', action='append', default=[])
  run.add_argument('--zygote', action='store_true')
  run.add_argument('--json', action='store_true')
  check = commands.add_parser('self_check', help='attack this machine')
  check.add_argument('--json', action='store_true')
  check.add_argument(
    '--unguarded',
    action='store_true',
    help='without a pid namespace and limits around it all',
  )
  make = commands.add_parser(
    'image', help='import an image of this interpreter into Docker'
  )
  make.add_argument('--tag', default=docker_backend.IMAGE)
  make.add_argument('--packages', nargs='+', default=list(image.PACKAGES))
  for command in (run, check):
    command.add_argument('--backend', default='local', choices=pool.BACKENDS)
    command.add_argument('--image', help='of the docker backend')
    command.add_argument('--address', help='of a cluster, for the ray backend')
    command.add_argument('--min_tier', default='T2')
    command.add_argument(
      '--cpu_level',
      default=cpu_levels.DEFAULT,
      choices=cpu_levels.LEVELS,
      help='vector units that jobs use',
    )
    command.add_argument(
      '--disable',
      action='append',
      default=[],
      help='a primitive to do without (local backend)',
    )
  return parser


def workspace(folder: pathlib.Path) -> dict[str, bytes]:
  """Regular files below `folder`; a link that leads out is refused."""
  root = folder.resolve()
  if not root.is_dir():
    raise ValueError(f'--dir {str(folder)!r} is not a directory.')
  files = {}
  for path in sorted(root.rglob('*')):
    if path.is_symlink() and not path.resolve().is_relative_to(root):
      raise ValueError(
        f'--dir: {str(path)!r} links out of the workspace; copy it in.'
      )
    if path.is_file():
      files[str(path.relative_to(root))] = path.read_bytes()
  return files


def _job(flags: argparse.Namespace) -> Job:
  files = workspace(pathlib.Path(flags.dir)) if flags.dir else {}
  path = pathlib.Path(flags.script)
  name = flags.script
  if name not in files:
    if not path.is_file():
      raise ValueError(f'script {flags.script!r} is not a file.')
    name = path.name
    files[name] = path.read_bytes()
  try:
    files[name].decode('utf-8')
  except UnicodeDecodeError as error:
    raise ValueError(
      f'script {flags.script!r} is not UTF-8: {error}.'
    ) from None
  limits = Limits(
    flags.timeout, flags.memory_mb, flags.pids, flags.disk_mb, flags.output_kb
  )
  return Job(
    pool.new_id('cli'),
    name,
    files=files,
    limits=limits,
    collect=tuple(flags.collect),
    zygote=flags.zygote,
  )


def _options(flags: argparse.Namespace) -> dict:
  wanted = {
    'disable': ('local', 'ray'),
    'image': ('docker',),
    'address': ('ray',),
  }
  options = {'cpu_level': flags.cpu_level}
  for name, backends in wanted.items():
    if value := getattr(flags, name):
      if flags.backend not in backends:
        raise ValueError(
          f'--{name} {value!r} is not for --backend {flags.backend}; it is '
          f'for {" and ".join(backends)}.'
        )
      options[name] = value
  return options


def _image(flags: argparse.Namespace) -> int:
  size = image.make(flags.tag, flags.packages)
  print(f'image {flags.tag}: {size / 2**20:.0f} MiB')
  return 0


def _run(flags: argparse.Namespace) -> int:
  result = pool.run_once(
    _job(flags),
    backend=flags.backend,
    min_tier=flags.min_tier,
    **_options(flags),
  )
  if flags.json:
    print(json.dumps(result.to_json()))
  else:
    print(result.output, end='')
    print(
      f'[{result.outcome.value} at {result.tier} in {result.exec_s:.3f} s]'
      f' {result.message}',
      file=sys.stderr,
    )
  return 1 if result.outcome.is_infrastructure else 0


def _self_check(flags: argparse.Namespace) -> int:
  with (
    pool.SandboxPool(
      2, backend=flags.backend, min_tier=flags.min_tier, **_options(flags)
    ) as sandbox,
    selfcheck.bait() as argv,
  ):
    rows = selfcheck.run(sandbox, argv)
    tier = sandbox.tier
  if flags.json:
    print(
      json.dumps(
        {
          'tier': tier,
          'cases': [
            {
              'group': c.group,
              'name': c.name,
              'contained': not bad,
              'detail': bad,
              'exec_s': seconds,
            }
            for c, bad, seconds in rows
          ],
        }
      )
    )
  else:
    print(selfcheck.table(tier, rows))
  return 1 if any(bad for _, bad, _ in rows) else 0


def main(argv: list[str] | None = None) -> int:
  flags = _parser().parse_args(argv)
  try:
    if flags.command == 'self_check' and not flags.unguarded:
      given = sys.argv[1:] if argv is None else argv
      return guard.run(
        [sys.executable, '-m', 'jaxagent.sandbox', *given, '--unguarded']
      )
    commands = {'run': _run, 'self_check': _self_check, 'image': _image}
    return commands[flags.command](flags)
  except (ValueError, OSError, errors.TierError, errors.BackendError) as error:
    print(f'jaxagent.sandbox: {error}', file=sys.stderr)
    return 2


if __name__ == '__main__':
  sys.exit(main())
