"""Root file system of a job: folders and mounts, made by its supervisor.

Standard library only.
"""

from __future__ import annotations

import os
import socket
from typing import Any

from jaxagent.sandbox import _linux

MB = 1 << 20
BOX = '/box'


class Room:
  """Paths of a job's root; they differ with and without namespaces."""

  def __init__(self, request: dict[str, Any], config: dict[str, Any]):
    self.request, self.config = request, config
    self.namespaces = config['namespaces']
    self.root = BOX if self.namespaces else request['host_dir']
    self.workspace = self.root + '/workspace'
    self.workspace_fd = -1  # the job may rename or replace the path
    self.proc_fd = -1

  def build(self, header: dict[str, Any], blobs: list[bytes]) -> None:
    uid = self.request['uid']
    if self.namespaces:
      self._enter(header)
    else:
      os.mkdir(self.root, 0o700)
    for name in ('workspace', 'tmp', 'shm'):
      os.mkdir(f'{self.root}/{name}', 0o700)
    made = {self.workspace, self.root + '/tmp', self.root + '/shm'}
    for path, blob in zip(header['files'], blobs):
      target = f'{self.workspace}/{path}'
      self._parents(target, made)
      with open(target, 'wb') as f:
        f.write(blob)
      made.add(target)
    for path, source in header['mounts'].items():
      target = f'{self.workspace}/{path}'
      self._parents(target, made)
      self._mount_point(source, target)
    if uid is not None:
      made.add(self.root)
      for path in made:
        os.chown(path, uid, uid, follow_symlinks=False)

  def _mount_point(self, source: str, target: str) -> None:
    if self.namespaces:
      os.mkdir(target)
    else:
      os.symlink(source, target)

  def _parents(self, target: str, made: set[str]) -> None:
    parent = os.path.dirname(target)
    if parent in made or os.path.isdir(parent):
      return
    self._parents(parent, made)
    os.mkdir(parent, 0o700)
    made.add(parent)

  def open_workspace(self) -> None:
    self.workspace_fd = os.open(
      self.workspace,
      os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC,
    )

  def _enter(self, header: dict[str, Any]) -> None:
    size = header['disk_mb'] * MB + header['initial_bytes']
    inodes = 4096 + header['disk_mb'] * 64 + len(header['files'])
    self.proc_fd = os.open('/proc', os.O_PATH | os.O_CLOEXEC)
    _linux.umount('/proc')
    _linux.mount(
      'proc',
      '/proc',
      'proc',
      _linux.MS_RDONLY | _linux.MS_NOSUID | _linux.MS_NODEV | _linux.MS_NOEXEC,
      'hidepid=2',
    )
    _linux.mount(
      'box',
      BOX,
      'tmpfs',
      _linux.MS_NOSUID | _linux.MS_NODEV,
      f'size={size},nr_inodes={inodes},mode=0700',
    )
    for name, path in header['mounts'].items():
      os.makedirs(f'{BOX}/.mounts/{name}')
      _linux.bind_read_only(f'/host{path}', f'{BOX}/.mounts/{name}')
    socket.sethostname('sandbox')
    _linux.umount('/host')

  def place_mounts(self, header: dict[str, Any]) -> None:
    for name in header['mounts'] if self.namespaces else ():
      _linux.mount(
        f'{BOX}/.mounts/{name}',
        f'{self.workspace}/{name}',
        '',
        _linux.MS_BIND | _linux.MS_REC,
      )
      _linux.umount(f'{BOX}/.mounts/{name}')

  def writable(self) -> list[str]:
    return [self.root]

  def used(self, limit: int) -> tuple[int, bool]:
    """(bytes in the job's file systems, whether they are full).

    limit: bytes; counts where the file system itself has none.
    """
    if not self.namespaces:
      used = _tree_bytes(self.root)
      return used, used >= limit - MB
    return _filled(self.root)


class ContainerRoom(Room):
  """A room that a container engine has built: `/box` is a file system of
  limited size, `header['mounts']` gives where each mount lies inside."""

  def writable(self) -> list[str]:
    return [self.root, '/tmp', '/dev/shm']

  def _enter(self, header: dict[str, Any]) -> None:
    pass

  def _mount_point(self, source: str, target: str) -> None:
    os.symlink(source, target)

  def place_mounts(self, header: dict[str, Any]) -> None:
    pass

  def used(self, limit: int) -> tuple[int, bool]:
    parts = [_filled(path) for path in self.writable()]
    return sum(used for used, _ in parts), any(full for _, full in parts)


def _filled(path: str) -> tuple[int, bool]:
  """(bytes in a file system, whether it has no room for a block or file)."""
  status = os.statvfs(path)
  used = (status.f_blocks - status.f_bfree) * status.f_frsize
  return used, status.f_bavail == 0 or status.f_ffree == 0


def _tree_bytes(root: str) -> int:
  total, left, folders = 0, 200_000, [root]
  while folders and left > 0:
    try:
      entries = list(os.scandir(folders.pop()))
    except OSError:
      continue
    left -= len(entries)
    for entry in entries:
      try:
        total += entry.stat(follow_symlinks=False).st_blocks * 512
        if entry.is_dir(follow_symlinks=False):
          folders.append(entry.path)
      except OSError:
        pass
  return total
