"""Steps by which the first process of a job confines itself before the script.

Standard library only.
"""

from __future__ import annotations

import os
import re
import resource
import signal
from collections.abc import Sequence
from typing import Any, NoReturn

from jaxagent.sandbox import _counting, _linux, _zygote
from jaxagent.sandbox._room import Room

MB = 1 << 20
# RLIMIT_DATA over the limit: reserved memory that is never touched is free.
DATA_FACTOR = 4
# RLIMIT_AS over the limit: what is mapped, and never written, costs a page table
# of 4 KB for every 2 MB of it, so a process's are an eighth of the limit at most.
SPACE_FACTOR = 64
INSIDE_UID = 65534
_GPU = re.compile(r'/dev/nvidia\d+')


def become_job(
  room: Room, header: dict, out: int, err: int, sync: int
) -> NoReturn:
  """Becomes the job; never returns. `sync` gets 'R', or 'E' and the error.

  out, err: its standard output and standard error; they may be one. Raises
  `_zygote.Born` in a fork of the zygote.
  """
  try:
    os.setsid()
    os.chdir(room.workspace)
    nothing = os.open('/dev/null', os.O_RDWR)
    for source, target in ((nothing, 0), (out, 1), (err, 2)):
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
    for number in (
      signal.SIGPIPE,
      signal.SIGTERM,
      signal.SIGCHLD,
      signal.SIGINT,
      signal.SIGXFSZ,
    ):
      signal.signal(number, signal.SIG_DFL)
    command = [
      room.config['python'],
      *_zygote.FLAGS,
      room.config['runner'],
      header['script'],
      *header['argv'],
    ]
    os.write(sync, b'R')
    if header['zygote']:
      os.close(sync)
      raise _zygote.Born(command, env, header['script'], header['argv'])
    _linux.fixed_addresses()
    os.execve(command[0], command, env)
  except _zygote.Born:
    raise
  except BaseException as error:  # noqa: BLE001: sent to the supervisor
    try:
      os.write(sync, f'E{type(error).__name__}: {error}'.encode()[:900])
    finally:
      os._exit(125)


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
    devices = [
      '/dev/null',
      '/dev/zero',
      '/dev/full',
      '/dev/random',
      '/dev/urandom',
      *gpu_files(config['gpu_devices'], header),
    ]
    _linux.landlock(read, write + devices)
  if config['seccomp']:
    _linux.seccomp(
      namespaces=room.namespaces,
      count_memory=bool(config['cgroups']),
    )


def gpu_files(devices: Sequence[str], header: dict[str, Any]) -> list[str]:
  """Device files that a job may open: none without GPUs, no other job's."""
  if not header['gpus']:
    return []
  own = {f'/dev/nvidia{number}' for number in header['gpu_ids']}
  return [path for path in devices if path in own or not _GPU.fullmatch(path)]


def _prefer_to_kill(room: Room) -> None:
  """Makes the kernel kill the job first when the machine runs out of memory."""
  path = 'self/oom_score_adj'
  folder: int | None = room.proc_fd
  if room.proc_fd < 0:
    path, folder = '/proc/' + path, None
  fd = os.open(path, os.O_WRONLY, dir_fd=folder)
  os.write(fd, b'1000')
  os.close(fd)


def _rlimits(header: dict[str, Any], config: dict, uid: int | None) -> None:
  # A second line only: the cgroup or the watch is to see what is held, not
  # the job to say it. CUDA reserves address space by the TB.
  memory = space = resource.RLIM_INFINITY
  if not header['gpus'] and not config['cgroups']:
    memory = DATA_FACTOR * header['memory_mb'] * MB
    space = SPACE_FACTOR * header['memory_mb'] * MB
    memory += config['base_data'] if header['zygote'] else 0
    space += config['base_space'] if header['zygote'] else 0
  pairs = [
    (resource.RLIMIT_CORE, 0),
    (resource.RLIMIT_DATA, memory),
    (resource.RLIMIT_AS, space),
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
    most = _counting.user_threads() + (header['pids'] + 1) * config['slots']
    pairs.append((resource.RLIMIT_NPROC, most))
  for kind, value in pairs:
    _lower(kind, value)


def _lower(kind: int, value: int) -> None:
  _, hard = resource.getrlimit(kind)
  if hard != resource.RLIM_INFINITY:
    value = hard if value == resource.RLIM_INFINITY else min(value, hard)
  resource.setrlimit(kind, (value, value))


def _keep_to_cpus(room: Room, header: dict[str, Any]) -> None:
  """Binds a job without a quota to CPUs of its slot, so that many threads slow
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
      [
        os.path.dirname(room.config['python']),
        '/usr/local/bin',
        '/usr/bin',
        '/bin',
      ]
    ),
    'HOME': room.root + '/tmp',
    'TMPDIR': room.root + '/tmp',
    **_zygote.INTERPRETER,
    'PYTHONDONTWRITEBYTECODE': '1',
    'PYTHONUNBUFFERED': '1',  # children's
    'CUDA_VISIBLE_DEVICES': ','.join(header['gpu_ids']),
    **room.config['environment'],
  }
  for name in ('OMP', 'OPENBLAS', 'MKL', 'NUMEXPR', 'LOKY'):
    env[
      f'{name}_MAX_CPU_COUNT' if name == 'LOKY' else f'{name}_NUM_THREADS'
    ] = threads
  env.update(header['env'])
  return env
