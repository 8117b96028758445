"""The zygote: a process that has imported the numerical stack and forks jobs
into rooms that their supervisors have built.

It joins a room's pid namespace for its next child, forks, and the child joins
the other namespaces: one fork of a large process per job, where launcher and
supervisor stay small. The child's parent is the zygote, outside, so that its
exit status and use come from here. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import traceback
from collections.abc import Iterator
from typing import Any, NoReturn

from jaxagent.sandbox import _afresh, _job, _linux, _room, _wire, _zygote


def start(config: dict[str, Any]) -> tuple[int, socket.socket, dict]:
  """Starts the zygote of a launcher.

  Returns (its pid, the socket that supervisors ask on, what it has to say:
  `missing` modules and what a job begins with, `_zygote.held`).
  Raises OSError where it does not come up, and `_zygote.ThreadsLeft`.
  """
  ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
  pid = os.fork()
  if pid == 0:
    ours.close()
    _be(theirs, config)
  theirs.close()
  said, *_ = socket.recv_fds(ours, 65536, 0)
  if not said:
    raise OSError('the zygote died while it imported its modules')
  said = json.loads(said)
  if 'threads_left' in said:
    os.waitpid(pid, 0)
    ours.close()
    raise _zygote.ThreadsLeft(said['threads_left'])
  return pid, ours, said


def _be(control: socket.socket, config: dict[str, Any]) -> NoReturn:
  try:
    os.closerange(3, control.fileno())
    os.closerange(control.fileno() + 1, 4096)
    with _like_a_room():
      missing = _zygote.warm_up()
    _afresh.prepare()
    _zygote.collapse()
    held = _zygote.held()
    control.send(json.dumps({'missing': missing, **held}).encode())
    _Zygote(control, {**config, **held}).serve()
  except _zygote.Born:
    raise  # a job's first process, on its way to where its script runs
  except _zygote.ThreadsLeft as error:
    control.send(json.dumps({'threads_left': str(error)}).encode())
  except BaseException:  # noqa: BLE001: the launcher's end says it
    traceback.print_exc()
  os._exit(1)


@contextlib.contextmanager
def _like_a_room() -> Iterator[None]:
  """Gives this process for the time what each job finds: its working folder,
  and a /dev/shm. Jobs come in rooms of their own (`setns`).

  joblib looks when it is imported whether a semaphore can be made, and without
  one never starts a process; multiprocessing keeps the folder.
  """
  _linux.unshare(_linux.NEWNS)
  _linux.mount(
    'box',
    _room.BOX,
    'tmpfs',
    _linux.MS_NOSUID | _linux.MS_NODEV,
    'size=1m,mode=0700',
  )
  for name in ('tmp', 'shm', 'workspace'):
    os.mkdir(f'{_room.BOX}/{name}', 0o700)
  os.chdir(f'{_room.BOX}/workspace')
  try:
    yield
  finally:
    os.chdir('/')
    _linux.umount(_room.BOX)


class _Zygote:
  def __init__(self, control: socket.socket, config: dict[str, Any]):
    self.control, self.config = control, config
    self.streams: dict[int, socket.socket] = {}  # by pid

  def serve(self) -> None:
    """Serves until the launcher and every supervisor have exited.

    Not killed with the launcher: a supervisor that dies waits, as the first
    process of its pid namespace, until someone has reaped the namespace's
    others, and the job's first process is reaped here.
    """
    signal.signal(signal.SIGCHLD, lambda *_: None)
    wake_r, wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
    while True:
      ready = select.select([self.control.fileno(), wake_r], [], [])[0]
      if wake_r in ready:
        os.read(wake_r, 4096)
        self._reap()
      if self.control.fileno() in ready and not self._request():
        return self._reap(0)

  def _request(self) -> bool:
    data, fds, _, _ = socket.recv_fds(self.control, 16, 64)
    if not data:
      return False
    stream = socket.socket(fileno=fds[0])
    stream.settimeout(_zygote.ANSWER_S)
    try:
      message, _ = _wire.receive(stream)
      room = dict(zip(_zygote.PASSED, fds[1:]))
      # For children alone: this process stays where it is.
      _linux.syscall('setns', room['pid'], _linux.NEWPID)
      pid = os.fork()
      if pid == 0:
        self._in_child(message, room, fds[1 + len(room) :])
      self.streams[pid] = stream
    except (OSError, EOFError, ValueError) as error:
      _tell(stream, {'error': f'zygote: {error}'})
      stream.close()
    for fd in fds[1:]:
      os.close(fd)
    return True

  def _in_child(
    self, message: dict, fds: dict[str, int], cgroup_fds: list[int]
  ) -> NoReturn:
    try:
      signal.set_wakeup_fd(-1)
      for name, flag in _zygote.JOINED.items():
        _linux.syscall('setns', fds[name], flag)
      room = _room.Room(
        message['request'], {**self.config, 'cgroup_fds': cgroup_fds}
      )
      room.proc_fd = fds['proc']
    except BaseException as error:  # noqa: BLE001: sent to the supervisor
      os.write(fds['sync'], f'E{error}'.encode()[:900])
      os._exit(125)
    _job.become_job(
      room, message['header'], fds['out'], fds['err'], fds['sync']
    )

  def _reap(self, flags: int = os.WNOHANG) -> None:
    while self.streams:
      pid, status, usage = os.wait4(-1, flags)
      if pid == 0:
        return
      stream = self.streams.pop(pid)
      _tell(
        stream,
        {
          'status': status,
          'cpu_s': usage.ru_utime + usage.ru_stime,
          'resident': usage.ru_maxrss * 1024,
        },
      )
      stream.close()


def _tell(stream: socket.socket, record: dict) -> None:
  try:
    _wire.send(stream, record)
  except OSError:
    pass  # its supervisor has gone, and the room with it
