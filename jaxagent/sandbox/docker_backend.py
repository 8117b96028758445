"""The `docker` backend: a container per job, made by a Docker daemon.

Docker builds the room (own namespaces, read-only root, tmpfs, cgroup, no
network, no capability, a user id per slot); inside, the supervisor of the local
backend is the first process: it adds seccomp and rlimits, keeps the clock,
kills every process and brings the files out over the container's streams.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import socket
import struct
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from jaxagent.sandbox import _wire, _zygote, cpu_levels, errors, outcome
from jaxagent.types import Execution, Job, Limits

IMAGE = 'jaxagent-sandbox'
LABEL = 'jaxagent.sandbox'
GUARD_S = 30.0  # past the deadline the container is killed from outside
# Of the container's memory, beside the job's: the supervisor, and what it has
# imported for a job of the zygote.
SUPERVISOR_MB, IMPORTS_MB = 24, 160
UID_BASE = 0x5A000000
MB = 1 << 20
_MODULES = (
  '_linux',
  '_changed',
  '_wire',
  '_runner',
  '_cgroup',
  '_zygote',
  '_counting',
  '_room',
  '_job',
  '_watch',
  '_supervisor',
  '_afresh',
  '_container',
)
# What Docker hides by itself; the list has to be whole where it is given.
_MASKED = (
  '/proc/acpi',
  '/proc/asound',
  '/proc/kcore',
  '/proc/keys',
  '/proc/interrupts',
  '/proc/latency_stats',
  '/proc/sched_debug',
  '/proc/scsi',
  '/proc/timer_list',
  '/proc/timer_stats',
  '/sys/devices/virtual/powercap',
  '/sys/firmware',
)
# Bounds of the container that says what an image has.
_TO_INSPECT = Limits(memory_mb=256, pids=16, disk_mb=16)
_INSPECT = """
import glob, json, os, platform, sys, site
features = []
for name in ('numpy._core._multiarray_umath', 'numpy.core._multiarray_umath'):
  try:
    features = list(__import__(name, fromlist='x').__cpu_dispatch__)
    break
  except Exception:
    pass
found = {os.path.realpath(p) for p in (*sys.path, *site.getsitepackages()) if p}
for pattern in ('/usr/lib*/python3*/*-packages',
                '/usr/local/lib*/python3*/*-packages'):
  found.update(map(os.path.realpath, glob.glob(pattern)))
print(json.dumps({'version': sys.version_info[:3], 'folders': [
  p for p in sorted(found) if os.path.isdir(p)], 'features': features,
  'machine': platform.machine(), 'cpuinfo': open('/proc/cpuinfo').read()[:20000]}))
"""


def start_text(cpu: Mapping[str, str] = MappingProxyType({})) -> str:
  """Python text that makes our modules inside a container and runs them.

  cpu: variables of the jobs' CPU level.
  """
  here = pathlib.Path(__file__).parent
  sources = {n: (here / f'{n}.py').read_text('utf-8') for n in _MODULES}
  return f"""
import sys, types
sources = {sources!r}
for name in ('jaxagent', 'jaxagent.sandbox'):
  sys.modules[name] = types.ModuleType(name)
  sys.modules[name].__path__ = []
home = sys.modules['jaxagent'].sandbox = sys.modules['jaxagent.sandbox']
for name, source in sources.items():
  full = 'jaxagent.sandbox.' + name
  module = sys.modules[full] = types.ModuleType(full)
  setattr(home, name, module)
  exec(compile(source, name + '.py', 'exec'), module.__dict__)
