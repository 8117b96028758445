"""States and files by content: stored once, however many states hold them.

One SQLite file. A state is a manifest of digests, so 10,000 states of a
trajectory's few scripts take little more than those scripts; what a task's data
hold is never in it. A state that is put back runs as it ran before.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import hashlib
import json
import pathlib
import sqlite3
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping

from jaxagent import types

MOST_BYTES = 2 << 30
_TEXTS = 512  # read last
_TABLES = (
  'create table if not exists contents (digest text primary key, data blob)',
  'create table if not exists states (id text primary key, manifest blob)',
)


class Snapshots:
  """Thread-safe; what is put is on disk before `put` returns.

  Args:
    path: of the file; ':memory:' keeps it in memory.
    most_bytes: of files that scripts have made, compressed: what a policy
      writes is not to fill the disk.

  Raises ValueError where the file is no database.
  """

  def __init__(self, path: pathlib.Path | str, *, most_bytes: int = MOST_BYTES):
    self._path = path
    if str(path) != ':memory:':
      pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    self._lock = threading.Lock()
    self._base = sqlite3.connect(str(path), check_same_thread=False)
    self._most = most_bytes
    self._known: set[str] = set()  # contents that need not be written again
    # States that are read in turn share most of their texts, also in memory.
    self._text = functools.lru_cache(_TEXTS)(self._read_text)
    try:
      with self._writing():
        for table in _TABLES:
          self._base.execute(table)
      ((self._bytes,),) = self._base.execute(
        'select coalesce(sum(length(data)), 0) from contents'
      )
    except sqlite3.OperationalError:
      raise  # the disk's or another process's doing, not the file's
    except sqlite3.DatabaseError as error:
      raise ValueError(
        f'{path} is damaged ({error}): put back a copy, or remove it with what '
        'refers to it (collect/ and eval/ beside it).'
      ) from error

  @contextlib.contextmanager
  def _writing(self) -> Iterator[None]:
    """One transaction; a full disk is the OSError that it is elsewhere."""
    try:
      with self._lock, self._base:
        yield
    except sqlite3.OperationalError as error:
      if 'full' in str(error) or 'disk I/O' in str(error):
        raise OSError(errno.ENOSPC, str(error), str(self._path)) from error
      raise

  def close(self) -> None:
    self._base.close()

  def put(self, state: types.State) -> str:
    """Keeps a state; its key, which equal states share."""
    contents: dict[str, bytes] = {}
    record = dataclasses.asdict(state)
    record['files'] = {
      name: dataclasses.asdict(value)
      if isinstance(value, types.Blob)
      else _reference(value, contents)
      for name, value in state.files.items()
    }
    for past in record['history']:
      for part in ('response', 'observation'):
        past[part] = _reference(past[part], contents)
    text = json.dumps(record, sort_keys=True).encode()
    key = _digest(text)
    new = {d: data for d, data in contents.items() if d not in self._known}
    with self._writing():
      self._base.executemany(
        'insert or ignore into contents values (?, ?)',
        [(digest, zlib.compress(data, 6)) for digest, data in new.items()],
      )
      self._base.execute(
        'insert or ignore into states values (?, ?)',
        (key, zlib.compress(text, 6)),
      )
    self._known.update(new)
    return key

  def get(self, key: str) -> types.State:
    """The state that was put; KeyError where there is none."""
    record = json.loads(zlib.decompress(self._one('states', 'id', key)))
    record['files'] = {
      name: types.Blob(**value)
      if isinstance(value, dict)
      else self._text(value)
      for name, value in record['files'].items()
    }
    record['history'] = tuple(
      types.PastStep(
        **past
        | {part: self._text(past[part]) for part in ('response', 'observation')}
      )
      for past in record['history']
    )
    record['ideas'] = tuple(record['ideas'])
    return types.State(**record)

  def missing(self, keys: Iterable[str]) -> set[str]:
    """Returns the keys under which no state is kept."""
    with self._lock:
      kept = {key for (key,) in self._base.execute('select id from states')}
    return set(keys) - kept

  def put_bytes(self, data: bytes) -> types.Blob | None:
    """Keeps a file's content; None where there is no more room."""
    digest = _digest(data)
    if digest in self._known:
      return types.Blob(digest, len(data))
    packed = zlib.compress(data, 1)
    with self._writing():
      if self._bytes + len(packed) > self._most:
        held = 'select 1 from contents where digest = ?'
        if not self._base.execute(held, (digest,)).fetchone():
          return None
      made = self._base.execute(
        'insert or ignore into contents values (?, ?)', (digest, packed)
      )
      self._bytes += len(packed) * made.rowcount
    self._known.add(digest)
    return types.Blob(digest, len(data))

  def get_bytes(self, blob: types.Blob) -> bytes:
    """The content that was put; KeyError where there is none."""
    return zlib.decompress(self._one('contents', 'digest', blob.digest))

  def bytes_of(
    self, files: Mapping[str, str | bytes | types.Blob]
  ) -> dict[str, str | bytes]:
    """Files as a sandbox takes them."""
    return {
      name: self.get_bytes(value) if isinstance(value, types.Blob) else value
      for name, value in files.items()
    }

  def _read_text(self, digest: str) -> str:
    data = zlib.decompress(self._one('contents', 'digest', digest))
    return data.decode('utf-8', 'surrogatepass')

  def _one(self, table: str, column: str, key: str) -> bytes:
    with self._lock:
      row = self._base.execute(
        f'select * from {table} where {column} = ?', (key,)
      ).fetchone()
    if row is None:
      raise KeyError(f'{table}: nothing is kept under {key!r}.')
    return row[1]


def _reference(text: str, contents: dict[str, bytes]) -> str:
  data = text.encode('utf-8', 'surrogatepass')
  digest = _digest(data)
  contents[digest] = data
  return digest


def _digest(data: bytes) -> str:
  return hashlib.blake2b(data, digest_size=16).hexdigest()
