"""Control groups, v1 or v2: memory, pids and CPU of one job's whole tree."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator

PERIOD_US = 20_000  # of the CPU quota: short, so that no job waits long


def _read(path: str) -> str:
  with open(path) as f:
    return f.read()


def _write(path: str, value: str) -> None:
  with open(path, 'w') as f:
    f.write(value)


def _mounts() -> tuple[dict[str, str], str]:
  """({v1 controller: mount point}, v2 mount point or '')."""
  v1: dict[str, str] = {}
  v2 = ''
  for line in _read('/proc/self/mounts').splitlines():
    _, target, kind, options = line.split()[:4]
    if kind == 'cgroup2':
      v2 = v2 or target
    elif kind == 'cgroup':
      for option in options.split(','):
        v1.setdefault(option, target)
  return v1, v2


def _own() -> dict[str, str]:
  """{controller ('' for v2): path of this process}."""
  own = {}
  for line in _read('/proc/self/cgroup').splitlines():
    _, names, path = line.split(':', 2)
    for name in names.split(','):
      own[name] = path
  return own


def _rmdir(path: str) -> None:
  for _ in range(200):
    try:
      os.rmdir(path)
      return
    except FileNotFoundError:
      return
    except OSError as error:
      if error.errno != errno.EBUSY:
        raise
      time.sleep(0.001)


class Cgroups:
  """A parent group of this launcher; one child group per job."""

  def __init__(self, dirs: dict[str, str], version: int):
    self.dirs, self.version = dirs, version
    self.kept: dict[int, Group] = {}

  def create(
    self, slot: int, name: str, memory_mb: int, pids: int, cpus: int = 0
  ) -> Group:
    """A group for one job. v1 groups are kept per slot and reset: making
    and removing three of them costs more than a small job.

    cpus: how many CPUs' time it may use; 0 leaves that open.
    """
    if self.version == 1:
      if slot not in self.kept:
        self.kept[slot] = Group(self._make(f'slot{slot}'), 1)
      group = self.kept[slot]
    else:
      group = Group(self._make(name), 2)
    group.begin(memory_mb, pids, cpus)
    return group

  @property
  def counts_cpu(self) -> bool:
    """Whether the CPU quota of `create` is kept."""
    if self.version == 1:
      return 'cpu' in self.dirs
    return os.path.exists(self.dirs['all'] + '/cpu.max')

  def _make(self, name: str) -> dict[str, str]:
    made: dict[str, str] = {}
    for controller, parent in self.dirs.items():
      path = f'{parent}/{name}'
      if path not in made.values():  # cpu and cpuacct are often mounted as one
        os.mkdir(path)
      made[controller] = path
    return made

  def remove(self) -> None:
    for group in self.kept.values():
      group.close(force=True)
    for path in self.dirs.values():
      _remove_parent(path)


class Group:
  """One job's group; `fds` are its open membership files."""

  def __init__(self, dirs: dict[str, str], version: int):
    self.dirs, self.version = dirs, version
    # A thread that moves itself through v1's `tasks` needs no global lock.
    name = 'tasks' if version == 1 else 'cgroup.procs'
    self.fds = [
      os.open(f'{d}/{name}', os.O_WRONLY | os.O_CLOEXEC)
      for d in dict.fromkeys(dirs.values())
    ]
    self.limits: tuple[int, int, int] | None = None
    self.kills_before = 0

  def begin(self, memory_mb: int, pids: int, cpus: int) -> None:
    """Sets the limits and resets the counters."""
    if self.limits != (memory_mb, pids, cpus):
      memory = str(memory_mb << 20)
      if self.version == 1:
        self._limit_v1(memory)
      else:
        path = self.dirs['all']
        _write(path + '/memory.max', memory)
        if os.path.exists(path + '/memory.swap.max'):
          _write(path + '/memory.swap.max', '0')
      folder = self.dirs['pids' if self.version == 1 else 'all']
      _write(folder + '/pids.max', str(pids))
      self._limit_cpu(cpus)
      self.limits = (memory_mb, pids, cpus)
    if self.version == 1:
      _write(self.dirs['memory'] + '/memory.max_usage_in_bytes', '0')
      _write(self.dirs['cpuacct'] + '/cpuacct.usage', '0')
      self.kills_before = _counter(self.dirs['memory'] + '/memory.oom_control')

  def _limit_cpu(self, cpus: int) -> None:
    quota = cpus * PERIOD_US if cpus < (os.cpu_count() or 1) else 0
    if self.version == 2:
      path = self.dirs['all'] + '/cpu.max'
      if os.path.exists(path):
        _write(path, f'{quota or "max"} {PERIOD_US}')
    elif 'cpu' in self.dirs:
      path = self.dirs['cpu']
      _write(path + '/cpu.cfs_quota_us', '-1')  # valid with any period
      _write(path + '/cpu.cfs_period_us', str(PERIOD_US))
      with contextlib.suppress(OSError):  # more than the group above us has
        _write(path + '/cpu.cfs_quota_us', str(quota or -1))

  def _limit_v1(self, memory: str) -> None:
    path = self.dirs['memory']
    swap = path + '/memory.memsw.limit_in_bytes'
    if os.path.exists(swap):
      _write(swap, '-1')  # the plain limit may never exceed this one
    try:
      _write(path + '/memory.limit_in_bytes', memory)
    except OSError:  # what is left of the last job has to go first
      _write(path + '/memory.force_empty', '0')
      _write(path + '/memory.limit_in_bytes', memory)
    if os.path.exists(swap):
      _write(swap, memory)

  def close(self, *, force: bool = False) -> None:
    if self.version == 1 and not force:
      return
    for fd in self.fds:
      os.close(fd)
    self.fds = []

  def finish(self) -> dict[str, float]:
    """Counters of the dead tree; removes a v2 group."""
    if self.version == 1:
      record = _used_v1(self.dirs['memory'], self.dirs['cpuacct'])
      record['oom_kills'] -= self.kills_before
      return record
    record = _used_v2(self.dirs['all'])
    _rmdir(self.dirs['all'])
    return record


