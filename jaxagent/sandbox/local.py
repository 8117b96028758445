"""The `local` backend: namespaces made directly, one launcher process."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import uuid
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from jaxagent.sandbox import (
  _cgroup,
  _changed,
  _wire,
  _zygote,
  cpu_levels,
  errors,
  launcher,
  outcome,
  scratch,
)
from jaxagent.types import Execution, Job

DISABLE = ('namespaces', 'userns', 'cgroup', 'landlock', 'seccomp')


def tier_of(hello: dict[str, Any]) -> str:
  """The tier that the launcher's own set-up amounts to, before attacks."""
  isolated = hello['namespaces'] and hello['seccomp']
  if isolated and hello['slot_uids']:
    return 'T3' if hello['cgroups'] else 'T2'
  # The kernel exempts its own root from RLIMIT_NPROC: then a cgroup counts.
  counted = not hello['real_root'] or hello['cgroups']
  if isolated and hello['user_namespaces'] and counted:
    return 'T2'
  alone = hello['slot_uids'] or hello['landlock_abi'] >= launcher.SIGNAL_ABI
  return 'T1' if hello['landlock'] and hello['seccomp'] and alone else 'T0'


def _project_folder(root: str) -> list[str]:
  """The checkout that this package runs from; the package where it is installed.

  An installed one holds the bundled tasks, with what makes their labels.
  """
  if os.path.exists(os.path.join(root, 'setup.py')):
    return [root]
  return [os.path.join(root, 'jaxagent')]


