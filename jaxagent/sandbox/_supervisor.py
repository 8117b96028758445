"""The first process of one job's namespaces: builds the room, keeps the
clock, kills everything, and only then brings the files out.

It runs in a child of the launcher (pid 1 of a fresh pid namespace at T2 and
T3, a subreaper below) and speaks to the pool over the job's own socket, so
neither scripts nor results ever pass through the launcher.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import stat
import sys
import time
from collections.abc import Iterable
from typing import Any

from jaxagent.sandbox import _linux, _runner, _wire, _zygote

TICK_S = 0.05
KILL_S = 10.0
MB = 1 << 20
# RLIMIT_DATA over the limit: reserved memory that is never touched is free.
DATA_FACTOR = 4
INSIDE_UID = 65534
BOX = '/box'


class Room:
  """Where the job lives: paths differ with and without namespaces."""

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
      'proc', '/proc', 'proc',
      _linux.MS_RDONLY | _linux.MS_NOSUID | _linux.MS_NODEV
      | _linux.MS_NOEXEC, 'hidepid=2',
    )
    _linux.mount(
      'box', BOX, 'tmpfs', _linux.MS_NOSUID | _linux.MS_NODEV,
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
        f'{BOX}/.mounts/{name}', f'{self.workspace}/{name}', '',
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


def _status(pid: int) -> tuple[int, int]:
  """(resident, page tables) of a process in bytes, in constant time.

  Resident is anonymous and shared memory, shared pages counted whole. Reading
  what was never written grows the page tables and nothing else.
  """
  found = {}
  try:
    with open(f'/proc/{pid}/status') as f:
      for line in f:
        name, _, rest = line.partition(':')
        if name in ('RssAnon', 'RssShmem', 'VmPTE'):
          found[name] = 1024 * int(rest.split()[0])
  except (OSError, ValueError, IndexError):
    pass
  resident = found.get('RssAnon', 0) + found.get('RssShmem', 0)
  return resident, found.get('VmPTE', 0)


def _proportional(pid: int, resident: int) -> int:
  """As `resident`, each page split among its users. A process that hides its
  maps is charged all of it. Takes long where page tables are large."""
  try:
    with open(f'/proc/{pid}/smaps_rollup') as f:
      return 1024 * sum(
        int(line.split()[1]) for line in f
        if line.startswith(('Pss_Anon:', 'Pss_Shmem:'))
      )
  except (OSError, ValueError):
    return resident


def _memory(pids: Iterable[int], limit: int) -> int:
  """Bytes that processes hold together; shared pages are split only where the
  sum passes `limit` with them and not by page tables alone."""
  each = {pid: _status(pid) for pid in pids}
  tables = sum(t for _, t in each.values())
  whole = sum(r for r, _ in each.values())
  if tables + whole <= limit or tables > limit:
    return tables + whole
  return tables + sum(_proportional(p, r) for p, (r, _) in each.items())


def _sockets() -> int:
  """Open sockets of this network namespace."""
  try:
    with open('/proc/net/sockstat') as f:
      return int(f.readline().split()[2])
  except (OSError, ValueError, IndexError):
    return 0


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


def _lower_privileges(room: Room, header: dict[str, Any]) -> None:
  """User namespace, uid, capabilities, rlimits, Landlock, seccomp."""
  config, uid = room.config, room.request['uid']
  _rlimits(header, config, uid)
  _keep_to_cpus(room, header)
  if uid is not None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
  if not room.namespaces:
    _linux.prctl(_linux.PR_SET_PDEATHSIG, signal.SIGKILL)
  # Files of /proc/self belong to root while the process is not dumpable.
  _linux.prctl(_linux.PR_SET_DUMPABLE, 1)
  _prefer_to_kill(room)
  if room.namespaces and config['user_namespaces']:
    _linux.unshare(_linux.NEWUSER)
    owner = 0 if uid is None else uid
    for name, text in (
      ('setgroups', 'deny'),
      ('uid_map', f'{INSIDE_UID} {owner} 1'),
      ('gid_map', f'{INSIDE_UID} {owner} 1'),
    ):
      fd = os.open(f'self/{name}', os.O_WRONLY, dir_fd=room.proc_fd)
      os.write(fd, text.encode())
      os.close(fd)
    # After unshare: the limit that a user namespace is made under holds for
    # all of its maker's processes, other slots' among them (Linux 5.14).
    _lower(resource.RLIMIT_NPROC, header['pids'])
  if room.namespaces:
    _linux.drop_capabilities()
  _linux.prctl(_linux.PR_SET_NO_NEW_PRIVS, 1)
  if config['landlock']:
    write, read = room.writable(), ['/']
    if not room.namespaces:
      read = config['readable'] + list(header['mounts'].values())
    devices = ['/dev/null', '/dev/zero', '/dev/full', '/dev/random',
               '/dev/urandom', *config['gpu_devices']]
    _linux.landlock(read, write + devices)
  if config['seccomp']:
    _linux.seccomp(
      namespaces=room.namespaces, count_memory=bool(config['cgroups']),
    )


def _prefer_to_kill(room: Room) -> None:
  """Where the machine runs out of memory the job goes first."""
  path, folder = 'self/oom_score_adj', room.proc_fd
  if folder < 0:
    path, folder = '/proc/' + path, None
  fd = os.open(path, os.O_WRONLY, dir_fd=folder)
  os.write(fd, b'1000')
  os.close(fd)


def user_threads() -> int:
  """Threads of this process's user id, as RLIMIT_NPROC counts them."""
  total, uid = 0, os.geteuid()
  for name in os.listdir('/proc'):
    if name.isdigit():
      try:
        if os.stat(f'/proc/{name}').st_uid == uid:
          total += len(os.listdir(f'/proc/{name}/task'))
      except OSError:
        continue
  return total


