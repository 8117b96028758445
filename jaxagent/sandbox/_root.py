"""The root file system that jobs see: the same wherever the project lies.

Inside, the interpreter stands at /opt/python (or in /usr, where it came from
there) and a virtual environment's packages at /opt/venv, so that neither what
a job can reach nor what it prints depends on the host's paths. Standard
library only: this runs in the launcher.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
import sysconfig
from collections.abc import Sequence

from jaxagent.sandbox import _job, _linux

PYTHON, VENV = '/opt/python', '/opt/venv'
# Source trees: no job needs them, and a project may lie there.
_ALWAYS_HIDDEN = ('/usr/src', '/usr/local/src')
_SYSTEM = (
  '/usr',
  '/bin',
  '/sbin',
  '/lib',
  '/lib32',
  '/lib64',
  '/etc/ld.so.cache',
  '/etc/alternatives',
  '/etc/localtime',
)
_DEVICES = (
  '/dev/null',
  '/dev/zero',
  '/dev/full',
  '/dev/random',
  '/dev/urandom',
)
_LINKS = (
  ('tmp', 'box/tmp'),
  ('dev/shm', '../box/shm'),
  ('workspace', 'box/workspace'),
  ('dev/fd', '/proc/self/fd'),
  ('dev/stdin', '/proc/self/fd/0'),
  ('dev/stdout', '/proc/self/fd/1'),
  ('dev/stderr', '/proc/self/fd/2'),
)
# Names the first file that the interpreter or an import would fail to read.
_READABLE = """
import os, site, sys
for folder in (*sys.path, *site.getsitepackages()):
  try:
    entries = list(os.scandir(folder))
  except (FileNotFoundError, NotADirectoryError):
    continue
  except PermissionError:
    sys.exit(folder)
  for entry in entries:
    try:
      needed = os.R_OK | (entry.is_dir() and os.X_OK)
      if os.path.exists(entry.path) and not os.access(entry.path, needed):
        sys.exit(entry.path)
    except PermissionError:
      sys.exit(entry.path)