class LocalBackend:
  """Runs jobs through one launcher; restarts it when it dies.

  Args:
    slots: how many jobs may run at once (one user id each, as root).
    zygote: whether the launcher imports the numerical stack.
    work_dir: where scratch folders go; a temporary folder when None.
    disable: primitives to do without (for tests and odd machines).
    gpu_devices: device files visible to jobs, such as '/dev/nvidia0'.
    hidden: folders that no job may read, wherever they lie: labels, runs.
      The checkout or the installed package is always among them.
    keep_kb: how much of the output is kept, half head and half tail.
    collect_mb: size cap of each collected file.
    cpu_level: of `cpu_levels.LEVELS`; the vector units that jobs use.
    python: of the launcher and its jobs, 3.11 or newer; '' for this one.
  """

  name = 'local'
  uid_base = 0x5A000000

  def __init__(
    self,
    slots: int,
    *,
    zygote: bool = True,
    work_dir: pathlib.Path | None = None,
    disable: Sequence[str] = (),
    gpu_devices: Sequence[str] = (),
    hidden: Sequence[pathlib.Path | str] = (),
    keep_kb: int = 64,
    collect_mb: int = 64,
    cpu_level: str = cpu_levels.DEFAULT,
    python: str = '',
  ):
    unknown = set(disable) - set(DISABLE)
    if unknown:
      raise ValueError(f'disable={sorted(unknown)}: choose from {DISABLE}.')
    self.slots, self.zygote = slots, zygote
    self.python = python or sys.executable
    self.cpu_level = cpu_levels.check(cpu_level)
    self.disable, self.gpu_devices = list(disable), list(gpu_devices)
    self.hidden = [os.path.abspath(h) for h in hidden]
    self.keep_kb, self.collect_mb = keep_kb, collect_mb
    if work_dir is not None:
      os.makedirs(work_dir, exist_ok=True)
    base = '' if work_dir is None else str(work_dir)
    scratch.sweep(base)
    self._folder = scratch.Folder(base)
    self.work_dir = self._folder.path
    self.hello: dict[str, Any] = {}
    self.tier = ''
    self._process: subprocess.Popen | None = None
    self._control: socket.socket | None = None
    self._lock = threading.Lock()
    self._numbers: dict[str, int] = {}
    self._next = 0
    self.restarts = -1
    self._name = ''

  def start(self) -> str:
    """Starts the launcher. Returns the tier; see probe.py for the attacks."""
    with self._lock:
      self._start_locked()
    return self.tier

  def _start_locked(self) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    name = self._name = f'jaxagent-{os.getpid()}-{uuid.uuid4().hex[:8]}'
    self._folder.write(name)  # before its cgroups exist
    template = os.path.join(self.work_dir, 'root')
    os.makedirs(template, exist_ok=True)
    root = str(pathlib.Path(__file__).resolve().parents[2])
    cpu = cpu_levels.here(self.cpu_level)
    options = {
      'cpu': cpu,
      'template': template,
      'work_dir': self.work_dir,
      'name': name,
      'disable': self.disable,
      'gpu_devices': self.gpu_devices,
      'zygote': self.zygote,
      'package_root': root,
      'slots': self.slots,
      'hidden': [*self.hidden, self.work_dir, *_project_folder(root)],
      'uid_base': self.uid_base + (os.getpid() % 4096) * 256,
    }
    env = {
      'PATH': '/usr/local/bin:/usr/bin:/bin',
      **_zygote.INTERPRETER,
      **_zygote.ENVIRONMENT,
      **cpu,
    }
    # The launcher does not die with the thread that starts it; it watches
    # its parent and this socket instead.
    self._process = subprocess.Popen(
      [
        self.python,
        *_zygote.FLAGS,
        '-c',
        launcher.start_command(root),
        str(theirs.fileno()),
        json.dumps(options),
      ],
      env=env,
      pass_fds=[theirs.fileno()],
      stdin=subprocess.DEVNULL,
      stdout=subprocess.DEVNULL,
      stderr=subprocess.PIPE,
      cwd='/',
      start_new_session=True,
    )
    theirs.close()
    ours.settimeout(120)
    try:
      data = ours.recv(65536)
    except OSError:
      data = b''
    if not data:
      self._process.kill()
      assert self._process.stderr is not None  # a pipe
      text = self._process.stderr.read().decode('utf-8', 'replace')
      raise errors.BackendError(
        f'the sandbox launcher did not start: {text[-1500:]}'
      )
    ours.settimeout(None)
    self._control = ours
    self.hello = json.loads(data)
    self.hello['cpu_level'] = self.cpu_level
    if 'threads_left' in self.hello:
      return self._without_zygote(self.hello['threads_left'])
    tier = tier_of(self.hello)
    if self.tier and errors.tier_number(tier) < errors.tier_number(self.tier):
      self._close_process()  # or the next job would run in it
      raise errors.TierError(
        f'the restarted launcher offers {tier}, not {self.tier}.'
      )
    self.tier = tier
    self.restarts += 1

  def _without_zygote(self, reason: str) -> None:
    warnings.warn(
      f'sandbox: {reason}: no job can be forked after the imports, and each '
      f'imports for itself, about a second longer.',
      stacklevel=4,
    )
    self.zygote = False
    self._close_process()
    self._start_locked()

  def lower(self) -> None:
    """Goes one step down after a failed probe: never silently."""
    step = {'T3': 'cgroup', 'T2': 'namespaces', 'T1': 'seccomp'}[self.tier]
    warnings.warn(
      f'sandbox: {self.tier} failed its probe, trying without {step}.',
      stacklevel=3,
    )
    self.disable.append(step)
    self._stop()
    self.tier = ''
    self.start()

  def _ensure_alive(self) -> None:
    with self._lock:
      if self._process is None or self._process.poll() is not None:
        self._close_process()
        self._start_locked()

  def run(
    self,
    job: Job,
    slot: int,
    timeout_s: float,
    gpu_ids: Sequence[str] = (),
    cancelled: Callable[[], bool] = lambda: False,
  ) -> Execution:
    """Runs one job and waits for the death of all its processes."""
    try:
      self._ensure_alive()
      ours, theirs = socket.socketpair()
      with theirs:
        number = self._request(job, slot, timeout_s, theirs, cancelled)
      if number is None:
        ours.close()
        return outcome.killed(job, self.tier)
    except (OSError, errors.BackendError, errors.TierError) as error:
      return outcome.infrastructure(job, self.tier, f'launcher: {error}')
    try:
      with ours:
        return self._converse(job, ours, timeout_s, gpu_ids)
    finally:
      if self._numbers.get(job.job_id) == number:
        del self._numbers[job.job_id]

  def _request(
    self,
    job: Job,
    slot: int,
    timeout_s: float,
    theirs: socket.socket,
    cancelled: Callable[[], bool],
  ) -> int | None:
    """The job's number, or None where it was cancelled before it began."""
    message = {
      'op': 'run',
      'slot': slot,
      'timeout_s': timeout_s,
      'memory_mb': job.limits.memory_mb,
      'pids': job.limits.pids,
      'threads': job.threads,
      'bring_s': _changed.most_s(job.changed_mb),
    }
    # One lock for number and message: a cancel finds neither or both, and
    # its own message comes after this one.
    with self._lock:
      if cancelled():
        return None
      assert self._control is not None  # `start` came before
      self._next += 1
      number = self._numbers[job.job_id] = message['job'] = self._next
      socket.send_fds(
        self._control, [json.dumps(message).encode()], [theirs.fileno()]
      )
    return number

  def _converse(
    self,
    job: Job,
    conn: socket.socket,
    timeout_s: float,
    gpu_ids: Sequence[str],
  ) -> Execution:
    blobs = [
      v.encode('utf-8', 'surrogateescape') if isinstance(v, str) else v
      for v in job.files.values()
    ]
    result: dict[str, Any] | None = None
    output: list[bytes] = []
    trailer: dict[str, Any] | None = None
    conn.settimeout(timeout_s + 30.0)
    try:
      try:
        header = outcome.request(
          job, timeout_s, gpu_ids, blobs, self.keep_kb, self.collect_mb
        )
        header['zygote'] = job.zygote and self.zygote
        _wire.send(conn, header, blobs)
      except OSError:
        pass  # the supervisor died; the launcher's trailer says so
      while trailer is None:
        header, parts = _wire.receive(conn)
        if 'dead' in header:
          trailer = header
        else:
          result, output = header, parts
    except (EOFError, OSError) as error:
      return outcome.infrastructure(
        job, self.tier, f'the launcher died: {error}'
      )
    if result is None or result.get('error'):
      if trailer.get('cancelled'):
        return outcome.killed(job, self.tier)
      text = (result or {}).get('error') or trailer.get('launch_error')
      return outcome.infrastructure(
        job, self.tier, text or f'supervisor status {trailer["dead"]}'
      )
    result['timeout_s'] = timeout_s
    return outcome.execution(job, self.tier, result, output, trailer)

  def cancel(self, job_id: str) -> bool:
    """Kills a running job. True where it was running."""
    with self._lock:
      number = self._numbers.get(job_id)
      if number is None or self._control is None:
        return False
      try:
        self._control.send(json.dumps({'op': 'kill', 'job': number}).encode())
      except OSError:
        return False
      return True

  def stats(self) -> dict[str, Any]:
    return {
      'launcher_pid': self._process.pid if self._process else None,
      'launcher_restarts': max(0, self.restarts),
      **self.hello,
    }

  def _close_process(self) -> None:
    if self._control is not None:
      self._control.close()
      self._control = None
    if self._process is not None:
      try:
        self._process.wait(10)
      except subprocess.TimeoutExpired:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
      if self._process.stderr is not None:
        self._process.stderr.close()
      self._process = None
    _cgroup.remove_left(self._name)  # a launcher that was killed could not

  def _stop(self) -> None:
    with self._lock:
      self._close_process()

  def close(self) -> None:
    self._stop()
    self._folder.remove()
