"""Removes what a hostile job left: no recursion, no long path, no link."""

from __future__ import annotations

import os


def remove_tree(root: str) -> None:
  """Deletes `root`, lifting nested folders up so that depth never matters.

  Errors are ignored: what cannot be removed stays.
  """
  number = 0
  before = None
  while True:
    try:
      folders = [e.path for e in os.scandir(root)
                 if e.is_dir(follow_symlinks=False)]
    except OSError:
      return
    if not folders or folders == before:
      break
    before = folders
    for folder in folders:
      _ignore(os.chmod, folder, 0o700)
      try:
        entries = list(os.scandir(folder))
      except OSError:
        continue
      for entry in entries:
        if entry.is_dir(follow_symlinks=False):
          _ignore(os.chmod, entry.path, 0o700)
          number += 1
          _ignore(os.rename, entry.path, f'{root}/.removed-{number}')
        else:
          _ignore(os.unlink, entry.path)
      _ignore(os.rmdir, folder)
  for entry in os.scandir(root):
    if not entry.is_dir(follow_symlinks=False):
      _ignore(os.unlink, entry.path)
  _ignore(os.rmdir, root)


def _ignore(function, *arguments) -> None:
  try:
    function(*arguments)
  except OSError:
    pass
