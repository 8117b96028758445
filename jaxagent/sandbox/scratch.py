"""Scratch folders, and what a killed owner left of them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import socket
import tempfile

from jaxagent.sandbox import _cgroup, _remove

PREFIX = 'jaxagent-'
_GROUP = re.compile(r'jaxagent-\d+-[0-9a-f]{8}\Z')


def _boot_id() -> str:
  """Tells machines apart that share a file system, and starts of one."""
  with contextlib.suppress(OSError):
    with open('/proc/sys/kernel/random/boot_id') as f:
      return f.read().strip()
  return socket.gethostname()


class Folder:
  """A temporary folder in `base`, locked for as long as its owner's process
  lives.

  Its file `owner` names the machine and then the cgroups made meanwhile, so
  that `sweep` can remove what a killed owner could not.
  """

  def __init__(self, base: str = ''):
    self.path = tempfile.mkdtemp(prefix=PREFIX, dir=base or None)
    os.chmod(self.path, 0o711)
    new = os.path.join(self.path, 'owner.new')
    self._fd = os.open(new, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(self._fd, fcntl.LOCK_EX)
    self.write(_boot_id())
    # Under its final name it is locked from the first moment.
    os.rename(new, os.path.join(self.path, 'owner'))

  def write(self, line: str) -> None:
    os.write(self._fd, line.encode() + b'\n')

  def remove(self) -> None:
    if self._fd >= 0:
      _remove.remove_tree(self.path)
      os.close(self._fd)
      self._fd = -1


def sweep(base: str = '') -> int:
  """Removes folders and cgroups of dead owners. Returns how many."""
  base, number = base or tempfile.gettempdir(), 0
  with contextlib.suppress(OSError):
    for name in os.listdir(base):
      if name.startswith(PREFIX):
        number += _sweep_one(os.path.join(base, name))
  return number


def _sweep_one(path: str) -> bool:
  try:
    fd = os.open(
      os.path.join(path, 'owner'), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    )
  except OSError:
    return False
  try:
    if os.fstat(fd).st_uid != os.geteuid() or os.path.islink(path):
      return False  # another user's, who could name any group in it
    machine, *groups = os.read(fd, 1 << 20).decode().split('\n')
    if machine != _boot_id():
      return False  # on a shared file system locks of others may not show
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    for group in groups:
      if _GROUP.match(group):
        _cgroup.remove_left(group)
    _remove.remove_tree(path)
    return not os.path.exists(path)
  except (OSError, UnicodeDecodeError):
    return False
  finally:
    os.close(fd)