def _rlimits(header: dict[str, Any], config: dict, uid: int | None) -> None:
  # A second line only: the cgroup or the watch is to see what is held, not
  # the job to say it. CUDA reserves address space by the TB.
  memory = resource.RLIM_INFINITY
  if not header['gpus'] and not config['cgroups']:
    memory = DATA_FACTOR * header['memory_mb'] * MB
    memory += config['base_data'] if header['zygote'] else 0
  pairs = [
    (resource.RLIMIT_CORE, 0),
    (resource.RLIMIT_DATA, memory),
    (resource.RLIMIT_FSIZE, header['disk_mb'] * MB + header['initial_bytes']),
    (resource.RLIMIT_NOFILE, 512),
    (resource.RLIMIT_MSGQUEUE, 0),
    (resource.RLIMIT_MEMLOCK, 0),
    (resource.RLIMIT_CPU, int(header['timeout_s'] * 4 * os.cpu_count()) + 5),
  ]
  if uid is not None:
    # The job's own first process is counted.
    pairs.append((resource.RLIMIT_NPROC, header['pids']))
  elif not config['namespaces'] and not config['real_root']:
    # Shared with all that the user runs; the watch counts this job's own.
    most = user_threads() + (header['pids'] + 1) * config['slots']
    pairs.append((resource.RLIMIT_NPROC, most))
  for kind, value in pairs:
    _lower(kind, value)


def _lower(kind: int, value: int) -> None:
  _, hard = resource.getrlimit(kind)
  if hard != resource.RLIM_INFINITY:
    value = hard if value == resource.RLIM_INFINITY else min(value, hard)
  resource.setrlimit(kind, (value, value))


def _keep_to_cpus(room: Room, header: dict[str, Any]) -> None:
  """Without a quota a job gets CPUs of its slot, so that many threads slow
  the job itself and not its neighbours, whose times are weights."""
  if room.config['cpu_quota']:
    return
  cpus, wanted = sorted(os.sched_getaffinity(0)), header['threads']
  if wanted >= len(cpus):
    return
  first = room.request['slot'] * wanted
  chosen = {cpus[(first + i) % len(cpus)] for i in range(wanted)}
  os.sched_setaffinity(0, chosen)


def _environment(room: Room, header: dict[str, Any]) -> dict[str, str]:
  threads = str(header['threads'])
  env = {
    'PATH': os.pathsep.join(
      [os.path.dirname(room.config['python']), '/usr/local/bin', '/usr/bin',
       '/bin']
    ),
    'HOME': room.root + '/tmp', 'TMPDIR': room.root + '/tmp',
    'LANG': 'C.UTF-8', 'PYTHONHASHSEED': '0',
    'PYTHONDONTWRITEBYTECODE': '1', 'PYTHONUNBUFFERED': '1',  # children's
    'CUDA_VISIBLE_DEVICES': ','.join(header['gpu_ids']),
    **room.config['environment'],
  }
  for name in ('OMP', 'OPENBLAS', 'MKL', 'NUMEXPR', 'LOKY'):
    env[f'{name}_MAX_CPU_COUNT' if name == 'LOKY'
        else f'{name}_NUM_THREADS'] = threads
  env.update(header['env'])
  return env


