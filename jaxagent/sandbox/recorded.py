"""A pool that answers jobs which were executed before from a file of real executions.

For benchmarks of many seeds, whose policies write the same programs again and again:
what a job did once, seconds included, it does each time. A job that is not in the file
runs, and is added. Each answer says that it was looked up (`Execution.recorded`), and so
do records, traces and reports that are made of it.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import pathlib
import platform
import sqlite3
import threading
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from jaxagent.sandbox import cpu_levels
from jaxagent.types import Execution, Job, Outcome

VERSION = 1
# Whose results depend on what is installed.
PACKAGES = ('numpy', 'scipy', 'pandas', 'scikit-learn')
# What a job did by itself; anything else may end otherwise the next time.
KEPT = frozenset(Outcome) - {
  Outcome.INFRASTRUCTURE,
  Outcome.KILLED,
  Outcome.DEADLINE,
}
_FILES = ('collected', 'changed')
_SCHEMA = """
create table if not exists meta (name text primary key, value text not null);
create table if not exists data (digest text primary key);
create table if not exists executions (key text primary key, result blob not null);
"""


def made_with(cpu_level: str = cpu_levels.DEFAULT) -> dict[str, str]:
  """Returns what a file's executions were made with, by name."""
  found = {'version': str(VERSION), 'cpu_level': cpu_level}
  found['python'] = platform.python_version()
  for name in PACKAGES:
    try:
      found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
      found[name] = 'none'
  return found


class RecordedPool:
  """`SandboxPool` with a file of executions in front of it.

  Args:
    pool: runs what the file has not; closed with this one.
    path: of the file, an SQLite database; made where it is not there. Several runs may
      share it.
    cpu_level: of the pool.
    data: folders that the jobs of this run are shown; a file with executions on other
      data alone is refused.

  Raises ValueError for a file that is none, or was made with other versions, another CPU
  level or other data.
  """

  def __init__(
    self,
    pool: Any,
    path: pathlib.Path,
    *,
    cpu_level: str = cpu_levels.DEFAULT,
    data: Iterable[pathlib.Path] = (),
  ):
    self._pool, self._path = pool, path
    self._lock = threading.Lock()
    self.tier, self.slots = pool.tier, pool.slots
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
      self._db = sqlite3.connect(path, timeout=60, check_same_thread=False)
      self._db.executescript(_SCHEMA)
      self._check(made_with(cpu_level), {digest(folder) for folder in data})
    except sqlite3.DatabaseError as error:
      raise ValueError(
        f'{path} is no file of executions ({error}); give another name, and it is made.'
      ) from error

  def _check(self, here: Mapping[str, str], data: set[str]) -> None:
    there = dict(self._db.execute('select name, value from meta'))
    for name, value in here.items():
      if there and there.get(name) != value:
        raise ValueError(
          f'{self._path} has executions with {name} {there.get(name)}, and here is '
          f'{value}: they may do something else; give another file.'
        )
    known = {row[0] for row in self._db.execute('select digest from data')}
    if known and data and not known & data:
      raise ValueError(
        f"{self._path} has executions on other data than this run's tasks have; give "
        'another file.'
      )
    with self._db:
      self._db.executemany(
        'insert or ignore into meta values (?, ?)', here.items()
      )
      self._db.executemany(
        'insert or ignore into data values (?)', [(one,) for one in data]
      )

  def __enter__(self) -> RecordedPool:
    return self

  def __exit__(self, *_) -> None:
    self.close()

  def submit(
    self, job: Job, *, deadline_s: float | None = None
  ) -> concurrent.futures.Future[Execution]:
    """Answers from the file, or as `SandboxPool.submit`."""
    key = key_of(job)
    with self._lock:
      row = self._db.execute(
        'select result from executions where key = ?', (key,)
      ).fetchone()
    if row is not None:
      done: concurrent.futures.Future[Execution] = concurrent.futures.Future()
      done.set_result(_read(row[0], job.job_id))
      return done
    future = self._pool.submit(job, deadline_s=deadline_s)
    future.add_done_callback(functools.partial(self._keep, key))
    return future

  def _keep(self, key: str, future: concurrent.futures.Future) -> None:
    if future.cancelled() or future.exception() is not None:
      return
    found: Execution = future.result()
    if found.outcome not in KEPT:
      return
    with self._lock, self._db:
      self._db.execute(
        'insert or ignore into executions values (?, ?)', (key, _written(found))
      )

  def cancel(self, job_id: str) -> bool:
    """Cancels as `SandboxPool` does; what was looked up has ended."""
    return self._pool.cancel(job_id)

  def stats(self) -> dict[str, Any]:
    """Counters of the pool behind."""
    return self._pool.stats()

  def close(self) -> None:
    """Closes the pool and the file."""
    self._pool.close()
    with self._lock:
      self._db.close()


def key_of(job: Job) -> str:
  """Returns what two jobs have in common that do the same, as a digest.

  Script, files, what is shown and asked for, limits; not the name of the job, nor
  whether it is forked.
  """
  record = {
    'script': job.script,
    'files': {name: _digest(data) for name, data in job.files.items()},
    'mounts': {name: digest(folder) for name, folder in job.mounts.items()},
    'limits': dataclasses.asdict(job.limits),
    **{
      name: getattr(job, name)
      for name in 'argv collect optional gpus threads apart changed_mb '
      'interpreter'.split()
    },
    'env': dict(job.env),
    # Where they are something: what was recorded before they existed is found.
    **{
      name: value
      for name in ('folders', 'collect_mb')
      if (value := getattr(job, name))
    },
  }
  return _digest(json.dumps(record, sort_keys=True, default=list))


def digest(folder: pathlib.Path) -> str:
  """Returns the digest of a folder's names and contents, read once while it is there."""
  return _of_folder(pathlib.Path(folder).resolve())


@functools.cache
def _of_folder(folder: pathlib.Path) -> str:
  found = hashlib.sha256()
  for path in sorted(folder.rglob('*')):
    if path.is_file():
      name = (
        path.relative_to(folder).as_posix().encode('utf-8', 'surrogateescape')
      )
      found.update(b'%d %s %d ' % (len(name), name, path.stat().st_size))
      with open(path, 'rb') as file:
        while part := file.read(1 << 20):
          found.update(part)
  return found.hexdigest()


def _digest(data: str | bytes) -> str:
  if isinstance(data, str):
    data = data.encode('utf-8', 'surrogateescape')
  return hashlib.sha256(data).hexdigest()


def _written(execution: Execution) -> bytes:
  record = dataclasses.asdict(execution)
  record['outcome'] = execution.outcome.value
  for name in _FILES:
    files = getattr(execution, name)
    record[name] = {k: v.decode('latin-1') for k, v in files.items()}
  text = json.dumps(record)
  return zlib.compress(text.encode('utf-8', 'surrogatepass'))


def _read(data: bytes, job_id: str) -> Execution:
  record = json.loads(zlib.decompress(data).decode('utf-8', 'surrogatepass'))
  for name in _FILES:
    record[name] = {k: v.encode('latin-1') for k, v in record[name].items()}
  record |= {
    'outcome': Outcome(record['outcome']),
    'removed': tuple(record['removed']),
    'left_out': tuple(record['left_out']),
  }
  return answer(Execution(**record), job_id)


def answer(found: Execution, job_id: str, queue_s: float = 0.0) -> Execution:
  """Returns what a job did before as the result of an equal one, which was not run.

  queue_s: seconds that this one waited for it.
  """
  return dataclasses.replace(
    found,
    job_id=job_id,
    queue_s=queue_s,
    attempts=1,
    slot=None,
    recorded=True,
  )
