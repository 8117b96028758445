"""An image for the `docker` backend, made of this interpreter: no registry.

The interpreter, its standard library, the distributions that jobs import (with
what they require) and the shared libraries of all of these, at the places where
the local backend shows them.
"""

from __future__ import annotations

import importlib.metadata
import io
import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterable, Iterator

from jaxagent.sandbox import _job, _root, docker_backend, errors

PACKAGES = ('numpy', 'scipy', 'pandas', 'scikit-learn')
TOOLS = (
  'sh',
  'env',
  'cat',
  'ls',
  'sleep',
  'true',
  'false',
  'echo',
  'mkdir',
  'cp',
  'mv',
  'rm',
  'head',
  'tail',
  'wc',
)
_NOT_IN_LIBRARY = {
  'tests',
  'test',
  'idlelib',
  'ensurepip',
  'site-packages',
  'dist-packages',
}
_MERGED = ('bin', 'sbin', 'lib', 'lib32', 'lib64')
_LIBRARY = re.compile(r'(?:=> )?(/\S+) \(0x')


def distributions(
  names: Iterable[str],
) -> dict[str, importlib.metadata.Distribution]:
  """{normal name: distribution} of `names` and all that they require here.

  Raises ValueError naming one that is not installed.
  """
  found: dict[str, importlib.metadata.Distribution] = {}
  queue = [(name, True) for name in names]
  while queue:
    name, asked = queue.pop()
    key = re.sub(r'[-_.]+', '-', name).lower()
    if key in found:
      continue
    try:
      found[key] = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
      if asked:
        raise ValueError(
          f'package {name!r} is not installed here; install it or leave it '
          'out of --packages.'
        ) from None
      continue  # for another platform or an extra
    for line in found[key].requires or ():
      if 'extra ==' not in line:
        queue.append((re.split(r'[^A-Za-z0-9_.-]', line, maxsplit=1)[0], False))
  return found


def _package_files(names: Iterable[str]) -> Iterator[pathlib.Path]:
  for distribution in distributions(names).values():
    for file in distribution.files or ():
      path = pathlib.Path(os.path.abspath(str(distribution.locate_file(file))))
      if 'tests' not in path.parts and path.is_file():
        yield path
        yield from path.parent.glob(f'__pycache__/{path.stem}.*.pyc')


def _tree(root: pathlib.Path) -> Iterator[pathlib.Path]:
  """Files and links of a standard library."""
  for folder, names, files in os.walk(root):
    names[:] = [n for n in names if n not in _NOT_IN_LIBRARY]
    yield from (
      pathlib.Path(folder) / name for name in files if not name.endswith('.a')
    )


def _libraries(paths: Iterable[str]) -> set[str]:
  """Shared libraries that these files load, by ldd."""
  found: set[str] = set()
  chosen = sorted(paths)
  for start in range(0, len(chosen), 200):
    done = subprocess.run(
      ['ldd', *chosen[start : start + 200]],
      capture_output=True,
      text=True,
      check=False,
    )
    found.update(_LIBRARY.findall(done.stdout))
  return found


def contents(packages: Iterable[str] = PACKAGES) -> dict[str, str]:
  """{path in the image: path here} of every file, links included."""
  found = _root.interpreter()
  binds = sorted(found.binds, key=lambda b: -len(b[0]))

  def inside(path: str) -> str:
    for source, target in binds:
      if path == source or path.startswith(source + '/'):
        return target + path[len(source) :]
    return path

  real = os.path.realpath(sys.executable)
  files = {found.venv or found.python: real}
  for name in ('stdlib', 'platstdlib'):
    root = pathlib.Path(sysconfig.get_path(name)).resolve()
    files.update((inside(str(p)), str(p)) for p in _tree(root))
  venv = os.path.realpath(sys.prefix)
  for path in _package_files(packages):
    name = str(path).replace(sys.prefix, venv, 1)
    if '-packages/' in name:  # not the scripts in bin/
      files[inside(name)] = str(path)
  for name in TOOLS:
    for folder in ('/usr/bin', '/bin'):
      if os.path.exists(f'{folder}/{name}'):
        files[f'/usr/bin/{name}'] = os.path.realpath(f'{folder}/{name}')
        break
  loaded = [
    p
    for p in files.values()
    if '.so' in os.path.basename(p) or os.access(p, os.X_OK)
  ]
  for library in map(os.path.normpath, _libraries(loaded)):
    files.setdefault(inside(library), os.path.realpath(library))
  return files