sys.modules[full].main(sources['_runner'], {dict(cpu)!r})
"""


class Attached:
  """A container's streams as one socket: reads give its standard output."""

  def __init__(self, sock: socket.socket):
    self.sock = sock
    self.left = 0
    self.errors = bytearray()  # head of the standard error, for people

  def sendall(self, data: bytes) -> None:
    self.sock.sendall(data)

  def _exactly(self, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
      part = self.sock.recv(size - len(parts))
      if not part:
        raise EOFError('the container has ended.')
      parts += part
    return bytes(parts)

  def recv(self, size: int) -> bytes:
    """Docker multiplexes: 1 byte stream, 3 of nothing, 4 length, the data."""
    while not self.left:
      stream, length = struct.unpack('>BxxxI', self._exactly(8))
      if stream == 1:
        self.left = length
      else:
        text = self._exactly(length)
        self.errors += text[: max(0, 4000 - len(self.errors))]
    part = self.sock.recv(min(size, self.left))
    self.left -= len(part)
    return part


@dataclasses.dataclass
class _Run:
  """A job between `run` and its end. Changed under the backend's lock."""

  container: str = ''
  started: bool = False
  cancelled: bool = False


class DockerBackend:
  """Runs each job in a container of its own; see docs/sandbox.md.

  Args:
    slots: how many jobs may run at once; each has its own user id.
    image: an image with Python 3.11 and the packages that jobs import; `python
      -m jaxagent.sandbox image` makes one of this interpreter's packages.
    hidden: folders that no job may read; those of packages are covered in the
      image, too. Others are not in a container to begin with.
    zygote: whether a job that asks for it is forked after the imports. Each
      container makes its own, so `startup_s` has them, and `exec_s` has not.
    work_dir: not needed; containers have their own file systems.
    keep_kb: how much of the output is kept, half head and half tail.
    collect_mb: size cap of each collected file.
    cpu_level: as for LocalBackend, of the daemon's machine.

  The daemon is found as the docker command finds it (DOCKER_HOST). Mounts are
  bound by the daemon, so their folders must be on its machine.
  """

  name = 'docker'

  def __init__(
    self,
    slots: int,
    *,
    image: str = IMAGE,
    hidden: Sequence[pathlib.Path | str] = (),
    zygote: bool = True,
    work_dir: pathlib.Path | None = None,
    keep_kb: int = 64,
    collect_mb: int = 64,
    cpu_level: str = cpu_levels.DEFAULT,
  ):
    del work_dir
    self.slots, self.image, self.zygote = slots, image, zygote
    self.hidden = [os.path.abspath(h) for h in hidden]
    self.keep_kb, self.collect_mb = keep_kb, collect_mb
    self.cpu_level = cpu_levels.check(cpu_level)
    self.tier = ''
    self.notes: list[str] = []
    self._owner = f'{os.getpid()}-{uuid.uuid4().hex[:8]}'
    self._lock = threading.Lock()
    self._runs: dict[str, _Run] = {}
    self._clients = threading.local()
    self._open: list[Any] = []
    self._uid_base, self._quota = 0, False
    self._masked: list[str] = list(_MASKED)
    self._cpu: dict[str, str] = {}
    self._text = ''
    self._variables: dict[str, str] = {}

  def _api(self):
    """The daemon's API, one connection pool per thread."""
    if not hasattr(self._clients, 'api'):
      self._clients.api = connect()
      with self._lock:
        self._open.append(self._clients.api)
    return self._clients.api

  def start(self) -> str:
    """Checks daemon and image. Returns the tier; BackendError with a remedy."""
    api = self._api()
    self._check(api.info())
    _sweep(api)
    found = self._inspect_image(api)
    self._masked += sorted(_covered(self.hidden, found['folders']))
    self._cpu = cpu_levels.environment(
      self.cpu_level,
      cpu_levels.flags_of(found['machine'], found['cpuinfo']),
      found['features'],
    )
    self._text = start_text(self._cpu)
    self.tier = 'T3'
    return self.tier

  def _check(self, info: dict[str, Any]) -> None:
    for key, what in (('MemoryLimit', 'memory'), ('PidsLimit', 'processes')):
      if not info.get(key):
        raise errors.BackendError(
          f'docker: this daemon cannot limit {what} (cgroup controller '
          'missing); enable it or use backend=local.'
        )
    if info.get('OSType') != 'linux':
      raise errors.BackendError('docker: the daemon must run Linux containers.')
    self._quota = bool(info.get('CpuCfsQuota'))
    if not self._quota:
      self.notes.append('docker: no CPU quota on this kernel')
    remapped = [
      s
      for s in info.get('SecurityOptions') or ()
      if s.startswith(('name=userns', 'name=rootless'))
    ]
    # A remapped daemon has 65,536 user ids.
    self._uid_base = (
      60_000 if remapped else (UID_BASE + (os.getpid() % 4096) * 256)
    )

  def _inspect_image(self, api: Any) -> dict[str, Any]:
    """Inspects the image: {'version': [..], 'folders': [packages]}."""
    import docker.errors

    remedy = (
      'make one of this interpreter with `python -m jaxagent.sandbox image '
      f'--tag {self.image}`, or name one that has Python 3.11 and the packages '
      'that jobs import'
    )
    try:
      image = api.inspect_image(self.image)
    except docker.errors.ImageNotFound:
      raise errors.BackendError(
        f'docker: the daemon has no image {self.image!r}: {remedy}.'
      ) from None
    # Its own settings of Python are not those of jobs: empty is unset.
    self._variables = {
      name: ''
      for name, _, _ in (
        pair.partition('=') for pair in image['Config'].get('Env') or ()
      )
      if name.startswith('PYTHON')
    }
    container = ''
    try:
      container = self._create(
        api, ['python3', '-I', '-B', '-c', _INSPECT], 0, _TO_INSPECT
      )
      api.start(container)
      api.wait(container, timeout=60)
      # Where standard output is not kept this is the only way to read it.
      text = api.logs(container, stdout=True, stderr=False).decode()
      found = json.loads(text)
    except (docker.errors.DockerException, ValueError) as error:
      raise errors.BackendError(
        f'docker: the image {self.image!r} cannot run python3 ({error}): '
        f'{remedy}.'
      ) from None
    finally:
      if container:
        _remove(api, container)
    if tuple(found['version']) < (3, 11):
      version = '.'.join(map(str, found['version']))
      raise errors.BackendError(
        f'docker: the image {self.image!r} has Python {version}: {remedy}.'
      )
    return found

  def _limited(
    self, uid: int, limits: Limits, job: Job | None, extra_bytes: int
  ) -> dict[str, Any]:
    """Returns the part of a container's host configuration that confines it."""
    size = limits.disk_mb * MB + extra_bytes
    inodes = 4096 + limits.disk_mb * 64 + (len(job.files) if job else 0)
    warm = job is not None and job.zygote and self.zygote
    room = SUPERVISOR_MB + (IMPORTS_MB if warm else 0)
    memory = (limits.memory_mb + room) * MB
    options: dict[str, Any] = {
      'network_mode': 'none',
      'read_only': True,
      'cap_drop': ['ALL'],
      'security_opt': ['no-new-privileges'],
      'ipc_mode': 'private',
      'mem_limit': memory,
      'memswap_limit': memory,
      'pids_limit': limits.pids + 1,
      'shm_size': limits.disk_mb * MB,
      'tmpfs': {
        '/box': f'rw,exec,nosuid,nodev,size={size},nr_inodes={inodes},'
        f'uid={uid},gid={uid},mode=0700',
        '/tmp': f'rw,exec,nosuid,nodev,size={limits.disk_mb * MB},'
        f'nr_inodes={inodes},uid={uid},gid={uid},mode=0700',
      },
      'mounts': [
        {
          'Type': 'bind',
          'Source': str(pathlib.Path(source).resolve()),
          'Target': f'/inputs/{number}',
          'ReadOnly': True,
        }
        for number, source in enumerate(job.mounts.values() if job else ())
      ],
    }
    if self._quota:
      threads = job.threads if job else 1
      options['nano_cpus'] = min(threads, os.cpu_count() or 1) * 10**9
    return options

  def _create(
    self,
    api: Any,
    command: Sequence[str],
    slot: int,
    limits: Limits,
    *,
    job: Job | None = None,
    gpu_ids: Sequence[str] = (),
    extra_bytes: int = 0,
  ) -> str:
    """Returns the id of a container that has not started."""
    uid = self._uid_base + slot
    options = self._limited(uid, limits, job, extra_bytes)
    if gpu_ids:
      import docker.types

      options['device_requests'] = [
        docker.types.DeviceRequest(
          device_ids=list(gpu_ids), capabilities=[['gpu']]
        )
      ]
    if job is not None:  # results can be large: the daemon is to keep none
      options['log_config'] = {'Type': 'none', 'Config': {}}
    host_config = api.create_host_config(**options)
    host_config['MaskedPaths'] = self._masked
    made = api.create_container(
      self.image,
      list(command),
      host_config=host_config,
      user=f'{uid}:{uid}',
      working_dir='/',
      hostname='sandbox',
      stdin_open=job is not None,
      network_disabled=True,
      environment={
        **self._variables,
        **_zygote.INTERPRETER,
        **_zygote.ENVIRONMENT,
        **self._cpu,
      },
      labels={
        LABEL: self._owner,
        f'{LABEL}.host': _this_boot(),
        f'{LABEL}.process': _process_key(os.getpid()),
      },
    )
    return made['Id']

  def run(
    self,
    job: Job,
    slot: int,
    timeout_s: float,
    gpu_ids: Sequence[str] = (),
    cancelled: Callable[[], bool] = lambda: False,
  ) -> Execution:
    """Runs one job and waits for the end of its container."""
    import docker.errors
    import requests

    run = _Run()
    with self._lock:
      if cancelled():
        return outcome.killed(job, self.tier)
      self._runs[job.job_id] = run
    try:
      return self._run(job, slot, timeout_s, gpu_ids, run)
    except (
      OSError,
      docker.errors.DockerException,
      requests.RequestException,
    ) as error:
      if run.cancelled:
        return outcome.killed(job, self.tier)
      return outcome.infrastructure(job, self.tier, f'docker: {error}')
    finally:
      with self._lock:
        if self._runs.get(job.job_id) is run:
          del self._runs[job.job_id]

  def _run(
    self,
    job: Job,
    slot: int,
    timeout_s: float,
    gpu_ids: Sequence[str],
    run: _Run,
  ) -> Execution:
    api, begin = self._api(), time.monotonic()
    blobs = [
      v.encode('utf-8', 'surrogateescape') if isinstance(v, str) else v
      for v in job.files.values()
    ]
    header = self._header(job, timeout_s, gpu_ids, blobs)
    limits = job.limits
    container = self._create(
      api,
      ['python3', *_zygote.FLAGS, '-c', self._text],
      slot,
      limits,
      job=job,
      gpu_ids=gpu_ids,
      extra_bytes=header['initial_bytes'],
    )
    try:
      stream = api.attach_socket(
        container, {'stdin': 1, 'stdout': 1, 'stderr': 1, 'stream': 1}
      )
      try:
        api.start(container)
        with self._lock:
          run.container, run.started = container, True
          stop = run.cancelled
        if stop:
          return outcome.killed(job, self.tier)
        attached = Attached(getattr(stream, '_sock', stream))
        attached.sock.settimeout(timeout_s + GUARD_S)
        frames = self._converse(attached, header, blobs)
      finally:
        stream.close()
      received = time.monotonic()
      if 'trailer' not in frames:
        frames.update(self._lost(api, container))
    finally:
      _remove(api, container)
    return self._execution(
      job, timeout_s, frames, begin, received, run, attached
    )

  def _header(
    self, job: Job, timeout_s: float, gpu_ids: Sequence[str], blobs: list[bytes]
  ) -> dict[str, Any]:
    header = outcome.request(
      job, timeout_s, gpu_ids, blobs, self.keep_kb, self.collect_mb
    )
    header['mounts'] = {
      name: f'/inputs/{number}' for number, name in enumerate(job.mounts)
    }
    header['zygote'] = job.zygote and self.zygote
    return header

  def _converse(
    self, attached: Attached, header: dict[str, Any], blobs: list[bytes]
  ) -> dict[str, Any]:
    """{'result', 'output', 'trailer'}, or what of it came."""
    frames: dict[str, Any] = {}
    try:
      _wire.send(attached, header, blobs)
      while 'trailer' not in frames:
        record, parts = _wire.receive(attached)
        if 'dead' in record:
          frames['trailer'] = record
        else:
          frames['result'], frames['output'] = record, parts
    except (EOFError, OSError) as error:
      frames['problem'] = str(error)
    return frames

  def _lost(self, api: Any, container: str) -> dict[str, Any]:
    """Returns the daemon's account of a container without a trailer."""
    state = api.inspect_container(container)['State']
    return {
      'oom': bool(state.get('OOMKilled')),
      'problem': f'exit code {state.get("ExitCode")} '
      f'{state.get("Error") or ""}'.strip(),
    }

  def _execution(
    self,
    job: Job,
    timeout_s: float,
    frames: dict[str, Any],
    begin: float,
    received: float,
    run: _Run,
    attached: Attached,
  ) -> Execution:
    if run.cancelled:
      return outcome.killed(job, self.tier)
    result = frames.get('result')
    if result and not result.get('error') and 'trailer' in frames:
      result.update(
        timeout_s=timeout_s,
        ended_at=received,
        startup_s=max(0.0, received - begin - result['exec_s']),
      )
      trailer = {**frames['trailer'], 'finished_at': time.monotonic()}
      return outcome.execution(
        job, self.tier, result, frames['output'], trailer
      )
    if frames.get('oom'):  # the kernel took the supervisor as well
      return Execution(
        job_id=job.job_id,
        outcome=outcome.Outcome.OOM,
        tier=self.tier,
        exec_s=max(received - begin, 1e-6),
        peak_memory_mb=job.limits.memory_mb,
        message='the kernel killed its container at the memory limit',
      )
    text = (
      (result or {}).get('error')
      or frames.get('trailer', {}).get('launch_error')
      or f'{frames.get("problem", "")} {attached.errors.decode("utf-8", "replace")}'
    )
    return outcome.infrastructure(job, self.tier, f'docker: {text}')

  def cancel(self, job_id: str) -> bool:
    """Kills a running job. True where it was running.

    Never raises: where no daemon takes the order, the job's clock or its guard
    ends it, and it comes back as `killed` all the same.
    """
    with self._lock:
      run = self._runs.get(job_id)
      if run is None:
        return False
      run.cancelled = True
      container = run.container if run.started else ''
    if container:
      with contextlib.suppress(Exception):  # it has ended, or the daemon has
        self._api().kill(container)
    return True

  def stats(self) -> dict[str, Any]:
    return {
      'launcher_pid': None,
      'image': self.image,
      'containers': len(self._runs),
      'notes': list(self.notes),
      'cpu_quota': self._quota,
      'cpu_level': self.cpu_level,
    }

  def close(self) -> None:
    """Removes every container of this backend."""
    with self._lock:
      known = bool(self._open)
    if known:
      try:
        _remove_all(self._api(), {'label': f'{LABEL}={self._owner}'})
      except Exception as error:  # noqa: BLE001: the daemon has gone
        print(f'jaxagent: docker: {error}', file=sys.stderr)
    with self._lock:
      clients, self._open = self._open, []
    self._clients = threading.local()
    for client in clients:
      client.close()


def connect():
  """A client of the daemon that DOCKER_HOST names, or BackendError."""
  try:
    import docker
  except ImportError:
    raise errors.BackendError(
      "sandbox.backend='docker' needs the Docker SDK: pip install "
      "'jaxagent[docker]'."
    ) from None
  host = os.environ.get('DOCKER_HOST', 'unix:///var/run/docker.sock')
  try:
    client = docker.APIClient(
      **docker.utils.kwargs_from_env(), version='auto', timeout=60
    )
    client.ping()
    return client
  except (docker.errors.DockerException, OSError) as error:
    raise errors.BackendError(
      f'docker: no daemon answers at {host} ({error}). Start Docker, let this '
      'user reach its socket, or set DOCKER_HOST.'
    ) from None


def _covered(hidden: Sequence[str], folders: Sequence[str]) -> set[str]:
  """Returns the places of the packages' `hidden` folders in the image."""
  found: set[str] = set()
  for path in hidden:
    parts = path.split('/')
    for number, part in enumerate(parts[:-1]):
      if part.endswith('-packages'):
        inside = '/'.join(parts[number + 1 :])
        found.update(f'{folder}/{inside}' for folder in folders)
  return found


def _this_boot() -> str:
  """Names this machine until it is started again."""
  try:
    boot = pathlib.Path('/proc/sys/kernel/random/boot_id').read_text().strip()
  except OSError:
    boot = ''
  namespace = os.stat('/proc/self/ns/pid').st_ino
  return f'{socket.gethostname()}/{boot}/{namespace}'


def _process_key(pid: int) -> str:
  """Pid and start time: another process of that number has another one."""
  try:
    with open(f'/proc/{pid}/stat', 'rb') as f:
      return f'{pid}/{f.read().rsplit(b")", 1)[1].split()[19].decode()}'
  except OSError:
    return f'{pid}/gone'


def _sweep(api: Any) -> None:
  """Removes containers whose trainer, of this machine, is dead."""
  for entry in api.containers(
    all=True, filters={'label': f'{LABEL}.host={_this_boot()}'}
  ):
    key = entry['Labels'].get(f'{LABEL}.process', '')
    pid = key.partition('/')[0]
    if pid.isdigit() and _process_key(int(pid)) != key:
      _remove(api, entry['Id'])


def _remove_all(api: Any, filters: dict[str, str]) -> None:
  for entry in api.containers(all=True, filters=filters):
    _remove(api, entry['Id'])


def _remove(api: Any, container: str) -> None:
  """Kills and removes; one that is gone, or going, is fine."""
  import docker.errors

  for _ in range(50):
    try:
      api.remove_container(container, force=True, v=True)
      return
    except docker.errors.NotFound:
      return
    except docker.errors.APIError as error:
      if error.status_code != 409:  # its removal is under way
        raise
      time.sleep(0.02)
