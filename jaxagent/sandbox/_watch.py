"""Follows a job to its end: output, memory, deadline; then kills all of it.

Standard library only.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import time

from jaxagent.sandbox import _counting, _zygote
from jaxagent.sandbox._room import Room

TICK_S = 0.05
KILL_S = 10.0
# Of `output_kb`: what prints more than this is ended. Less is read, and cut.
FLOOD_FACTOR = 1024
MB = 1 << 20


class _Stream:
  """Output of one pipe: its head and tail.

  fd: the pipe's end, which does not block. keep: bytes of each.
  """

  def __init__(self, fd: int, keep: int):
    self.fd, self.keep = fd, keep
    self.head, self.tail = bytearray(), bytearray()
    self.taken = 0  # bytes, before anything was cut

  def add(self, part: bytes) -> None:
    self.taken += len(part)
    room = max(0, self.keep - len(self.head))
    self.head += part[:room]
    self.tail += part[room:]
    if len(self.tail) > 4 * self.keep + 65536:
      del self.tail[: -self.keep]

  def text(self) -> str:
    tail = bytes(self.tail[-self.keep :]) if self.keep else b''
    cut = len(self.head) + len(tail) < self.taken
    middle = b'\n[... cut ...]\n' if cut else b''
    return (bytes(self.head) + middle + tail).decode('utf-8', 'replace')


class _Pace:
  """Says when something is looked at: every tick, or more seldom where a look
  costs more than a tenth of that. Counted in CPU time: a busy machine, which makes
  a look long, does not put off the next one.
  """

  def __init__(self):
    self.at = time.monotonic() + TICK_S
    self._began = 0.0

  def __enter__(self) -> None:
    self._began = time.process_time()

  def __exit__(self, *_) -> None:
    cost = time.process_time() - self._began
    self.at = time.monotonic() + max(TICK_S, 10 * cost)


class Watch:
  """Follows the job to its end: output, memory, deadline.

  child: its first process, or the zygote's stream of one (`_zygote.born`).
  outs: pipes to read: of all its output, or of standard output and of error.
  """

  def __init__(
    self, room: Room, header: dict, child: int | socket.socket, outs: list[int]
  ):
    self.room, self.header = room, header
    self.born: socket.socket | None = None
    self.child = -1
    if isinstance(child, socket.socket):
      self.born, self.end_fd = child, child.fileno()
    else:
      self.child, self.end_fd = child, os.pidfd_open(child)
    self.cpu_s, self.resident = 0.0, 0  # as the zygote reports them
    self.reason = ''
    self.status: int | None = None
    self.total = 0  # bytes of output
    self.peak = 0
    self.disk = header['disk_mb'] * MB + header['initial_bytes']
    self.memory = header['memory_mb'] * MB
    if header['zygote']:  # what it holds from the start is not its own
      self.memory += room.config['base_data']
    keep = min(header['keep_kb'], header['output_kb']) * 1024 // 2
    self.streams = [_Stream(fd, keep) for fd in outs]
    self.flood = header['output_kb'] * 1024 * FLOOD_FACTOR

  def follow(self) -> None:
    begin = time.monotonic()
    deadline = begin + self.header['timeout_s']
    poll = select.poll()
    poll.register(self.end_fd, select.POLLIN)
    for stream in self.streams:
      poll.register(stream.fd, select.POLLIN)
    held, filled = _Pace(), _Pace()
    while not self.reason:
      now = time.monotonic()
      if now >= deadline:
        self.reason = 'timeout'
        break
      if now >= filled.at:
        with filled:
          self._look_at_disk()
      if now >= held.at:
        with held:
          self._look_at_memory()
      wait = min(deadline, held.at, filled.at) - time.monotonic()
      events = dict(poll.poll(max(0.0, wait) * 1000 + 0.5))
      for stream in self.streams:
        if stream.fd in events and not self._drain(stream, once=True):
          poll.unregister(stream.fd)
      if self.end_fd in events:
        break

  def _drain(self, stream: _Stream, *, once: bool) -> bool:
    """Returns False at the end of the stream, or of what may be printed.

    All of it is read, so that a job does not wait; head and tail are kept.
    """
    while True:
      try:
        part = os.read(stream.fd, 65536)
      except BlockingIOError:
        return True
      if not part:
        return False
      self.total += len(part)
      stream.add(part)
      if self.total > self.flood:
        self.reason = self.reason or 'output'
        return False
      if once:
        return True

  def _look_at_disk(self) -> None:
    self._reap(block=False)
    self.judge_disk(self.room.used(self.disk)[0])

  def judge_disk(self, used: int) -> None:
    """Ends a job with more on the disk than it may, where no file system does.

    used: bytes. Called once more when it has ended: what it has written by
    then is there however late anyone looks.
    """
    if not self.room.namespaces and used > self.disk:
      self.reason = self.reason or 'disk'

  def _look_at_memory(self) -> None:
    if self.room.config['cgroups']:
      return
    memory = 0
    if self.room.namespaces:
      memory = self.room.used(self.disk)[0]
      memory += _counting.sockets() * self.room.config['socket_bytes']
    pids = _counting.descendants(self.room.namespaces)
    memory += _counting.memory(pids, self.memory - memory)
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
    for stream in self.streams:
      self._drain(stream, once=False)
      os.close(stream.fd)

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
        for pid in _counting.descendants(False):
          _ignore_gone(os.kill, pid)
      self._reap(block=False)
      try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
      except ChildProcessError:
        return
      if time.monotonic() > end:
        raise TimeoutError(
          f'processes of the job outlive SIGKILL: '
          f'{_counting.descendants(False)[:8]}'
        )
      time.sleep(0.001)

  def launcher_died(self, *_) -> None:
    """Signal handler: without namespaces nothing else ends the job."""
    try:
      self._kill_descendants()
    finally:
      os._exit(1)

  def texts(self) -> tuple[str, str]:
    """(output, errors); without `apart` all is output."""
    output, *errors = (stream.text() for stream in self.streams)
    return output, ''.join(errors)


def _ignore_gone(kill, pid: int) -> None:
  try:
    kill(pid, signal.SIGKILL)
  except (ProcessLookupError, PermissionError):
    pass
