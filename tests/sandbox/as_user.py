"""Runs a command as an unprivileged user, or as a root whose Python every
user id can reach.

In a private mount namespace the interpreter's prefix and this repository are
bound under world-readable parents; nothing on the machine changes.

  python -m tests.sandbox.as_user {nobody|root} [--also FOLDER] COMMAND...

FOLDER is kept in sight, too.
"""

from __future__ import annotations

import os
import sys

from jaxagent.sandbox import _linux


def _expose(paths: list[str]) -> None:
  """Replaces unreadable top-level parents of `paths` by open ones."""
  _linux.unshare(_linux.NEWNS)
  _linux.mount('', '/', '', _linux.MS_PRIVATE | _linux.MS_REC)
  held = {p: os.open(p, os.O_PATH) for p in paths}
  for top in {'/' + p.split('/')[1] for p in paths}:
    _linux.mount('open', top, 'tmpfs', _linux.MS_NOSUID, 'mode=0755')
  for path, fd in held.items():
    os.makedirs(path, exist_ok=True)
    _linux.mount(
      f'/proc/self/fd/{fd}', path, '', _linux.MS_BIND | _linux.MS_REC
    )
    os.close(fd)


def main(who: str, command: list[str]) -> None:
  repo = os.getcwd()
  prefixes = {os.path.realpath(sys.base_prefix), repo}
  if command[0] == '--also':
    prefixes.add(command[1])
    command = command[2:]
  if not os.path.realpath(sys.prefix).startswith(repo + '/'):
    prefixes.add(os.path.realpath(sys.prefix))
  _expose([p for p in prefixes if not p.startswith('/usr')])
  os.chdir(repo)
  if who == 'nobody':
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
  env = {
    'PATH': '/usr/bin:/bin',
    'HOME': '/nonexistent',
    'PYTHONDONTWRITEBYTECODE': '1',
    'LANG': 'C.UTF-8',
    'PYTHONPATH': repo,
    **{k: v for k, v in os.environ.items() if k.startswith('JAXAGENT_')},
  }
  os.execve(command[0], command, env)


if __name__ == '__main__':
  main(sys.argv[1], sys.argv[2:])
