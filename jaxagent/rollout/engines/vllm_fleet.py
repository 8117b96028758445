"""vLLM servers: those that are started here, and those that run elsewhere."""

from __future__ import annotations

import collections
import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence

import httpx

from jaxagent.rollout.engine import EngineError
from jaxagent.rollout.engines import vllm_guard
from jaxagent.rollout.engines.vllm_api import (
  KEY_ENV,
  ServerOptions,
  launch_options,
)


class RemoteFleet:
  """Servers that somebody else keeps running, used as they are.

  Args:
    patience_s: how long one that was lost may take to come again.
  """

  def __init__(self, urls: Sequence[str], *, patience_s: float = 600.0):
    self.urls = tuple(url.rstrip('/') for url in urls)
    self._patience_s = patience_s
    self._closed = threading.Event()
    remedy = 'is it running, and reachable from here?'
    for url in self.urls:
      wait_healthy(url, 30.0, remedy, self._closed)

  def revive(self, url: str) -> None:
    wait_healthy(url, self._patience_s, 'start it again.', self._closed)

  def close(self) -> None:
    """Ends waits for servers; the servers run on."""
    self._closed.set()

  def hint(self) -> str:
    return 'see their logs.'


class LaunchedFleet:
  """Servers on this machine, started and ended with the trainer.

  Args:
    python: interpreter of vLLM's environment.
    model: folder of the checkpoint they begin with.
    log_dir: gets their output, a file each.
    n: servers.
    devices: GPUs of each, e.g. ('4,5', '6,7'); () leaves it to them.
    start_s: within which one must answer.
    options: of `launch_options`.
  """

  def __init__(
    self,
    python: str,
    model: pathlib.Path,
    log_dir: pathlib.Path,
    options: ServerOptions,
    *,
    n: int = 1,
    devices: Sequence[str] = (),
    start_s: float = 600.0,
  ):
    self._python, self._model, self._logs = python, str(model), log_dir
    self._start_s, self._options = start_s, options
    self._devices = tuple(devices) or ('',) * n
    self._processes: dict[str, subprocess.Popen] = {}
    self._closed = threading.Event()
    self._starting = threading.Lock()  # none starts once it is closed
    log_dir.mkdir(parents=True, exist_ok=True)
    self.urls: tuple[str, ...] = tuple(
      f'http://127.0.0.1:{port}' for port in _free_ports(n)
    )
    try:
      started = {url: self._start(url) for url in self.urls}
      for url, process in started.items():
        self._wait(url, process)
    except BaseException:
      self.close()
      raise

  def revive(self, url: str) -> None:
    self._end(url)
    self._wait(url, self._start(url))

  def close(self) -> None:
    with self._starting:  # `revive` may be at it on another thread
      self._closed.set()
    for url in list(self._processes):
      self._end(url)

  def hint(self) -> str:
    """Returns where to look when servers misbehave."""
    return f'see their logs in {self._logs}.'

  def pid(self, url: str) -> int:
    """Returns the process id of the guard; the server is its child."""
    return self._processes[url].pid

  def _start(self, url: str) -> subprocess.Popen:
    host, port = url.removeprefix('http://').split(':')
    args, env = launch_options(
      self._model,
      host,
      int(port),
      self._options,
      self._devices[self.urls.index(url)],
    )
    guard = [sys.executable, '-I', vllm_guard.__file__]
    with self._starting, open(self._log(url), 'ab') as log:
      _check_open(self._closed, url)
      process = self._processes[url] = subprocess.Popen(
        [*guard, self._python, *args],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        env=_environment() | env,
      )
    return process

  def _wait(self, url: str, process: subprocess.Popen) -> None:
    def given_up() -> str:
      code = process.poll()
      return '' if code is None else f'it ended with code {code}'

    try:
      wait_healthy(url, self._start_s, 'see its log.', self._closed, given_up)
    except EngineError as error:
      raise EngineError(f'{error}\n{self._tail(url)}') from error

  def _end(self, url: str) -> None:
    process = self._processes.pop(url, None)
    if process is None:
      return
    assert process.stdin is not None  # a pipe
    with contextlib.suppress(OSError):
      process.stdin.close()
    process.wait()

  def _log(self, url: str) -> pathlib.Path:
    return self._logs / f'vllm-{self.urls.index(url)}.log'

  def _tail(self, url: str, lines: int = 15) -> str:
    path = self._log(url)
    with open(path, errors='replace') as file:
      last = ''.join(collections.deque(file, lines))
    return f'The last lines of {path}:\n{last}'


def wait_healthy(
  url: str,
  within_s: float,
  remedy: str,
  closed: threading.Event,
  given_up: Callable[[], str] | None = None,
) -> None:
  """Raises EngineError after `within_s`, or as soon as `given_up` says why or
  `closed` is set."""
  end = time.monotonic() + within_s
  while True:
    _check_open(closed, url)
    try:
      if httpx.get(f'{url}/health', timeout=5, trust_env=False).is_success:
        return
      told = 'is not healthy'
    except httpx.HTTPError as error:
      told = f'does not answer ({error!r})'
    if given_up and (why := given_up()):
      raise EngineError(f'{url}: {why}; {remedy}')
    if time.monotonic() > end:
      raise EngineError(f'{url} {told} within {within_s:g} s: {remedy}')
    closed.wait(0.2)


def _check_open(closed: threading.Event, url: str) -> None:
  if closed.is_set():
    raise EngineError(f'{url}: its engine was closed meanwhile.')


def _environment() -> dict[str, str]:
  """Returns this environment without the trainer's variables and other keys."""
  return {
    name: value
    for name, value in os.environ.items()
    if name not in ('PYTHONPATH', 'PYTHONHOME', 'VIRTUAL_ENV', 'XLA_FLAGS')
    and not name.startswith('JAX_')
    and (name == KEY_ENV or not name.endswith('_API_KEY'))
  }


def _free_ports(n: int) -> list[int]:
  sockets = [socket.socket() for _ in range(n)]
  for s in sockets:
    s.bind(('127.0.0.1', 0))
  ports = [s.getsockname()[1] for s in sockets]
  for s in sockets:
    s.close()
  return ports
