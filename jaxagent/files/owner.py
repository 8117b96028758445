"""The one run that may write a work directory.

  python -m jaxagent.files.owner WORK_DIR

exits 2 and says whose it is where a run holds it. A run holds its work directory from
its start to its end: by a lock on OWNER, which the kernel lets go of when the process
dies; and, since file systems that machines share may have no locks, by a claim in that
file whose time of change moves every BEAT_S. Who finds a claim of another machine
watches it, since clocks differ: one that moves is alive, one that has not moved for
STALE_S is dead and is taken over. Readers need no claim.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import getpass
import json
import os
import pathlib
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jaxagent.clock import Clock, RealClock
from jaxagent.errors import MachineryError, UserError

OWNER = 'owner.json'
BEAT_S = 2.0
# Without a beat a claim is dead after so long; a live one is known by two beats.
STALE_S = 60.0
_POLL_S = 0.5
# Within it who only looked (`check`) lets go again.
_LOOK_S = 1.0
_LONGEST_BYTES = 4096
_LOCAL = {
  'ext2',
  'ext3',
  'ext4',
  'xfs',
  'btrfs',
  'zfs',
  'f2fs',
  'tmpfs',
  'overlay',
}
_JOBS = 'SLURM_JOB_ID', 'JOB_NAME', 'RAY_JOB_ID'
# What flock answers where a file system has no locks.
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EBADF}


@dataclasses.dataclass(frozen=True)
class Claim:
  """A record of the run that holds a work directory.

  boot: of the machine's kernel; '' where it is not known. began: seconds since 1970
  by the owner's clock. token: differs for each claim.
  """

  host: str
  boot: str
  pid: int
  user: str
  job: str
  began: float
  token: str

  @classmethod
  def of_this_process(cls) -> Claim:
    jobs = (
      f'{name}={os.environ[name]}' for name in _JOBS if name in os.environ
    )
    return cls(
      host=socket.gethostname(),
      boot=_boot(),
      pid=os.getpid(),
      user=_user(),
      job=next(jobs, ''),
      began=time.time(),
      token=os.urandom(8).hex(),
    )

  @classmethod
  def read(cls, file: int) -> Claim | None:
    """Reads an open file; None where it holds no claim, damaged ones included."""
    try:
      fields = json.loads(os.pread(file, _LONGEST_BYTES, 0))
      return cls(**{f.name: _TYPES[f.type](fields[f.name]) for f in _FIELDS})
    except (ValueError, TypeError, KeyError, OverflowError):
      return None

  def __str__(self) -> str:
    since = 'a time that is not known'
    with contextlib.suppress(ValueError, OverflowError, OSError):
      since = time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(self.began))
    job = f' ({self.job})' if self.job else ''
    return f'process {self.pid} of {self.user!r} on {self.host!r}{job}, since {since}'


_FIELDS = dataclasses.fields(Claim)
_TYPES: dict[Any, Callable[[Any], Any]] = {
  'str': str,
  'int': int,
  'float': float,
}


class Owner:
  """This process's hold on a work directory; `taken` makes one."""

  def __init__(self, path: pathlib.Path, file: int, claim: Claim):
    self._path, self._file, self._claim = path, file, claim
    self._ended = threading.Event()
    self._thread = threading.Thread(
      target=self._beat, name='owner', daemon=True
    )
    self.lost: Callable[[Exception], None] = lambda error: None

  def begin(self) -> None:
    self._thread.start()

  def close(self) -> None:
    """Lets go: empties the claim, unless it is another's by now."""
    self._ended.set()
    self._thread.join()
    self.release()
    os.close(self._file)

  def release(self) -> None:
    """Empties the claim, as a process does that ends without waiting."""
    self._ended.set()
    with contextlib.suppress(OSError):
      if self.whose() == self._claim:
        os.ftruncate(self._file, 0)

  def whose(self) -> Claim | None:
    """Returns the claim that lies in the directory now. Raises OSError."""
    with _opened(self._path) as file:
      return Claim.read(file)

  def _beat(self) -> None:
    while not self._ended.wait(BEAT_S):
      try:
        now = self.whose()
        if now == self._claim:
          os.utime(self._path)
          continue
      except FileNotFoundError:
        self.lost(
          MachineryError(
            f'work directory {self._path.parent} was moved or deleted, or its '
            f'{OWNER} was: nothing more is saved. Put it back, then rerun the same '
            'command.'
          )
        )
        return
      except OSError:
        continue  # a server that is away; others wait for STALE_S
      self.lost(
        MachineryError(
          f'work directory {self._path.parent} was taken over by {now}: two began at '
          f'once, or this run gave no sign of life for {STALE_S:g} s. Nothing more is '
          'saved by it.'
        )
      )
      return