def become_job(room: Room, header: dict, out: int, sync: int):
  """Never returns. `sync` gets 'R' when ready, or 'E' and the error."""
  try:
    os.setsid()
    os.chdir(room.workspace)
    nothing = os.open('/dev/null', os.O_RDWR)
    for source, target in ((nothing, 0), (out, 1), (out, 2)):
      os.dup2(source, target)
    sync = os.dup2(sync, 200, inheritable=False)
    for fd in room.config.get('cgroup_fds', ()):
      os.write(fd, b'0')
    # Only now close the rest: the proc descriptor is still needed.
    keep_proc = room.proc_fd
    if keep_proc >= 0:
      room.proc_fd = os.dup2(keep_proc, 201, inheritable=False)
    os.closerange(3, 200)
    os.closerange(202, 4096)
    _lower_privileges(room, header)
    if room.proc_fd >= 0:
      os.close(room.proc_fd)
    env = _environment(room, header)
    for number in (signal.SIGPIPE, signal.SIGTERM, signal.SIGCHLD):
      signal.signal(number, signal.SIG_DFL)
    if header['zygote']:
      os.environ.clear()
      os.environ.update(env)
      os.write(sync, b'R')
      os.close(sync)
      _run_in_zygote(header)
    # Unbuffered: what a job printed before it was killed is kept, in order.
    command = [room.config['python'], '-I', '-B', '-u', room.config['runner'],
               header['script'], *header['argv']]
    os.write(sync, b'R')
    os.execve(command[0], command, env)
  except BaseException as error:  # noqa: BLE001: told to the supervisor
    try:
      os.write(sync, f'E{type(error).__name__}: {error}'.encode()[:900])
    finally:
      os._exit(125)


def _run_in_zygote(header: dict[str, Any]) -> None:
  import random

  signal.signal(signal.SIGINT, signal.default_int_handler)
  random.seed()
  if 'numpy' in sys.modules:
    sys.modules['numpy'].random.seed()
  for stream, fd in (('stdout', 1), ('stderr', 2)):
    value = open(fd, 'w', buffering=1, closefd=False, encoding='utf-8',
                 errors='backslashreplace')
    setattr(sys, stream, value)
    setattr(sys, f'__{stream}__', value)
  for name in [n for n in sys.modules if n.split('.')[0] == 'jaxagent']:
    del sys.modules[name]
  _runner.finish(_runner.run(header['script'], header['argv']))


