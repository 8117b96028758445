"""The journal: what happened since a checkpoint, one JSON line an event.

Segments are numbered in the order they were begun: one where each checkpoint
was taken, which holds the number, and one for each start of the process. A
resume loads a checkpoint and folds the segments from its number on. A line is
one `write` of the operating system: a killed process leaves at most a torn
last line, which was never acted upon, and it is cut off. Lines are not synced
one by one: after a power cut the last seconds may be missing, and are lived
again.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import threading
from collections.abc import Iterator
from typing import Any


class JournalError(RuntimeError):
  """A journal that cannot be what this run wrote."""


class Journal:
  """Appends events; thread-safe.

  Args:
    directory: made where it is missing; holds nothing but segments.
  """

  def __init__(self, directory: str | os.PathLike[str]):
    self.directory = pathlib.Path(directory)
    self.directory.mkdir(parents=True, exist_ok=True)
    self.lock = threading.RLock()
    self._file: int | None = None

  def append(self, event: dict[str, Any]) -> None:
    """Writes one event. Raises OSError where the disk is full."""
    line = (json.dumps(event, separators=(',', ':')) + '\n').encode()
    with self.lock:
      if self._file is None:
        raise JournalError('no segment has been begun.')
      start = os.fstat(self._file).st_size
      try:
        done = os.write(self._file, line)
        if done < len(line):
          raise OSError(28, 'no space left for the journal')
      except OSError:
        os.ftruncate(self._file, start)  # half a line would spoil the next
        raise

  def begin(self) -> int:
    """Events go to a new segment from now on; returns its number."""
    with self.lock:
      self.close()
      segments = self._segments()
      number = int(segments[-1].stem) + 1 if segments else 0
      flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
      path = self.directory / f'{number:08d}.jsonl'
      self._file = os.open(path, flags, 0o644)
      with contextlib.suppress(OSError):  # a file system without locks
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
      return number

  @property
  def is_written(self) -> bool:
    """Whether a run has it open, here or in another process."""
    segments = self._segments()
    if not segments:
      return False
    with open(segments[-1], 'rb') as file:
      try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
      except BlockingIOError:
        return True
      except OSError:  # a file system without locks
        return False
    return False

  def events(
    self, first: int = 0, *, repair: bool = True
  ) -> Iterator[dict[str, Any]]:
    """Events of the segments from `first` on, in order.

    A torn last line of a segment is passed over and, with `repair`, cut off on the
    disk. Raises JournalError where a line in between is damaged.
    """
    for path in self._segments():
      if int(path.stem) >= first:
        yield from _read(path, repair)

  def is_cut(self, segment: int) -> bool:
    """Whether a segment is gone that later ones follow."""
    numbers = [int(path.stem) for path in self._segments()]
    return segment not in numbers and any(n > segment for n in numbers)

  def prune(self, first: int) -> None:
    """Deletes segments before `first`, that of the oldest checkpoint kept."""
    for path in self._segments():
      if int(path.stem) < first:
        path.unlink(missing_ok=True)

  def close(self) -> None:
    with self.lock:
      if self._file is not None:
        os.close(self._file)
        self._file = None

  def _segments(self) -> list[pathlib.Path]:
    found = self.directory.glob('*.jsonl')
    return sorted(path for path in found if path.stem.isdigit())


def _read(path: pathlib.Path, repair: bool) -> Iterator[dict[str, Any]]:
  end = 0
  with path.open('rb') as file:  # line by line: a segment may be large
    for number, line in enumerate(file, 1):
      if not line.endswith(b'\n'):
        if repair:
          os.truncate(path, end)
        return
      end += len(line)
      try:
        yield json.loads(line)
      except ValueError as error:
        raise JournalError(
          f'{path}, line {number}: damaged ({error}). Remove this file and later '
          'ones to resume from those before.'
        ) from error
