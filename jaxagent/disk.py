"""A full disk, told apart from every other fault.

No retry mends it, and it is nobody's work item: it ends a run, which goes on
once there is space.
"""

from __future__ import annotations

import errno

_ERRNOS = {errno.ENOSPC, errno.EDQUOT}
# Libraries that write from C++ (Orbax through TensorStore) give a text alone.
_TEXTS = ('No space left on device', 'Disk quota exceeded')


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
