"""Places on a disk: their names, and a full disk apart from every other fault.

No retry helps against a full disk, no prompt causes it: it ends a run, which
resumes once there is space.
"""

from __future__ import annotations

import errno
import pathlib
import re

# Orbax finds a checkpoint's parts by a glob over its whole path, which these
# change, and takes a folder named gs: for a bucket.
_PATTERN = re.compile(r'[*?\[\\]|(?:^|/)gs:(?:/|$)')
_ERRNOS = {errno.ENOSPC, errno.EDQUOT}
# Libraries that write from C++ (Orbax through TensorStore) give a text alone.
_TEXTS = ('No space left on device', 'Disk quota exceeded')


def user_path(text: str) -> pathlib.Path:
  """A path of the command line; a shell leaves the `~` of `--flag=~/x` alone.

  Raises ValueError for the home of a user that is not there.
  """
  try:
    return pathlib.Path(text).expanduser()
  except RuntimeError as error:
    raise ValueError(
      f'{text!r}: {error}; give the path without "~".'
    ) from error


def pattern_in(path: pathlib.Path) -> str:
  """The first part of `path` in which checkpoints would be lost, '' if none."""
  found = _PATTERN.search(str(path))
  return found[0].strip('/') if found else ''


def is_full(error: BaseException | None) -> bool:
  """Whether `error`, or one that it came of, says that a disk is full."""
  return any(_says_full(e) for e in _chain(error))


def where(error: BaseException | None) -> str:
  """The file that could not be written, or '' where the error has none."""
  names = (
    e.filename for e in _chain(error) if isinstance(e, OSError) and e.filename
  )
  return str(next(names, ''))


def _says_full(error: BaseException) -> bool:
  if isinstance(error, OSError) and error.errno in _ERRNOS:
    return True
  return any(text in str(error) for text in _TEXTS)


def _chain(error: BaseException | None):
  seen: set[int] = set()
  todo = [error]
  while todo:
    error = todo.pop()
    if error is None or id(error) in seen:
      continue
    seen.add(id(error))
    yield error
    todo += [error.__context__, error.__cause__]
