"""Reads files that grow, from where the last look ended.

A file that became shorter, or another file of the same name, is read anew. A line
without its end waits for it.
"""

from __future__ import annotations

import json
import os
import pathlib
import stat
from collections.abc import Callable, Iterator
from typing import Any

CHUNK_BYTES = 256 << 10
LONG_BYTES = 1 << 20  # of a line whose texts are cut
LONGEST_BYTES = 16 << 20  # of a line that is read at all
_PROBE_BYTES = 64


def open_plain(path: pathlib.Path) -> int:
  """Opens a regular file for reading and returns its descriptor.

  Never waits, as for who writes into a pipe. Raises OSError, also where the path is
  no regular file.
  """
  file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
  if not stat.S_ISREG(os.fstat(file).st_mode):
    os.close(file)
    raise OSError(22, 'is no regular file')
  return file


def read_at(path: pathlib.Path, offset: int, length: int) -> bytes:
  """Returns a part of a file, as much as there is; raises OSError."""
  file = open_plain(path)
  try:
    return os.pread(file, length, offset)
  finally:
    os.close(file)


def object_of(line: bytes) -> dict[str, Any] | None:
  """Returns the JSON object of a line; None where it holds none."""
  try:
    found = json.loads(line)
  except (ValueError, RecursionError):
    return None
  return found if isinstance(found, dict) else None


class Tail:
  """A file of JSON lines, read as it grows. Not thread-safe.

  Args:
    path: of the file, which may not be there yet.
    take: gets each line's object with its offset and length in bytes.
    reset: called before the file is read anew.

  problem: why it cannot be read; '' where it can, or is not there.
  damaged, long, left_out: lines that are no JSON object; over LONG_BYTES; and over
    LONGEST_BYTES, which are not read.
  """

  def __init__(
    self,
    path: pathlib.Path,
    take: Callable[[dict[str, Any], int, int], None],
    reset: Callable[[], None],
  ):
    self.path, self._take, self._reset = path, take, reset
    self.there = False
    self._start_anew()

  def _start_anew(self) -> None:
    self.size = self.offset = 0
    self.problem = ''
    self.damaged = self.long = self.left_out = 0
    self._file_id: tuple[int, int] | None = None
    self._probe = b''  # what stood before the offset
    self._rest = b''  # of a line that has not ended
    self._skipping = False

  @property
  def left(self) -> int:
    """Bytes that are known of and not read."""
    return max(0, self.size - self.offset)

  def read(self) -> bool:
    """Reads up to CHUNK_BYTES; returns whether there is more now."""
    try:
      file = open_plain(self.path)
    except FileNotFoundError:
      self._gone()
      return False
    except OSError as error:
      self.problem = _why(error)
      return False
    try:
      self._look(file)
      data = os.pread(file, CHUNK_BYTES, self.offset)
    except OSError as error:
      self.problem = _why(error)
      return False
    finally:
      os.close(file)
    self.there, self.problem = True, ''
    self._split(data)
    return self.left > 0

  def rewind(self) -> None:
    """Begins anew with the next read, without a reset."""
    self._start_anew()

  def newest(self, most: int) -> Iterator[tuple[dict[str, Any], int, int]]:
    """Yields object, offset and length of the whole lines in the last bytes.

    most: of the bytes. For a first look at a large file; does not move the offset.
    """
    try:
      size = os.stat(self.path).st_size
      begin = max(0, size - most)
      data = read_at(self.path, begin, most)
    except OSError:
      return
    lines = data.split(b'\n')
    for number, line in enumerate(lines[:-1]):
      if number or not begin:
        if (found := object_of(line)) is not None:
          yield found, begin, len(line)
      begin += len(line) + 1

  def _gone(self) -> None:
    if self.there:
      self._reset()
      self._start_anew()
    self.there = False

  def _look(self, file: int) -> None:
    """Begins anew where this is not the file that was read until now."""
    now = os.fstat(file)
    same = self._file_id in (None, (now.st_dev, now.st_ino))
    if same and now.st_size >= self.offset:
      begin = self.offset - len(self._probe)
      same = os.pread(file, len(self._probe), begin) == self._probe
    else:
      same = False
    if not same:
      self._reset()
      self._start_anew()
    self._file_id = now.st_dev, now.st_ino
    self.size = now.st_size

  def _split(self, data: bytes) -> None:
    start = self.offset - len(self._rest)  # of the line
    self.offset += len(data)
    self._probe = (self._probe + data)[-_PROBE_BYTES:]
    *whole, rest = data.split(b'\n')
    for line in whole:
      if self._skipping:
        self._skipping = False
        start = self.offset - len(data) + data.index(b'\n') + 1
        continue
      line = self._rest + line
      self._rest = b''
      self._whole(line, start)
      start += len(line) + 1
    if self._skipping:
      return
    self._rest += rest
    if len(self._rest) > LONGEST_BYTES:
      self._rest, self._skipping = b'', True
      self.left_out += 1

  def _whole(self, line: bytes, start: int) -> None:
    if not line.strip():
      return
    found = object_of(line)
    if found is None:
      self.damaged += 1
      return
    if len(line) > LONG_BYTES:
      self.long += 1
    self._take(found, start, len(line))


def _why(error: OSError) -> str:
  if isinstance(error, PermissionError):
    return 'no permission to read it'
  return error.strerror or str(error)
