"""The first process of one job's namespaces: builds the room, keeps the
clock, kills everything, and only then brings the files out.

It runs in a child of the launcher (pid 1 of a fresh pid namespace at T2 and
T3, a subreaper below) and speaks to the pool over the job's own socket, so
neither scripts nor results ever pass through the launcher.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import stat
import time

from jaxagent.sandbox import _changed, _job, _wire, _zygote
from jaxagent.sandbox._room import BOX, ContainerRoom, Room
from jaxagent.sandbox._watch import Watch

MB = 1 << 20
# Of a folder that is brought out: their names fit into the header of a frame.
MOST_FILES = 20_000


def supervise(conn: _wire.Stream, request: dict, config: dict) -> None:
  """Runs one job and writes one result frame. Called in the forked child."""
  start = request['cloned_at']
  header, blobs = _wire.receive(conn)
  if header['zygote'] and config['container']:
    _warm_up(header)
  room = (ContainerRoom if config['container'] else Room)(request, config)
  room.build(header, blobs)
  room.place_mounts(header)
  room.open_workspace()
  initial, _ = room.used(0)
  laid_out = {}
  if header['changed_mb'] > 0:
    laid_out = _changed.digests(header['files'], blobs)
  del blobs
  pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(1 + header['apart'])]
  sync_r, sync_w = os.pipe2(os.O_CLOEXEC)
  for source, _ in pipes:
    os.set_blocking(source, False)
  outs = [target for _, target in pipes]
  child = _begin(room, header, outs[0], outs[-1], sync_w)
  watch = Watch(room, header, child, [source for source, _ in pipes])
  if not room.namespaces:
    signal.signal(signal.SIGTERM, watch.launcher_died)
  for fd in (*outs, sync_w):
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
  watch.judge_disk(used)
  files: dict[str, bytes] = {}
  problems: list[str] = []
  folders: list[str] = []
  if not error:
    files, folders, problems = collect(room.workspace_fd, header)
  changes = _changed.Found()
  if not error and header['changed_mb'] > 0:
    changes = _changed.find(room.workspace_fd, laid_out, header)
  result = {
    'error': error,
    'reason': watch.reason,
    'status': watch.status,
    'startup_s': began - start,
    'exec_s': ended - began,
    'cpu_s': usage.ru_utime + usage.ru_stime + watch.cpu_s,
    'peak_bytes': max(watch.peak, resident),
    'written': max(0, used - initial),
    'disk_full': full,
    'memory_full': watch.memory_full(resident),
    'output_bytes': watch.total,
    'ended_at': ended,
    'names': list(files),
    'folders': folders,
    'problems': problems,
    'changed': list(changes.files),
    'removed': changes.removed,
    'left_out': changes.left_out,
  }
  _wire.send(
    conn,
    result,
    [
      *(text.encode() for text in watch.texts()),
      *files.values(),
      *changes.files.values(),
    ],
  )


def _warm_up(header: dict) -> None:
  """Imports for a job of this container, in a folder named as its own."""
  os.mkdir(f'{BOX}/workspace')
  os.chdir(f'{BOX}/workspace')
  try:
    _zygote.warm_up()
  except _zygote.ThreadsLeft:
    header['zygote'] = False
  finally:
    os.chdir('/')
    os.rmdir(f'{BOX}/workspace')


def _begin(
  room: Room, header: dict, out: int, err: int, sync: int
) -> int | socket.socket:
  """The job's first process: its pid, or the zygote's stream of it."""
  config = room.config
  if header['zygote'] and config.get('zygote_fd') is not None:
    needed = {k: v for k, v in header.items() if k not in ('files', 'collect')}
    return _zygote.born(
      config['zygote_fd'],
      {'request': room.request, 'header': needed},
      {'out': out, 'err': err, 'sync': sync, 'proc': room.proc_fd},
      config['cgroup_fds'],
    )
  child = os.fork()
  if child == 0:
    _job.become_job(room, header, out, err, sync)
  return child


def _sync(fd: int, late: bool = False) -> str:
  """'' when the job is ready to run, else what went wrong."""
  text = os.read(fd, 1024)
  if late and not text:
    return ''
  if text[:1] == b'R':
    return ''
  return text[1:].decode('utf-8', 'replace') or 'the job died in its set-up.'


def collect(
  workspace: int, header: dict
) -> tuple[dict[str, bytes], list[str], list[str]]:
  """Reads regular files through descriptors: no link, FIFO or hard link.

  workspace: descriptor of the folder, from before the job ran. Returns ({path: content},
  the folders among what was collected, [why a path was left out]). The files of a folder
  have their own paths.
  """
  cap = header['collect_mb'] * MB
  found: dict[str, bytes] = {}
  folders: list[str] = []
  problems: list[str] = []
  for path in header['collect']:
    folder = os.dup(workspace)
    try:
      *parents, name = path.split('/')
      for part in parents:
        folder = _below(folder, part)
      if path in header['folders']:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode):
          raise ValueError('is not a folder')
        folder = _below(folder, name)
        inside = _files_of(folder, cap)
        found |= {f'{path}/{n}': data for n, data in inside.items()}
        folders.append(path)
      else:
        found[path] = _content(folder, name, cap)
    except FileNotFoundError:
      problems.append(f'{path}: was not written')
    except (OSError, ValueError) as error:
      problems.append(f'{path}: {error}')
    finally:
      os.close(folder)
  return found, folders, problems


def _below(folder: int, name: str) -> int:
  """Opens a folder in an open one, which is closed."""
  flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
  below = os.open(name, flags, dir_fd=folder)
  os.close(folder)
  return below


def _files_of(folder: int, cap: int) -> dict[str, bytes]:
  """Reads the files of a folder, by name, which have `cap` bytes together.

  Raises ValueError naming what is no such file.
  """
  names: list[str] = []
  with os.scandir(folder) as entries:
    for entry in entries:
      if len(names) == MOST_FILES:
        raise ValueError(f'holds more than {MOST_FILES} files')
      if not entry.name.isprintable():
        raise ValueError(f'{ascii(entry.name)} is not a printable name')
      names.append(entry.name)
  found: dict[str, bytes] = {}
  for name in sorted(names):
    try:
      found[name] = _content(folder, name, cap)
    except (OSError, ValueError) as error:
      raise ValueError(f'{name} {error}') from error
    cap -= len(found[name])
  return found


def _content(folder: int, name: str, cap: int) -> bytes:
  """Reads a file of an open folder. Raises ValueError, OSError where it is none."""
  status = os.stat(name, dir_fd=folder, follow_symlinks=False)
  if not stat.S_ISREG(status.st_mode):
    raise ValueError('is not a regular file')
  if status.st_nlink != 1:
    raise ValueError('has hard links')
  if status.st_size > cap:
    raise ValueError(f'has {status.st_size} bytes, more than {cap}')
  flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
  with os.fdopen(os.open(name, flags, dir_fd=folder), 'rb') as f:
    return f.read(cap + 1)[:cap]