def taken(path: pathlib.Path, clock: Clock | None = None) -> Owner:
  """Takes a work directory, or takes it over from an owner that is dead.

  Raises:
    UserError: another run holds it; or its claim cannot be read or written.
  """
  clock, name = clock or RealClock(), path / OWNER
  try:
    file = os.open(name, os.O_RDWR | os.O_CREAT, 0o644)
  except OSError as error:
    raise UserError(
      f'{name} cannot be opened ({error.strerror}): the work directory belongs to '
      f'{_owner_of(name)}. Choose another --work_dir.'
    ) from error
  try:
    ended = clock.now() + _LOOK_S
    while not (lock := _lock(file)) and clock.now() < ended:
      clock.sleep(_POLL_S)
    before = Claim.read(file)
    if not lock and _is_of_here(before):
      raise held(path, before)
    # The server of a network file system may keep the lock of a machine that is dead.
    if not lock or (
      os.fstat(file).st_size and not (lock == 'flock' and _is_of_here(before))
    ):
      print(
        f'work directory {path} was held by {before or "a run that cannot be read"}: '
        f'watching for up to {STALE_S:g} s whether that run is alive.',
        file=sys.stderr,
        flush=True,
      )
      if _moves(name, clock):
        with _opened(name) as now:
          raise held(path, Claim.read(now) or before)
    if not lock:
      file = _replaced(name, file)
    claim = Claim.of_this_process()
    _write(file, claim)
    if lock != 'flock' or not _is_local(path):
      # Locks may be each machine's own, and two may have come at once: the last one
      # has it.
      clock.sleep(_LOOK_S)
    with _opened(name) as now:
      if Claim.read(now) != claim:
        raise held(path, Claim.read(now))
  except BaseException:
    os.close(file)
    raise
  owner = Owner(name, file, claim)
  owner.begin()
  return owner


def held(path: pathlib.Path, claim: Claim | None) -> UserError:
  """Returns the error of a work directory that another run holds."""
  whose = claim or f'a run of {_owner_of(path / OWNER)}'
  return UserError(
    f'work directory {path} is in use by {whose}. Look at it with `python -m '
    f'jaxagent.why {path}`; stop that run, or choose another --work_dir. A run that '
    f'is dead is taken over: at once on its own machine, after {STALE_S:g} s '
    'elsewhere.'
  )


def check(path: pathlib.Path, clock: Clock | None = None) -> None:
  """Raises UserError where a run holds the work directory; takes nothing."""
  name = path / OWNER
  try:
    with _opened(name) as file:
      lock, claim = _lock(file, fcntl.LOCK_SH), Claim.read(file)
      if lock == 'flock':
        fcntl.flock(file, fcntl.LOCK_UN)  # a run may begin meanwhile
        if _is_of_here(claim):
          return
      elif not lock and _is_of_here(claim):
        raise held(path, claim)
      if os.fstat(file).st_size and _moves(
        name, clock or RealClock(), 3 * BEAT_S
      ):
        raise held(path, claim)
  except OSError:
    return  # none was begun, or taking it will say why not


@contextlib.contextmanager
def holding(
  path: pathlib.Path, lost: Callable[[Exception], None]
) -> Iterator[Owner]:
  """Holds a work directory; `lost` is called, once, where the hold is lost."""
  owner = taken(path)
  owner.lost = lost
  try:
    yield owner
  finally:
    owner.close()


