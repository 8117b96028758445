"""Finds the changes a job made to its workspace, after its processes are dead.

By descriptors of folders, without a link, with bounds that no workspace can
stretch. Files are read while they are sent, so that none is held in memory:
in a container the supervisor's is the job's. Standard library only.
"""

from __future__ import annotations

import collections
import dataclasses
import errno
import hashlib
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

MB = 1 << 20
MOST_FILES, MOST_LINES = 256, 16
MOST_ENTRIES, MOST_DEPTH = 10_000, 16
MOST_PATH = 512  # characters: what is noted has to fit beside the job
MOST_S = 2.0  # of looking; the launcher's guard waits for it
MB_PER_S = 64.0  # slower than any machine brings them out
MOST_SHOWN = 160  # characters of a path in a line
_PART = 1 << 18
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_KINDS = {
  stat.S_IFLNK: 'a link',
  stat.S_IFIFO: 'a pipe',
  stat.S_IFSOCK: 'a socket',
  stat.S_IFCHR: 'a device',
  stat.S_IFBLK: 'a device',
}
CACHE = '__pycache__'


def most_s(changed_mb: float) -> float:
  """Seconds that finding and sending them may take; 0 without them."""
  return MOST_S + changed_mb / MB_PER_S if changed_mb > 0 else 0.0


def digests(
  paths: Sequence[str], blobs: Sequence[bytes]
) -> dict[str, tuple[int, bytes]]:
  """{path: (bytes, digest)} of what is laid out, to be compared later."""
  return {
    path: (len(blob), hashlib.blake2b(blob).digest())
    for path, blob in zip(paths, blobs)
  }


class File:
  """A regular file, open, as `_wire` sends it: in parts. len(): its bytes."""

  def __init__(self, fd: int, size: int):
    self.fd, self.size = fd, size

  def __len__(self) -> int:
    return self.size

  def parts(self) -> Iterator[bytes]:
    """Yields the content once; closes it. OSError if it became shorter."""
    at = 0
    while at < self.size:
      part = os.pread(self.fd, min(_PART, self.size - at), at)
      if not part:
        raise OSError(errno.EIO, 'a file of a dead job has become shorter')
      at += len(part)
      yield part
    os.close(self.fd)


@dataclasses.dataclass
class Found:
  """files: path -> open file. removed, left_out: as in `types.Execution`."""

  files: dict[str, File] = dataclasses.field(default_factory=dict)
  removed: list[str] = dataclasses.field(default_factory=list)
  left_out: list[str] = dataclasses.field(default_factory=list)


def find(
  workspace: int,
  laid_out: Mapping[str, tuple[int, bytes]],
  header: Mapping[str, Any],
) -> Found:
  """Finds what differs from `laid_out` (of `digests`). Raises no OSError.

  workspace: descriptor of the folder, from before the job ran. header: the
  job's; `changed_mb` is the cap, `collect` and `mounts` are passed over.
  """
  search = _Search(workspace, laid_out, header)
  search.compare()
  search.walk()
  return search.choose(header['changed_mb'])


def _folders(paths: Iterable[str]) -> set[str]:
  """All that these files lie in; '' is the workspace."""
  found = {''}
  for path in paths:
    while path := path.rpartition('/')[0]:
      found.add(path)
  return found


class _Lines:
  """The first lines, and how many there were: a job can cause a million."""

  def __init__(self):
    self.kept: list[str] = []
    self.total = 0

  def add(self, path: str, why: str) -> None:
    self.total += 1
    if len(self.kept) < MOST_LINES:
      self.kept.append(f'{_shown(path)}: {why}')