class Watch:
  """Follows the job to its end: output, memory, deadline.

  child: its first process, or the zygote's stream of one (`_zygote.born`).
  """

  def __init__(self, room: Room, header: dict, child: int | socket.socket,
               out: int):
    self.room, self.header, self.out = room, header, out
    self.born = child if isinstance(child, socket.socket) else None
    self.child = -1 if self.born else child
    self.end_fd = (
      self.born.fileno() if self.born else os.pidfd_open(self.child)
    )
    self.cpu_s, self.resident = 0.0, 0  # of processes that are not ours
    self.reason = ''
    self.status: int | None = None
    self.head, self.tail = bytearray(), bytearray()
    self.total = 0
    self.peak = 0
    self.disk = header['disk_mb'] * MB + header['initial_bytes']
    self.memory = header['memory_mb'] * MB
    if header['zygote']:  # what it holds from the start is not its own
      self.memory += room.config['base_data']
    self.keep = header['keep_kb'] * 1024 // 2
    self.cap = header['output_kb'] * 1024

  def follow(self) -> None:
    begin = time.monotonic()
    deadline = begin + self.header['timeout_s']
    poll = select.poll()
    poll.register(self.end_fd, select.POLLIN)
    poll.register(self.out, select.POLLIN)
    sample_at = begin + TICK_S
    while not self.reason:
      now = time.monotonic()
      if now >= deadline:
        self.reason = 'timeout'
        break
      if now >= sample_at:
        self._sample()
        sample_at = now + max(TICK_S, 10 * (time.monotonic() - now))
      wait = min(deadline, sample_at) - time.monotonic()
      events = dict(poll.poll(max(0.0, wait) * 1000 + 0.5))
      if self.out in events and not self._drain(once=True):
        poll.unregister(self.out)
      if self.end_fd in events:
        break

  def _drain(self, *, once: bool) -> bool:
    """False at the end of the stream. Keeps head and tail of the first cap."""
    while True:
      try:
        part = os.read(self.out, 65536)
      except BlockingIOError:
        return True
      if not part:
        return False
      part = part[:max(0, self.cap + 1 - self.total)]
      self.total += len(part)
      over = self.total > self.cap
      part = part[:len(part) - 1] if over else part
      room = max(0, self.keep - len(self.head))
      self.head += part[:room]
      self.tail += part[room:]
      if len(self.tail) > 4 * self.keep + 65536:
        del self.tail[:-self.keep]
      if over:
        self.reason = self.reason or 'output'
        return False
      if once:
        return True

  def _sample(self) -> None:
    self._reap(block=False)
    used, _ = self.room.used(self.disk)
    if not self.room.namespaces and used > self.disk:
      self.reason = 'disk'
    if self.room.config['cgroups']:
      return
    memory = 0
    if self.room.namespaces:
      memory = used + _sockets() * self.room.config['socket_bytes']
    pids = descendants(self.room.namespaces)
    memory += _memory(pids, self.memory - memory)
    self.peak = max(self.peak, memory)
    if memory > self.memory:
      self.reason = 'memory'
    elif len(pids) > self.header['pids']:
      self.reason = 'processes'

  def memory_full(self, largest: int) -> bool:
    """Whether the job held its limit between two samples.

    largest: resident bytes of its largest process. Where there are cgroups
    their own counter says it.
    """
    held = max(self.peak, largest)
    return not self.room.config['cgroups'] and held >= self.memory

  def _reap(self, *, block: bool) -> None:
    while True:
      try:
        pid, status = os.waitpid(-1, 0 if block else os.WNOHANG)
      except ChildProcessError:
        return
      if pid == 0:
        return
      if pid == self.child:
        self.status = status

  def kill_all(self) -> None:
    """Returns when no process of the job is left."""
    if self.room.namespaces:
      try:
        os.kill(-1, signal.SIGKILL)
      except ProcessLookupError:
        pass
      self._reap(block=True)
      if self.born:
        end = _zygote.ended(self.born)
        self.status = end['status']
        self.cpu_s, self.resident = end['cpu_s'], end['resident']
    else:
      self._kill_descendants()
    self._drain(once=False)
    os.close(self.out)

  def _kill_descendants(self) -> None:
    """All of them are in the job's process group: seccomp keeps them there.

    A signal to a group cannot be outrun by forking (kernel/fork.c: a fork
    under way is restarted when a signal is pending). Raises TimeoutError
    where something outlives it all the same.
    """
    end = time.monotonic() + KILL_S
    while True:
      _ignore_gone(os.killpg, self.child)
      if self.status is None:  # it may have no group of its own yet
        _ignore_gone(os.kill, self.child)
      if not self.room.config['seccomp']:  # T0: as well as can be
        for pid in descendants(False):
          _ignore_gone(os.kill, pid)
      self._reap(block=False)
      try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
      except ChildProcessError:
        return
      if time.monotonic() > end:
        raise TimeoutError(f'processes of the job outlive SIGKILL: '
                           f'{descendants(False)[:8]}')
      time.sleep(0.001)

  def launcher_died(self, *_) -> None:
    """Signal handler: without namespaces nothing else ends the job."""
    try:
      self._kill_descendants()
    finally:
      os._exit(1)

  def text(self) -> str:
    tail = bytes(self.tail[-self.keep:]) if self.keep else b''
    cut = len(self.head) + len(tail) < min(self.total, self.cap)
    middle = b'\n[... cut ...]\n' if cut else b''
    return (bytes(self.head) + middle + tail).decode('utf-8', 'replace')


def _ignore_gone(kill, pid: int) -> None:
  try:
    kill(pid, signal.SIGKILL)
  except (ProcessLookupError, PermissionError):
    pass


def descendants(namespaces: bool) -> list[int]:
  """Pids of the job: everyone else in the namespace, or the tree below us."""
  me = os.getpid()
  if namespaces:
    return [int(n) for n in os.listdir('/proc')
            if n.isdigit() and int(n) != me]
  found: list[int] = []
  below = children()
  queue = [me]
  while queue:
    for child in below.get(queue.pop(), ()):
      found.append(child)
      queue.append(child)
  return found


def children() -> dict[int, list[int]]:
  """{pid: those it is the parent of} of every process in sight."""
  found: dict[int, list[int]] = {}
  for name in os.listdir('/proc'):
    if name.isdigit():
      try:
        with open(f'/proc/{name}/stat', 'rb') as f:
          fields = f.read().rsplit(b')', 1)[1].split()
      except (OSError, IndexError):
        continue
      found.setdefault(int(fields[1]), []).append(int(name))
  return found