def _used_v1(memory: str, cpuacct: str) -> dict[str, float]:
  return {
    'peak_bytes': int(_read(memory + '/memory.max_usage_in_bytes')),
    'oom_kills': _counter(memory + '/memory.oom_control'),
    'cpu_s': int(_read(cpuacct + '/cpuacct.usage')) * 1e-9,
  }


def _used_v2(path: str) -> dict[str, float]:
  record: dict[str, float] = {
    'oom_kills': _counter(path + '/memory.events'),
    'cpu_s': _counter(path + '/cpu.stat', 'usage_usec') * 1e-6,
  }
  if os.path.exists(path + '/memory.peak'):
    record['peak_bytes'] = int(_read(path + '/memory.peak'))
  return record


def own_use() -> dict[str, float]:
  """Counters of the group that this process is in; {} where none is read.

  For the first process of a container, which sees its group read-only.
  """
  try:
    v1, v2 = _mounts()
    own = _own()
    if 'memory' in v1 and 'cpuacct' in v1:
      return _used_v1(
        *(
          os.path.dirname(_under(v1[c], own.get(c, '/'), 'x'))
          for c in ('memory', 'cpuacct')
        )
      )
    return _used_v2(os.path.dirname(_under(v2, own.get('', '/'), 'x')))
  except (OSError, ValueError):
    return {}


def _remove_parent(path: str) -> None:
  try:
    for name in os.listdir(path):
      if os.path.isdir(f'{path}/{name}'):
        _rmdir(f'{path}/{name}')
    _rmdir(path)
  except OSError:
    pass


def remove_left(name: str) -> None:
  """Removes the group `name` that its own launcher could not remove."""
  if not name:
    return
  try:
    v1, v2 = _mounts()
    own = _own()
  except (OSError, ValueError):
    return
  parents = [_under(mount, own.get(k, '/'), name) for k, mount in v1.items()]
  if v2:
    parents += [f'{p}/{name}' for p in _parents_v2(v2, own.get('', '/'))]
  for path in parents:
    if os.path.isdir(path):
      _remove_parent(path)


def _counter(path: str, name: str = 'oom_kill') -> int:
  for line in _read(path).splitlines():
    key, value = line.split()
    if key == name:
      return int(value)
  return 0


def _has_quota(v1: dict[str, str]) -> bool:
  """Whether the kernel was built with CFS bandwidth control."""
  return 'cpu' in v1 and os.path.exists(v1['cpu'] + '/cpu.cfs_period_us')


def find(name: str) -> tuple[Cgroups | None, str]:
  """Returns (a usable parent group or None, why)."""
  made: list[str] = []
  try:
    v1, v2 = _mounts()
    own = _own()
    wanted = ('memory', 'pids', 'cpuacct')
    if all(c in v1 for c in wanted):
      dirs = {}
      for controller in (*wanted, *(('cpu',) if _has_quota(v1) else ())):
        path = _under(v1[controller], own.get(controller, '/'), name)
        if path not in made:
          os.mkdir(path)
          made.append(path)
        dirs[controller] = path
      return Cgroups(dirs, 1), f'cgroup v1: {", ".join(dirs)}'
    if not v2:
      return None, 'cgroup: no memory and pids controllers are mounted'
    reasons = []
    for parent in _parents_v2(v2, own.get('', '/')):
      try:
        return _make_v2(parent, name)
      except OSError as error:
        reasons.append(str(error))
    return None, f'cgroup: {"; ".join(reasons)}'
  except OSError as error:
    for path in made:
      _rmdir(path)
    return None, f'cgroup: {error}'


def _parents_v2(mount: str, own: str) -> Iterator[str]:
  """Yields possible parents of a new group: this process's, then those above.

  A group that holds processes gives its children no controllers (cgroups(7),
  "no internal processes"), and this process is in one. One with a limit of its
  own is not left: what runs here was meant to stay below it.
  """
  path = os.path.dirname(_under(mount, own, 'x'))
  while True:
    yield path
    if path == mount or _is_limited(path):
      return
    path = os.path.dirname(path)


def _is_limited(path: str) -> bool:
  try:
    return _read(path + '/memory.max').strip() != 'max'
  except OSError:
    return False


def _make_v2(parent: str, name: str) -> tuple[Cgroups, str]:
  """A group below `parent`; OSError where it cannot count there."""
  path = f'{parent}/{name}'
  os.mkdir(path)
  try:
    offered = _read(path + '/cgroup.controllers').split()
    if not {'memory', 'pids'} <= set(offered):
      raise PermissionError(
        f'{parent} delegates {offered or "nothing"} to its children'
      )
    used = ['memory', 'pids', *(('cpu',) if 'cpu' in offered else ())]
    _write(path + '/cgroup.subtree_control', ' '.join(f'+{c}' for c in used))
  except OSError:
    _rmdir(path)
    raise
  return Cgroups({'all': path}, 2), f'cgroup v2: {", ".join(used)}'


def _under(mount: str, own: str, name: str) -> str:
  path = f'{mount}{own.rstrip("/")}'
  if not os.path.isdir(path):  # a container sees its own group as the root
    path = mount
  return f'{path}/{name}'