class _Search:
  def __init__(
    self,
    workspace: int,
    laid_out: Mapping[str, tuple[int, bytes]],
    header: Mapping[str, Any],
  ):
    self.workspace, self.laid_out = workspace, laid_out
    self.collected, self.mounts = set(header['collect']), header['mounts']
    self.folders = set(header['folders'])
    self.device = os.fstat(workspace).st_dev
    self.until = time.monotonic() + MOST_S
    self.sizes: dict[str, int] = {}  # of what is new or differs
    self.removed: list[str] = []
    self.unfinished, self.beyond, self.others = _Lines(), _Lines(), _Lines()
    self.given, self.empty = _folders(laid_out), _Lines()  # folders

  def compare(self) -> None:
    """Looks at what was laid out: by its name, wherever a walk would end."""
    for number, path in enumerate(self.laid_out):
      if time.monotonic() > self.until:
        left = len(self.laid_out) - number
        self.unfinished.add(path, f'not compared in {MOST_S:g} s, {left} such')
        return
      try:
        self._compare(path)
      except OSError as error:
        if error.errno in _GONE:
          self.removed.append(path)
        else:
          self.others.add(path, _reason(error))

  def _compare(self, path: str) -> None:
    folder, name = _parent(self.workspace, path)
    try:
      status = os.stat(name, dir_fd=folder, follow_symlinks=False)
      if not stat.S_ISREG(status.st_mode):
        self.removed.append(path)
      elif path in self.collected or CACHE in path.split('/'):
        pass
      elif status.st_nlink != 1:
        self.others.add(path, 'has hard links')
      else:
        size, digest = self.laid_out[path]
        if (
          status.st_size != size
          or _digest(os.open(name, _FILE, dir_fd=folder), size) != digest
        ):
          self.sizes[path] = status.st_size
    finally:
      os.close(folder)

  def walk(self) -> None:
    """Looks for what is new, folders near the top first."""
    folders, looked = collections.deque(['']), 0
    while folders:
      path, before = folders.popleft(), looked
      try:
        folder = _open_folder(self.workspace, path)
      except OSError as error:
        self.others.add(path or '.', _reason(error))
        continue
      try:
        with os.scandir(folder) as entries:
          for entry in entries:
            looked += 1
            late = time.monotonic() > self.until
            if late or looked > MOST_ENTRIES:
              limit = f'{MOST_S:g} s' if late else f'{MOST_ENTRIES} entries'
              self.unfinished.add(path or '.', f'not all seen, {limit} at most')
              return
            inside = f'{path}/{entry.name}' if path else entry.name
            if self._is_open_to_us(inside, entry):
              folders.append(inside)
        if looked == before and path not in self.given:
          self.empty.add(path, 'is an empty folder')
      except OSError as error:
        self.others.add(path or '.', _reason(error))
      finally:
        os.close(folder)

  def _is_open_to_us(self, path: str, entry: os.DirEntry) -> bool:
    """Whether it is a folder to walk into; files are noted."""
    if path in self.mounts or path in self.folders:
      return False
    if len(path) > MOST_PATH:
      self.others.add(path, f'is longer than {MOST_PATH} characters')
      return False
    status = entry.stat(follow_symlinks=False)
    if stat.S_ISDIR(status.st_mode):
      # Of another device: a mount, in a folder that the job has renamed.
      if entry.name == CACHE or status.st_dev != self.device:
        return False
      if path.count('/') >= MOST_DEPTH:
        self.others.add(path, f'is below {MOST_DEPTH} folders')
        return False
      if not _is_utf8(entry.name):
        self.others.add(path, 'its name is not UTF-8')
        return False
      return True
    kind = _KINDS.get(stat.S_IFMT(status.st_mode))
    if path in self.collected or (not kind and path in self.laid_out):
      pass
    elif kind:
      self.others.add(path, f'is {kind}')
    elif status.st_nlink != 1:
      self.others.add(path, 'has hard links')
    elif not _is_utf8(entry.name):
      self.others.add(path, 'its name is not UTF-8')
    else:
      self.sizes[path] = status.st_size
    return False

  def choose(self, changed_mb: float) -> Found:
    """Opens the smallest of what was found, up to the caps."""
    found, left = Found(removed=self.removed), int(changed_mb * MB)
    for path, size in sorted(self.sizes.items(), key=lambda i: (i[1], i[0])):
      if size > left:
        self.beyond.add(path, f'{size} bytes, beyond {changed_mb:g} MB')
      elif len(found.files) == MOST_FILES:
        self.beyond.add(path, f'{size} bytes, beyond {MOST_FILES} files')
      else:
        try:
          found.files[path] = _open_file(self.workspace, path, size)
          left -= size
        except OSError as error:
          self.others.add(path, _reason(error))
    kinds = (self.unfinished, self.beyond, self.others, self.empty)
    lines = [line for kind in kinds for line in kind.kept][:MOST_LINES]
    more = sum(kind.total for kind in kinds) - len(lines)
    found.left_out = lines + ([f'and {more} more'] if more else [])
    return found


def _open_folder(workspace: int, path: str) -> int:
  """A descriptor of a folder of the workspace; '' is itself.

  Raises OSError, where a mount is on the way as if there was nothing.
  """
  folder = os.dup(workspace)
  device = os.fstat(folder).st_dev
  for part in path.split('/') if path else ():
    try:
      below = os.open(part, _FOLDER, dir_fd=folder)
    finally:
      os.close(folder)
    folder = below
    if os.fstat(folder).st_dev != device:
      os.close(folder)
      raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
  return folder


def _parent(workspace: int, path: str) -> tuple[int, str]:
  """(descriptor of the folder that it is in, its name). Raises OSError."""
  folder, _, name = path.rpartition('/')
  return _open_folder(workspace, folder), name


def _open_file(workspace: int, path: str, size: int) -> File:
  """Raises OSError where it cannot be read, or is not what was looked at."""
  folder, name = _parent(workspace, path)
  try:
    fd = os.open(name, _FILE, dir_fd=folder)
  finally:
    os.close(folder)
  status = os.fstat(fd)
  if not stat.S_ISREG(status.st_mode) or status.st_size != size:
    os.close(fd)
    raise OSError(errno.EBUSY, 'changed meanwhile')
  return File(fd, size)


def _reason(error: OSError) -> str:
  return os.strerror(error.errno) if error.errno else str(error)


def _digest(fd: int, size: int) -> bytes:
  """Hashes a file's first `size` bytes. Closes it."""
  made = hashlib.blake2b()
  with os.fdopen(fd, 'rb', buffering=0) as f:
    while size > 0 and (part := f.read(min(_PART, size))):
      size -= len(part)
      made.update(part)
  return made.digest()


def _is_utf8(name: str) -> bool:
  try:
    name.encode()
    return True
  except UnicodeEncodeError:  # os.scandir has escaped its bytes
    return False


def _shown(path: str) -> str:
  """A path in one short line, whatever bytes are in it."""
  text = ''.join(c if c.isprintable() else ascii(c)[1:-1] for c in path)
  return text if len(text) <= MOST_SHOWN else f'{text[:MOST_SHOWN]}...'