def collect(workspace: int, paths: list[str],
            cap: int) -> tuple[dict[str, bytes], list[str]]:
  """Reads regular files through descriptors: no link, FIFO or hard link.

  workspace: descriptor of the folder, from before the job ran. Returns ({path: content}, [why a path was left out]).
  """
  found: dict[str, bytes] = {}
  problems: list[str] = []
  for path in paths:
    folder = os.dup(workspace)
    try:
      *parents, name = path.split('/')
      for part in parents:
        below = os.open(
          part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder
        )
        os.close(folder)
        folder = below
      status = os.stat(name, dir_fd=folder, follow_symlinks=False)
      if not stat.S_ISREG(status.st_mode):
        raise ValueError('is not a regular file')
      if status.st_nlink != 1:
        raise ValueError('has hard links')
      if status.st_size > cap:
        raise ValueError(f'has {status.st_size} bytes, more than {cap}')
      flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
      with os.fdopen(os.open(name, flags, dir_fd=folder), 'rb') as f:
        found[path] = f.read(cap + 1)[:cap]
    except FileNotFoundError:
      problems.append(f'{path}: was not written')
    except (OSError, ValueError) as error:
      problems.append(f'{path}: {error}')
    finally:
      os.close(folder)
  return found, problems


def _sync(fd: int, late: bool = False) -> str:
  """'' when the job is ready to run, else what went wrong."""
  text = os.read(fd, 1024)
  if late and not text:
    return ''
  if text[:1] == b'R':
    return ''
  return text[1:].decode('utf-8', 'replace') or 'the job died in its set-up.'


def _begin(room: Room, header: dict, out: int,
           sync: int) -> int | socket.socket:
  """The job's first process: its pid, or the zygote's stream of it."""
  config = room.config
  if header['zygote'] and config.get('zygote_fd') is not None:
    needed = {k: v for k, v in header.items() if k not in ('files', 'collect')}
    return _zygote.born(
      config['zygote_fd'], {'request': room.request, 'header': needed},
      {'out': out, 'sync': sync, 'proc': room.proc_fd}, config['cgroup_fds'],
    )
  child = os.fork()
  if child == 0:
    become_job(room, header, out, sync)
  return child


def supervise(conn: socket.socket, request: dict, config: dict) -> None:
  """Runs one job and writes one result frame. Called in the forked child."""
  start = request['cloned_at']
  header, blobs = _wire.receive(conn)
  if header['zygote'] and config['container']:
    _zygote.warm_up()
  room = (ContainerRoom if config['container'] else Room)(request, config)
  room.build(header, blobs)
  room.place_mounts(header)
  room.open_workspace()
  initial, _ = room.used(0)
  del blobs
  out_r, out_w = os.pipe2(os.O_CLOEXEC)
  sync_r, sync_w = os.pipe2(os.O_CLOEXEC)
  os.set_blocking(out_r, False)
  watch = Watch(room, header, _begin(room, header, out_w, sync_w), out_r)
  if not room.namespaces:
    signal.signal(signal.SIGTERM, watch.launcher_died)
  for fd in (out_w, sync_w):
    os.close(fd)
  error = _sync(sync_r)
  began = time.monotonic()
  if not error:
    watch.follow()
  ended = time.monotonic()
  watch.kill_all()
  if not error and watch.status == 125 << 8:
    error = _sync(sync_r, late=True)  # the interpreter could not be executed
  usage = resource.getrusage(resource.RUSAGE_CHILDREN)
  resident = max(usage.ru_maxrss * 1024, watch.resident)
  used, full = room.used(watch.disk)
  files: dict[str, bytes] = {}
  problems: list[str] = []
  if not error:
    files, problems = collect(
      room.workspace_fd, header['collect'], header['collect_mb'] * MB
    )
  result = {
    'error': error, 'reason': watch.reason, 'status': watch.status,
    'startup_s': began - start, 'exec_s': ended - began,
    'cpu_s': usage.ru_utime + usage.ru_stime + watch.cpu_s,
    'peak_bytes': max(watch.peak, resident),
    'written': max(0, used - initial), 'disk_full': full,
    'memory_full': watch.memory_full(resident),
    'output_bytes': watch.total,
    'ended_at': ended, 'names': list(files), 'problems': problems,
  }
  _wire.send(conn, result, [watch.text().encode(), *files.values()])
