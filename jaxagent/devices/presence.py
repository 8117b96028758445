"""Liveness of the processes of a run, and what ended one that is gone.

Each process holds a TCP connection to process 0. A process that dies closes it, whatever
it died of; the kernel's keep-alive finds a host that is gone, however busy Python is.
The survivors then end at once with one line, before the coordination service of jax
ends them with a stack of C++.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hmac
import json
import logging
import os
import pathlib
import re
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Iterator

from jaxagent import errors
from jaxagent.devices import processes

_MEET_S = 60.0  # in which all must have connected
_HELLO_S = 10.0  # for what says who connects
_GRACE_S = 20.0  # for a process to end by itself once another has failed
_NAMED_S = 2.0  # in which a loss has been noticed
_GONE_S = 1.0  # for processes that are ended to be gone
_IDLE_S, _TRIES = 5, 3  # of keep-alive: a host is gone after (1 + 3) * 5 s
_LINE = 4096  # bytes of a message
_TAIL = 1 << 16  # bytes of a log that are looked at
_KEY = 'jaxagent/presence'


@dataclasses.dataclass(frozen=True)
class Process:
  """One process of a run: its index, host and process id."""

  index: int
  host: str
  pid: int


class Watch:
  """Connections between process 0 and the others, each with a thread that listens.

  run: what all of them were started for, in words; see `meet`.
  peers: those that have connected, this process included, by index; the processes
    above 0 see process 0 and themselves alone.
  """

  def __init__(
    self,
    index: int,
    count: int,
    logs: pathlib.Path | None = None,
    run: str = '',
  ):
    self.own = Process(index, socket.gethostname(), os.getpid())
    self.peers = {index: self.own}
    self._run = run
    self._strangers: dict[int, str] = {}  # index -> what to do about it
    self._count, self._logs, self._doing = count, logs, ''
    self._connections: dict[int, socket.socket] = {}
    self._gone: set[int] = set()  # whose connection has ended
    self._changed = threading.Condition()
    self._ending = threading.Event()
    # Called in process 0 with a signal that another process got.
    self.on_stop: Callable[[int], None] = lambda number: None
    # Called where this process ends because another did.
    self.farewells: list[Callable[[], None]] = []
    self._server: socket.socket | None = None

  def doing(self, what: str) -> None:
    """Notes the call that all processes make now, for the line about a loss."""
    self._doing = what

  def meet(self) -> None:
    """Connects the processes.

    Where a firewall is between them a warning is logged, and a loss shows after the
    heartbeats of jax (100 s).

    Raises UserError where one was started for another run: two coordinators may listen
    at one port (gRPC opens it with SO_REUSEPORT), and who asks there meets either.
    """
    try:
      if self.own.index == 0:
        self._gather()
      else:
        self._connect()
    except (OSError, ValueError, errors.ProcessLost) as error:
      logging.getLogger(__name__).warning(
        'the processes of this run cannot watch each other (%s): the end of one shows '
        'after 100 s. Open the ports between their hosts.',
        error,
      )

  def leave(self, words: str = '') -> None:
    """Announces this process's end; words: of the error that ends it, '' for none.

    The connections stay: a process may yet have to be ended (`end_others`).
    """
    self._ending.set()
    for connection in list(self._connections.values()):
      _send(connection, {'end': words})
    if self._server is not None:
      self._server.close()

  def failed(self, words: str) -> None:
    """Announces an error of this process, which has yet to close what it has open.

    An error may be the mark of another's end, a broken collective say, whose line
    comes first. Process 0 then ends by itself; others may wait for it.
    """
    self._ending.wait(_NAMED_S)
    if self.own.index == 0:
      self._ending.set()
    for connection in list(self._connections.values()):
      _send(connection, {'end': words})

  def end_others(self) -> None:
    """Ends the other processes, since this one is stopped without waiting for anything.

    They go first: where process 0 does, jax's client aborts the others (status 134),
    also those that have left and wait for process 0 to end together.
    """
    self._ending.set()
    for connection in list(self._connections.values()):
      _send(connection, {'lost': errors.STOPPED})
    with self._changed:
      self._changed.wait_for(
        lambda: self._gone >= set(self._connections), _GONE_S
      )

  def ask_stop(self, number: int | None) -> None:
    """Hands a signal on to process 0, which decides when the run stops."""
    for connection in list(self._connections.values()):
      _send(connection, {'stop': number})

  # Connecting.

  def _gather(self) -> None:
    dual = socket.has_dualstack_ipv6()
    self._server = socket.create_server(
      ('', 0),
      family=socket.AF_INET6 if dual else socket.AF_INET,
      backlog=self._count,
      dualstack_ipv6=dual,
    )
    token = secrets.token_hex(16)
    port = self._server.getsockname()[1]
    own = dataclasses.asdict(self.own)
    said = {'port': port, 'token': token, 'run': self._run, **own}
    processes.publish(_KEY, json.dumps(said))
    threading.Thread(target=self._accept, args=(token,), daemon=True).start()
    with self._changed:
      met = self._changed.wait_for(
        lambda: self._strangers or len(self.peers) == self._count, _MEET_S
      )
      if self._strangers:
        # Those of this run that have yet to come are told of it, too.
        self._changed.wait_for(
          lambda: len(self.peers | self._strangers) == self._count, _HELLO_S
        )
        raise errors.UserError(next(iter(self._strangers.values())))
      if not met:
        raise TimeoutError(
          f'{len(self.peers)} of {self._count} connected within {_MEET_S:g} s'
        )

  def _accept(self, token: str) -> None:
    assert self._server is not None  # made before the thread
    while True:
      try:
        connection, _ = self._server.accept()
      except OSError:
        return  # closed: the run ends
      threading.Thread(
        target=self._welcome, args=(connection, token), daemon=True
      ).start()

  def _welcome(self, connection: socket.socket, token: str) -> None:
    """Takes in a process that knows the token; anything else is hung up on."""
    connection.settimeout(_HELLO_S)
    lines = _lines(connection)
    try:
      said = next(lines)
      known = hmac.compare_digest(str(said['token']), token)
      peer = Process(int(said['index']), str(said['host']), int(said['pid']))
    except (OSError, StopIteration, KeyError, TypeError, ValueError):
      known = False
    if not known or not 0 < peer.index < self._count:
      connection.close()
      return
    if words := self._other_run(peer, said.get('run', '')):
      connection.close()
      with self._changed:
        self._strangers[peer.index] = words
        self._changed.notify_all()
      return
    self._keep(peer, connection)
    self._listen(peer, connection, lines)

  def _other_run(self, peer: Process, run: object) -> str:
    """Returns what to do where a peer was started for another run, else ''."""
    if run == self._run:
      return ''
    return (
      f'process {peer.index} (host {peer.host}, pid {peer.pid}) was started for {run}, '
      f'this one, {self.own.index}, for {self._run}: processes of two runs have met at '
      f'the coordinator {processes.coordinator_address()}. Start the same command on all '
      'hosts, and give runs at the same time a coordinator each '
      '(JAXAGENT_COORDINATOR; where jax finds the cluster, JAX_COORDINATOR_PORT).'
    )

  def _connect(self) -> None:
    said = json.loads(processes.published(_KEY, _MEET_S))
    address = processes.coordinator_host(), said['port']
    connection = socket.create_connection(address, _HELLO_S)
    own = dataclasses.asdict(self.own)
    hello = {'token': said['token'], 'run': self._run, **own}
    connection.sendall(json.dumps(hello).encode() + b'\n')
    leader = Process(said['index'], said['host'], said['pid'])
    if words := self._other_run(leader, said['run']):
      connection.close()
      raise errors.UserError(words)
    self._keep(leader, connection)
    threading.Thread(
      target=self._listen,
      args=(leader, connection, _lines(connection)),
      daemon=True,
    ).start()

  def _keep(self, peer: Process, connection: socket.socket) -> None:
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
      ('TCP_KEEPIDLE', _IDLE_S),
      ('TCP_KEEPINTVL', _IDLE_S),
      ('TCP_KEEPCNT', _TRIES),
    ):
      if hasattr(socket, name):  # not on every system
        connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    with self._changed:
      self._connections[peer.index] = connection
      self.peers[peer.index] = peer
      self._changed.notify_all()

  # Listening.

  def _listen(
    self, peer: Process, connection: socket.socket, lines: Iterator[dict]
  ) -> None:
    ended = None
    with contextlib.suppress(OSError, ValueError):
      for said in lines:
        if 'lost' in said:  # process 0 has written the line
          self._exit('', int(said['lost']))
        if 'stop' in said:
          self.on_stop(int(said['stop']))
        if 'end' in said:
          ended = str(said['end'])
          if ended:
            threading.Thread(
              target=self._await_own_end, args=(peer, ended), daemon=True
            ).start()
    with self._changed:
      self._gone.add(peer.index)
      self._changed.notify_all()
    if ended is None and not self._ending.is_set():
      self._exit(self._line(peer, 'died', self._last_words(peer)))

  def _await_own_end(self, peer: Process, words: str) -> None:
    """Ends this process where it does not end itself: it may wait for the other."""
    if not self._ending.wait(_GRACE_S):
      self._exit(self._line(peer, 'failed', words))

  def _line(self, peer: Process, how: str, words: str) -> str:
    during = f' in {self._doing}' if self._doing else ''
    file = self._log_of(peer)
    stack = ''
    if file is not None and file.is_file() and file.stat().st_size:
      stack = f'; what its libraries wrote: {file}'
    return (
      f'error: process {peer.index} on {peer.host} {how}{during}; its last words: '
      f'{words or "none (killed, or its host is gone)"}{stack}. The run ends; the same '
      'command on all hosts resumes it.\n'
    )

  def _log_of(self, peer: Process) -> pathlib.Path | None:
    return self._logs and log_of(self._logs, peer.index)

  def _last_words(self, peer: Process) -> str:
    try:
      return last_words(self._log_of(peer))
    except OSError:
      return ''

  def _exit(self, line: str, status: int = errors.LOST) -> None:
    """Ends this process without closing anything: calls may wait for ever."""
    if line:
      for connection in list(self._connections.values()):
        _send(connection, {'lost': status})
      with contextlib.suppress(OSError, ValueError):
        os.write(sys.stderr.fileno(), line.encode())
    with contextlib.suppress(OSError, ValueError):
      sys.stdout.flush()
    for farewell in self.farewells:
      farewell()
    os._exit(status)


def log_of(folder: pathlib.Path, index: int) -> pathlib.Path:
  """Returns the file with what the libraries of a process write to standard error."""
  return folder / f'native_{index}.txt'


def last_words(file: pathlib.Path | None) -> str:
  """Returns the last fatal line of a log, or its last line, without the stack below."""
  if file is None:
    return ''
  with open(file, 'rb') as f:
    f.seek(max(0, f.seek(0, os.SEEK_END) - _TAIL))
    text = f.read().decode(errors='replace')
  lines = [
    line.strip()
    for line in text.splitlines()
    if line.strip() and not re.match(r'\s*(@|\*\*\*|#\d)', line)
  ]
  fatal = [line for line in lines if re.match(r'F\d{4} ', line)]
  return errors.in_one_line((fatal or lines or [''])[-1])


def split_standard_error(file: pathlib.Path) -> None:
  """Leaves standard error to Python; what C++ writes there goes to the file.

  Nothing changes where the file cannot be written.
  """
  try:
    file.parent.mkdir(parents=True, exist_ok=True)
    target = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    before = sys.stderr
    before.flush()
    own = os.fdopen(os.dup(before.fileno()), 'w', buffering=1)
    os.dup2(target, 2)
  except (OSError, ValueError):
    return
  os.close(target)
  sys.stderr = own
  for handler in _handlers():
    if getattr(handler, 'stream', None) is before:
      handler.stream = own


def _handlers() -> list:
  from absl import logging as absl_logging

  absl_handler = absl_logging.get_absl_handler()
  return [*logging.root.handlers, absl_handler.python_handler]


def _send(connection: socket.socket, message: dict) -> None:
  """Sends a message, cut to what a line may have; nothing where the other is gone."""
  message = {name: str(value)[: _LINE // 8] for name, value in message.items()}
  with contextlib.suppress(OSError):
    connection.sendall(json.dumps(message).encode() + b'\n')


def _lines(connection: socket.socket) -> Iterator[dict]:
  """Yields messages; ValueError, OSError for what is none."""
  rest = b''
  while data := connection.recv(_LINE):
    *whole, rest = (rest + data).split(b'\n')
    for line in whole:
      said = json.loads(line)
      if not isinstance(said, dict):
        raise ValueError(f'{said!r} is no message')
      yield said
    if len(rest) > _LINE:
      raise ValueError('a message is too long')


_watch: Watch | None = None


@contextlib.contextmanager
def among(
  index: int, count: int, logs: pathlib.Path | None = None, run: str = ''
) -> Iterator[Watch]:
  """Watches the other processes of a run while the block lasts.

  logs: a folder that all share, for what libraries write to standard error.
  run: what this process was started for; UserError where another's is not the same.
  """
  global _watch
  watch = Watch(index, count, logs, run)
  if count == 1:
    yield watch
    return
  if logs is not None:
    split_standard_error(log_of(logs, index))
  try:
    watch.meet()
  except errors.UserError as error:
    watch.leave(errors.in_one_line(str(error)))  # to those of its own run
    raise
  _watch = watch
  words = ''
  try:
    yield watch
  except (SystemExit, errors.Interrupted):
    raise
  except BaseException as error:
    words = errors.in_one_line(f'{type(error).__name__}: {error}')
    raise
  finally:
    watch.leave(words)
    _watch = None


def doing(what: str) -> None:
  """Notes the call that the processes of this run make now."""
  if _watch is not None:
    _watch.doing(what)


def failed(error: BaseException) -> None:
  """Announces an error to the other processes of this run."""
  if _watch is not None:
    _watch.failed(errors.in_one_line(f'{type(error).__name__}: {error}'))