def _lock(file: int, kind: int = fcntl.LOCK_EX) -> str:
  """Returns 'flock' if the file is locked now, 'none' if it cannot be, '' if held."""
  try:
    fcntl.flock(file, kind | fcntl.LOCK_NB)
  except OSError as error:
    if error.errno in _NO_LOCKS:
      return 'none'
    if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
      return ''
    raise UserError(f'the work directory cannot be locked: {error}') from error
  return 'flock'


def _is_of_here(claim: Claim | None) -> bool:
  """Whether the lock decides: it is kept by the kernel that the owner ran on."""
  return claim is not None and bool(claim.boot) and claim.boot == _boot()


def _moves(
  name: pathlib.Path, clock: Clock, longest_s: float = STALE_S
) -> bool:
  """Watches a claim for a while; whether it changes."""
  first, began = _seen(name), clock.now()
  while clock.now() - began < longest_s:
    clock.sleep(_POLL_S)
    if _seen(name) != first:
      return True
  return False


def _seen(name: pathlib.Path) -> tuple[int, bytes]:
  """Returns what a beat or a new claim changes."""
  try:
    with _opened(name) as file:
      return os.fstat(file).st_mtime_ns, os.pread(file, _LONGEST_BYTES, 0)
  except OSError:
    return 0, b''


def _write(file: int, claim: Claim) -> None:
  """Writes the claim. Raises UserError where the disk is full."""
  text = json.dumps(dataclasses.asdict(claim)).encode()
  try:
    os.ftruncate(file, 0)
    os.pwrite(file, text, 0)
    os.fsync(file)
  except OSError as error:
    raise UserError(
      f'the work directory cannot be written: {error.strerror}. Choose another '
      '--work_dir, or free space.'
    ) from error


def _replaced(name: pathlib.Path, file: int) -> int:
  """Puts a new file, which this process has locked, in the place of OWNER."""
  # Of another machine a process may have the same number.
  new = name.with_name(f'{OWNER}.{os.getpid()}-{uuid.uuid4().hex[:8]}')
  opened = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
  _lock(opened)
  os.replace(new, name)
  os.close(file)
  return opened


def _is_local(path: pathlib.Path) -> bool:
  """Whether a folder lies on a file system of this machine alone, by its type."""
  device, kinds = os.stat(path).st_dev, set()
  where = f'{os.major(device)}:{os.minor(device)}'
  with contextlib.suppress(OSError):
    for line in pathlib.Path('/proc/self/mountinfo').read_text().splitlines():
      mount, _, kind = line.partition(' - ')
      if mount.split()[2] == where:
        kinds.add(kind.split()[0])
  return bool(kinds) and kinds <= _LOCAL


@contextlib.contextmanager
def _opened(name: pathlib.Path) -> Iterator[int]:
  """Opens anew, so that a network file system asks its server."""
  file = os.open(name, os.O_RDONLY)
  try:
    yield file
  finally:
    os.close(file)


def _boot() -> str:
  """Returns what names the running kernel; '' where nothing does."""
  try:
    return pathlib.Path('/proc/sys/kernel/random/boot_id').read_text().strip()
  except OSError:
    return ''


def _user() -> str:
  try:
    return getpass.getuser()
  except (KeyError, OSError):  # a user id without a name
    return str(os.getuid())


def _owner_of(name: pathlib.Path) -> str:
  try:
    return f'user {name.owner()!r}'
  except (OSError, KeyError):
    return 'another user'


def main(argv: Sequence[str] | None = None) -> int:
  """Says whether a run holds a work directory; returns the exit status."""
  given = sys.argv[1:] if argv is None else list(argv)
  if len(given) != 1:
    print('usage: python -m jaxagent.files.owner WORK_DIR', file=sys.stderr)
    return 2
  try:
    check(pathlib.Path(given[0]))
  except UserError as error:
    print(f'error: {error}', file=sys.stderr)
    return 2
  return 0


if __name__ == '__main__':
  sys.exit(main())
