"""Removes what a hostile job left: no recursion, no long path, no link."""

from __future__ import annotations

import os

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(root: str) -> None:
  """Deletes `root`, lifting nested folders up so that depth never matters.

  Works on descriptors of folders, so that nothing that is swapped for a link
  meanwhile leads out. Errors are ignored: what cannot be removed stays.
  """
  try:
    top = os.open(root, _FOLDER)
  except OSError:
    return
  try:
    _empty(top)
  finally:
    os.close(top)
  _ignore(os.rmdir, root)


def _empty(top: int) -> None:
  number, before = 0, None
  while True:
    folders, files = _entries(top)
    for name in files:
      _ignore(os.unlink, name, dir_fd=top)
    if not folders or folders == before:
      return
    before = folders
    for folder in folders:
      number = _lift(top, folder, number)


def _lift(top: int, folder: str, number: int) -> int:
  """Empties `folder` of `top`: what folders it holds become `top`'s."""
  fd = _open(folder, top)
  if fd is None:
    return number
  try:
    folders, files = _entries(fd)
    for name in files:
      _ignore(os.unlink, name, dir_fd=fd)
    for name in folders:
      number += 1
      inner = _open(name, fd)  # only what may be written may be moved
      if inner is not None:
        os.close(inner)
      _ignore(
        os.rename, name, f'.removed-{number}', src_dir_fd=fd, dst_dir_fd=top
      )
  finally:
    os.close(fd)
  _ignore(os.rmdir, folder, dir_fd=top)
  return number


def _open(name: str, folder: int) -> int | None:
  """A folder's descriptor, its mode set to 0700; None where it is none."""
  try:
    path = os.open(
      name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder
    )
  except OSError:
    return None
  try:
    # Through the descriptor: chmod by name would follow a link.
    _ignore(os.chmod, f'/proc/self/fd/{path}', 0o700)
    return os.open('.', _FOLDER, dir_fd=path)
  except OSError:
    return None
  finally:
    os.close(path)


def _entries(folder: int) -> tuple[list[str], list[str]]:
  """Names of (folders, all others)."""
  folders: list[str] = []
  files: list[str] = []
  with os.scandir(folder) as entries:
    for entry in entries:
      kind = folders if entry.is_dir(follow_symlinks=False) else files
      kind.append(entry.name)
  return folders, files


def _ignore(function, *arguments, **named) -> None:
  try:
    function(*arguments, **named)
  except OSError:
    pass