def _merged(path: str) -> str:
  """Returns `path` on a system with /bin and /lib linked to /usr."""
  return '/usr' + path if path.split('/')[1] in _MERGED else path


class _Archive:
  """A tar whose entries have distinct names, for anyone to read."""

  def __init__(self, archive: tarfile.TarFile):
    self.archive = archive
    self.names: set[str] = set()

  def _add(self, info: tarfile.TarInfo, content=None) -> None:
    info.name = _merged('/' + info.name.lstrip('/')).lstrip('/')
    if info.name not in self.names:
      self.names.add(info.name)
      self.archive.addfile(info, content)

  def text(self, name: str, content: str) -> None:
    info = tarfile.TarInfo(name)
    data = content.encode()
    info.size, info.mode = len(data), 0o644
    self._add(info, io.BytesIO(data))

  def folder(self, name: str, mode: int = 0o755) -> None:
    info = tarfile.TarInfo(name)
    info.type, info.mode = tarfile.DIRTYPE, mode
    self._add(info)

  def link(self, name: str, target: str) -> None:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, target
    self._add(info)

  def copy(self, name: str, source: str) -> None:
    if os.path.islink(source):
      self.link(name, os.readlink(source))
    elif os.path.isfile(source):
      info = tarfile.TarInfo(name)
      status = os.stat(source)
      info.size, info.mtime = status.st_size, int(status.st_mtime)
      info.mode = 0o755 if status.st_mode & 0o100 else 0o644
      with open(source, 'rb') as f:
        self._add(info, f)


def write(path: str, packages: Iterable[str] = PACKAGES) -> int:
  """Writes the image's file system as a tar; returns its bytes."""
  found = _root.interpreter()
  user = _job.INSIDE_UID
  with tarfile.open(path, 'w') as tar:
    archive = _Archive(tar)
    for folder in ('usr', 'etc', 'opt', 'proc', 'dev', 'sys'):
      archive.folder(folder)
    for folder in _MERGED:
      link = tarfile.TarInfo(folder)
      link.type, link.linkname = tarfile.SYMTYPE, f'usr/{folder}'
      tar.addfile(link)
    for folder in ('box', 'tmp'):
      archive.folder(folder, 0o1777)
    archive.text('etc/passwd', f'sandbox:x:{user}:{user}::/box/tmp:/bin/sh\n')
    archive.text('etc/group', f'sandbox:x:{user}:\n')
    if found.venv:
      archive.link(found.python, found.venv)
      archive.text(
        f'{_root.VENV}/pyvenv.cfg',
        f'home = {os.path.dirname(found.venv)}\n'
        'include-system-site-packages = false\n',
      )
    if os.path.basename(found.python) != 'python3':
      archive.link(
        f'{os.path.dirname(found.python)}/python3',
        os.path.basename(found.python),
      )
    for target, source in sorted(contents(packages).items()):
      archive.copy(target, source)
  return os.path.getsize(path)


def make(
  tag: str = docker_backend.IMAGE, packages: Iterable[str] = PACKAGES
) -> int:
  """Imports the image into the daemon as `tag`; returns its bytes.

  Raises BackendError where no daemon answers, ValueError on an unknown package.
  """
  import docker.errors

  found = _root.interpreter()
  changes = [f'ENV PATH={os.path.dirname(found.python)}:/usr/bin:/bin']
  if found.library_path:
    changes.append(f'ENV LD_LIBRARY_PATH={found.library_path}')
  api = docker_backend.connect()
  repository, _, version = tag.partition(':')
  with tempfile.NamedTemporaryFile(suffix='.tar') as file:
    size = write(file.name, packages)
    try:
      api.import_image_from_file(
        file.name,
        repository=repository,
        tag=version or 'latest',
        changes=changes,
      )
    except docker.errors.DockerException as error:
      raise errors.BackendError(f'docker: image {tag!r}: {error}') from None
    finally:
      api.close()
  return size