"""


@dataclasses.dataclass(frozen=True)
class Interpreter:
  """Paths of this interpreter and its packages, outside and inside.

  python: path inside. binds: (outside, inside). venv: the base interpreter's
  path inside where a virtual environment is to be made of it, else ''.
  library_path: '' or where the loader must look for a shared libpython.
  """

  python: str
  binds: tuple[tuple[str, str], ...]
  venv: str
  library_path: str


def _below(path: str, tree: str) -> bool:
  return path == tree or path.startswith(tree.rstrip('/') + '/')


def interpreter() -> Interpreter:
  """Maps sys.executable, its prefix and its packages to fixed places."""
  base = os.path.realpath(sys.base_prefix)
  real = os.path.realpath(sys.executable)
  binds: list[tuple[str, str]] = []
  python, library_path = real, ''
  if not (_below(base, '/usr') and _below(real, '/usr')):
    python = f'{PYTHON}/bin/{os.path.basename(real)}'
    binds.append((real, python))
    for name in ('lib', 'lib64'):
      if os.path.isdir(f'{base}/{name}'):
        binds.append((f'{base}/{name}', f'{PYTHON}/{name}'))
    if sysconfig.get_config_var('Py_ENABLE_SHARED'):
      library_path = f'{PYTHON}/lib'
  if sys.prefix == sys.base_prefix:
    return Interpreter(python, tuple(binds), '', library_path)
  venv = os.path.realpath(sys.prefix)
  binds.append((f'{venv}/lib', f'{VENV}/lib'))
  return Interpreter(f'{VENV}/bin/python', tuple(binds), python, library_path)


def in_place() -> Interpreter:
  """This interpreter where there is no root of its own (T1)."""
  return Interpreter(os.path.abspath(sys.executable), (), '', '')


def _without(path: str, hidden: Sequence[str]) -> list[str]:
  """`path`, or its parts where a hidden folder lies below it."""
  if os.path.islink(path) or not any(_below(h, path) for h in hidden):
    return [path]
  parts = []
  for name in sorted(os.listdir(path)):
    if f'{path}/{name}' not in hidden:
      parts += _without(f'{path}/{name}', hidden)
  return parts


def readable_in_place(hidden: Sequence[str]) -> list[str]:
  """Returns the paths that a job without a root of its own (T1) may read."""
  paths = [*_SYSTEM, sys.executable, os.path.realpath(sys.executable)]
  for prefix in map(os.path.realpath, (sys.prefix, sys.base_prefix)):
    if prefix not in ('/usr', '/usr/local'):
      paths += [f'{prefix}/{n}' for n in ('lib', 'lib64', 'pyvenv.cfg')]
  keep = [os.path.realpath(h) for h in (*hidden, *_ALWAYS_HIDDEN)]
  return [
    part
    for path in dict.fromkeys(paths)
    if os.path.lexists(path)
    for part in _without(path, keep)
  ]


def build(
  root: str, devices: Sequence[str], hidden: Sequence[str]
) -> Interpreter:
  """Mounts the template at `root`, read-only; every job gets a copy.

  Args:
    root: an empty folder of the host.
    devices: device files beside the harmless ones, for GPU jobs.
    hidden: folders of the host that no job may see, even where they lie in
      a tree that is bound (a clone below /usr/src, say).

  Raises: OSError where a mount is refused.
  """
  found = interpreter()
  _linux.mount('', '/', '', _linux.MS_PRIVATE | _linux.MS_REC)
  _linux.mount('root', root, 'tmpfs', _linux.MS_NOSUID, 'size=4m,mode=0755')
  for name in ('proc', 'dev', 'etc', 'box', 'host', 'opt', 'sandbox_runner'):
    os.mkdir(f'{root}/{name}', 0o755)
  here = os.path.dirname(os.path.abspath(__file__))
  runner = shutil.copyfile(
    here + '/_runner.py', root + '/sandbox_runner/_runner.py'
  )
  os.chmod(runner, 0o644)
  _accounts(root)
  system = [(p, p) for p in _SYSTEM if os.path.lexists(p)]
  for source, target in (*system, *found.binds):
    _place(source, root + target)
  if found.venv:
    _virtual_environment(root, found)
  for path in (*_DEVICES, *devices):
    _place(path, root + path, device=True)
  for link, target in _LINKS:
    os.symlink(target, f'{root}/{link}')
  for folder in (*hidden, *_ALWAYS_HIDDEN):
    _cover(root, os.path.realpath(folder), (*system, *found.binds))
  _linux.mount(
    '',
    root,
    '',
    _linux.MS_REMOUNT | _linux.MS_BIND | _linux.MS_RDONLY | _linux.MS_NOSUID,
  )
  return found


def _accounts(root: str) -> None:
  user = _job.INSIDE_UID
  for name, line in (
    ('passwd', f'sandbox:x:{user}:{user}::/box/tmp:/bin/sh\n'),
    ('group', f'sandbox:x:{user}:\n'),
    ('hosts', '127.0.0.1 localhost sandbox\n'),
  ):
    with open(f'{root}/etc/{name}', 'w') as f:
      f.write(line)


def _place(source: str, target: str, *, device: bool = False) -> None:
  """Binds `source` at `target`; a link stays a link."""
  os.makedirs(os.path.dirname(target), exist_ok=True)
  if os.path.islink(source):
    os.symlink(os.readlink(source), target)
    return
  if os.path.isdir(source):
    os.makedirs(target, exist_ok=True)
  elif not os.path.exists(target):
    os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
  _linux.bind_read_only(source, target, device=device)


def _virtual_environment(root: str, found: Interpreter) -> None:
  """The part of a virtual environment that names the base interpreter."""
  system = 'false'
  try:
    with open(f'{sys.prefix}/pyvenv.cfg') as f:
      for line in f:
        key, _, value = line.partition('=')
        if key.strip() == 'include-system-site-packages':
          system = value.strip()
  except OSError:
    pass
  os.mkdir(f'{root}{VENV}/bin', 0o755)
  os.symlink(found.venv, f'{root}{found.python}')
  with open(f'{root}{VENV}/pyvenv.cfg', 'w') as f:
    f.write(
      f'home = {os.path.dirname(found.venv)}\n'
      f'include-system-site-packages = {system}\n'
    )


def _cover(root: str, folder: str, binds: Sequence[tuple[str, str]]) -> None:
  """An empty read-only folder over what the binds would show of `folder`."""
  for source, target in binds:
    if os.path.islink(source) or not _below(folder, source):
      continue
    inside = f'{root}{target}{folder[len(source) :]}'
    if os.path.isdir(inside):
      flags = _linux.MS_RDONLY | _linux.MS_NOSUID | _linux.MS_NODEV
      _linux.mount('hidden', inside, 'tmpfs', flags, 'size=4k,mode=0755')


def trial(root: str, found: Interpreter, uid: int | None) -> str:
  """'' where user `uid` can start the interpreter inside and read its
  packages, else what it could not do."""
  out_r, out_w = os.pipe2(os.O_CLOEXEC)
  pid = os.fork()
  if pid == 0:
    try:
      os.chroot(root)
      os.chdir('/')
      os.dup2(out_w, 2)
      if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
      command = [found.python, '-I', '-B', '-c', _READABLE]
      os.execve(found.python, command, environment(found))
    except OSError as error:
      os.write(out_w, str(error).encode())
    finally:
      os._exit(1)
  os.close(out_w)
  with open(out_r, 'rb') as f:
    text = f.read(4000).decode('utf-8', 'replace').strip()
  failed = os.waitpid(pid, 0)[1]
  return (text.splitlines() or ['it died'])[-1] if failed else ''


def environment(found: Interpreter) -> dict[str, str]:
  """Returns the environment that the dynamic loader needs inside."""
  return {'LD_LIBRARY_PATH': found.library_path} if found.library_path else {}


def enter(root: str) -> None:
  """Makes the template the root; the host stays below /host for now."""
  os.chdir(root)
  _linux.syscall('pivot_root', b'.', b'host')
  os.chdir('/')
  _linux.mount('/host/proc', '/proc', '', _linux.MS_BIND | _linux.MS_REC)
