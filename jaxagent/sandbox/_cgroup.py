"""Control groups, v1 or v2: memory, pids and CPU of one job's whole tree."""

from __future__ import annotations

import errno
import os
import time


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

  def create(self, name: str, memory_mb: int, pids: int) -> Group:
    made = {}
    for controller, parent in self.dirs.items():
      path = f'{parent}/{name}'
      os.mkdir(path)
      made[controller] = path
    memory = str(memory_mb << 20)
    if self.version == 1:
      _write(made['memory'] + '/memory.limit_in_bytes', memory)
      swap = made['memory'] + '/memory.memsw.limit_in_bytes'
      if os.path.exists(swap):
        _write(swap, memory)
      _write(made['pids'] + '/pids.max', str(pids))
    else:
      path = made['all']
      _write(path + '/memory.max', memory)
      if os.path.exists(path + '/memory.swap.max'):
        _write(path + '/memory.swap.max', '0')
      _write(path + '/pids.max', str(pids))
    return Group(made, self.version)

  def remove(self) -> None:
    for path in self.dirs.values():
      try:
        for name in os.listdir(path):
          if os.path.isdir(f'{path}/{name}'):
            _rmdir(f'{path}/{name}')
        _rmdir(path)
      except OSError:
        pass


class Group:
  """One job's group; `fds` are its open membership files."""

  def __init__(self, dirs: dict[str, str], version: int):
    self.dirs, self.version = dirs, version
    self.fds = [
      os.open(f'{d}/cgroup.procs', os.O_WRONLY | os.O_CLOEXEC)
      for d in dirs.values()
    ]

  def close(self) -> None:
    for fd in self.fds:
      os.close(fd)
    self.fds = []

  def finish(self) -> dict[str, float]:
    """Counters of the dead tree; removes the group."""
    record: dict[str, float] = {}
    if self.version == 1:
      memory = self.dirs['memory']
      record['peak_bytes'] = int(_read(memory + '/memory.max_usage_in_bytes'))
      record['oom_kills'] = _counter(memory + '/memory.oom_control')
      record['cpu_s'] = int(_read(
        self.dirs['cpuacct'] + '/cpuacct.usage')) * 1e-9
    else:
      path = self.dirs['all']
      if os.path.exists(path + '/memory.peak'):
        record['peak_bytes'] = int(_read(path + '/memory.peak'))
      record['oom_kills'] = _counter(path + '/memory.events')
      record['cpu_s'] = _counter(path + '/cpu.stat', 'usage_usec') * 1e-6
    for path in self.dirs.values():
      _rmdir(path)
    return record


def _counter(path: str, name: str = 'oom_kill') -> int:
  for line in _read(path).splitlines():
    key, value = line.split()
    if key == name:
      return int(value)
  return 0


def find(name: str) -> tuple[Cgroups | None, str]:
  """Returns (a usable parent group or None, why)."""
  made: list[str] = []
  try:
    v1, v2 = _mounts()
    own = _own()
    wanted = ('memory', 'pids', 'cpuacct')
    if all(c in v1 for c in wanted):
      dirs = {}
      for controller in wanted:
        path = _under(v1[controller], own.get(controller, '/'), name)
        os.mkdir(path)
        made.append(path)
        dirs[controller] = path
      return Cgroups(dirs, 1), 'cgroup v1: memory, pids, cpuacct'
    if not v2:
      return None, 'cgroup: no memory and pids controllers are mounted'
    parent = v2 + own.get('', '/').rstrip('/')
    path = f'{parent}/{name}'
    os.mkdir(path)
    made.append(path)
    offered = _read(path + '/cgroup.controllers').split()
    if not {'memory', 'pids'} <= set(offered):
      raise PermissionError(
        f'{parent} delegates {offered or "nothing"} to its children'
      )
    _write(path + '/cgroup.subtree_control', '+memory +pids')
    return Cgroups({'all': path}, 2), 'cgroup v2: memory, pids'
  except OSError as error:
    for path in made:
      _rmdir(path)
    return None, f'cgroup: {error}'


def _under(mount: str, own: str, name: str) -> str:
  path = f'{mount}{own.rstrip("/")}'
  if not os.path.isdir(path):  # a container sees its own group as the root
    path = mount
  return f'{path}/{name}'
