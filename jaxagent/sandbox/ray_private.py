"""A private Ray: closed to others, and gone with the process that wanted it."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pathlib
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import TextIO

from jaxagent.sandbox import scratch

START_S = 60.0
CLOSE_S = 15.0
STORE_BYTES = 128 << 20  # jobs and results pass through it, more goes to disk
SOCKET_CHARS = 104 - 66  # what Ray appends to its folder for socket names


@contextlib.contextmanager
def environment(**variables: str) -> Iterator[None]:
  before = {name: os.environ.get(name) for name in variables}
  os.environ.update(variables)
  try:
    yield
  finally:
    for name, value in before.items():
      if value is None:
        del os.environ[name]
      else:
        os.environ[name] = value


@contextlib.contextmanager
def loopback() -> Iterator[None]:
  """Ray takes 127.0.0.1 for what it says: else it puts an address there that
  others reach, and its servers, which run what they are sent, listen on all.

  This is what Ray does where it has no clusters (macOS); the variable is for
  the processes that it starts.
  """
  from ray._private import ray_constants

  before = ray_constants.ENABLE_RAY_CLUSTER
  ray_constants.ENABLE_RAY_CLUSTER = False
  try:
    with environment(RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER='0'):
      yield
  finally:
    ray_constants.ENABLE_RAY_CLUSTER = before


@contextlib.contextmanager
def own_address_file(folder: str) -> Iterator[None]:
  """Ray's Cluster notes its address in the temporary folder, for "auto": it
  would replace another cluster's, and fails where `ray` is not there."""
  os.mkdir(os.path.join(folder, 'ray'))
  with environment(RAY_TMPDIR=folder):
    yield


def read_token_again() -> None:
  """Makes Ray, which read them at its import, read RAY_AUTH_* again."""
  with contextlib.suppress(ImportError, AttributeError):  # before Ray 2.52
    raylet = importlib.import_module('ray._raylet')
    raylet.Config.initialize('')
    raylet.AuthenticationTokenLoader.instance().reset_cache()


class Keeper:
  """A process around a private Ray: it ends both when its input closes.

  So they end with the trainer however that ends, and Ray forks its processes
  from one that runs no JAX.
  """

  def __init__(self, slots: int, base: str):
    root = str(pathlib.Path(__file__).resolve().parents[2])
    command = (
      f'import sys; sys.path.insert(0, {root!r}); '
      'from jaxagent.sandbox.ray_private import keep; '
      'keep(int(sys.argv[1]), sys.argv[2])'
    )
    # Other users reach the loopback, too; Ray refuses them without this.
    self.token = {}
    if 'RAY_AUTH_MODE' not in os.environ:
      self.token = {
        'RAY_AUTH_MODE': 'token',
        'RAY_AUTH_TOKEN': secrets.token_hex(32),
      }
    self._process = subprocess.Popen(
      [sys.executable, '-c', command, str(slots), base],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      stderr=subprocess.DEVNULL,
      env={**os.environ, **self.token, 'RAY_USAGE_STATS_ENABLED': '0'},
      start_new_session=True,  # Ctrl-C is for the trainer
    )

  def wait(self) -> dict[str, str]:
    """{'address', 'home'} of the Ray; RuntimeError where there is none."""
    out = self._process.stdout
    assert out is not None  # a pipe
    if not select.select([out], [], [], START_S)[0]:
      raise RuntimeError(f'it was not ready within {START_S:g} s')
    line = out.readline()
    record = json.loads(line) if line else {'error': 'its process ended'}
    if 'error' in record:
      raise RuntimeError(record['error'])
    return record

  def close(self) -> None:
    into, out = self._process.stdin, self._process.stdout
    assert into is not None and out is not None  # pipes
    into.close()
    try:
      self._process.wait(CLOSE_S)
    except subprocess.TimeoutExpired:
      self._process.kill()
      self._process.wait()
    out.close()


def keep(slots: int, base: str) -> None:
  """The keeper's process: a Ray of one node until standard input closes.

  base: where the slots' folders are.
  """
  said, sys.stdout = sys.stdout, sys.stderr
  scratch.sweep()
  characters = len(tempfile.gettempdir()) + len(scratch.PREFIX) + 9
  short = characters <= SOCKET_CHARS
  home = scratch.Folder('' if short else '/tmp')
  try:
    with own_address_file(home.path):
      _hold(slots, home.path, said)
  finally:
    home.remove()
    scratch.sweep(base)


def _hold(slots: int, home: str, said: TextIO) -> None:
  """Starts a Ray on `home`, says where, ends it when standard input ends."""
  try:
    with loopback():
      from ray.cluster_utils import Cluster

      cluster = Cluster(
        initialize_head=True,
        head_node_args={
          'num_cpus': slots,
          'num_gpus': 0,
          'include_dashboard': False,
          'object_store_memory': STORE_BYTES,
          'temp_dir': home,
          '_system_config': {'worker_niceness': 0},
        },
      )
    record = {'address': cluster.address, 'home': home}
  except BaseException as error:  # noqa: BLE001: the driver raises it
    record = {'error': one_line(error)}
  try:
    print(json.dumps(record), file=said, flush=True)
    sys.stdin.read()
  finally:
    theirs = processes_of(home)
    with contextlib.suppress(Exception):
      cluster.shutdown()
    end_all(theirs)


def end_all(processes: dict[int, str]) -> None:
  """Waits up to 3 s for {pid: start time}, then kills what is left."""
  end = time.monotonic() + 3
  while processes and time.monotonic() < end:
    processes = {p: s for p, s in processes.items() if started(p) == s}
    time.sleep(0.02)
  for pid in processes:  # agents outlive the raylet
    with contextlib.suppress(OSError):
      os.kill(pid, signal.SIGKILL)


def one_line(error: BaseException) -> str:
  """An error's kind and first paragraph, in one line."""
  text = str(error).strip().split('\n\n')[0]
  return ' '.join(f'{type(error).__name__}: {text}'.split())[:400]


def _stat(pid: int) -> list[str]:
  """Fields of /proc/PID/stat from the state on; [] where it is gone."""
  try:
    with open(f'/proc/{pid}/stat') as f:
      fields = f.read().rpartition(')')[2].split()
  except OSError:
    return []
  return [] if fields[0] in 'ZX' else fields


def started(pid: int) -> str:
  fields = _stat(pid)
  return fields[19] if fields else ''


def processes_of(folder: str) -> dict[int, str]:
  """{pid: start time} of processes started on `folder` and below those."""
  children: dict[int, list[int]] = {}
  found: dict[int, str] = {}
  todo = []
  for name in filter(str.isdigit, os.listdir('/proc')):
    fields = _stat(int(name))
    if not fields:
      continue
    children.setdefault(int(fields[1]), []).append(int(name))
    with contextlib.suppress(OSError):
      with open(f'/proc/{name}/cmdline', 'rb') as f:
        if folder.encode() in f.read() and int(name) != os.getpid():
          todo.append(int(name))
  while todo:
    pid = todo.pop()
    if pid not in found:
      found[pid] = started(pid)
      todo += children.get(pid, [])
  return {pid: start for pid, start in found.items() if start}
