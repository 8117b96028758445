"""The `ray` backend: one actor per slot, each around a launcher of its node.

The driver sends a job as bytes and gets an execution as bytes (JSON, contents
in base64). Nothing else of a result is decoded. A lost actor or node ends the
run as `infrastructure`; the next run of that slot starts a new actor.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import dataclasses
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import json
import logging
import os
import pathlib
import re
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TextIO

from jaxagent.sandbox import _cgroup, _remove, errors, local, outcome, probe
from jaxagent.types import Execution, Job, Limits, Outcome

JOIN_S = 15.0  # an address that has not answered by then is refused
CPUS_S = 8.0  # how long slots wait for CPUs that others hold
LOAD_S = 60.0  # an actor's process, and jaxagent in it
OPEN_S = 180.0  # a launcher with its zygote, and the probe
GUARD_S = 30.0  # past a job's limit without an answer the actor is given up
CLOSE_S = 15.0
STORE_BYTES = 128 << 20  # jobs and results pass through it, more goes to disk
SOCKET_CHARS = 104 - 66  # what Ray appends to its folder for socket names
PREFIX = 'jaxagent-ray-'
_GROUP = re.compile(r'jaxagent-\d+-[0-9a-f]{8}\Z')


def _pack(record: dict[str, Any]) -> bytes:
  # Lone surrogates come back as they were; \u escapes would join pairs.
  text = json.dumps(record, ensure_ascii=False)
  return text.encode('utf-8', 'surrogatepass')


def _unpack(data: bytes) -> dict[str, Any]:
  return json.loads(data.decode('utf-8', 'surrogatepass'))


def _base64(content: bytes) -> str:
  return base64.b64encode(content).decode('ascii')


def job_to_bytes(job: Job) -> bytes:
  """A job as JSON; relative mounts become absolute, all mounts text."""
  record = {
    f.name: getattr(job, f.name) for f in dataclasses.fields(job)
  }
  record['files'] = {
    k: v if isinstance(v, str) else {'base64': _base64(v)}
    for k, v in job.files.items()
  }
  record['mounts'] = {k: os.path.abspath(v) for k, v in job.mounts.items()}
  record['env'] = dict(job.env)
  record['limits'] = dataclasses.asdict(job.limits)
  return _pack(record)


def job_from_bytes(data: bytes) -> Job:
  """The inverse of job_to_bytes; mounts come as pathlib.Path."""
  record = _unpack(data)
  record['files'] = {
    k: v if isinstance(v, str) else base64.b64decode(v['base64'])
    for k, v in record['files'].items()
  }
  record['mounts'] = {k: pathlib.Path(v) for k, v in record['mounts'].items()}
  record['limits'] = Limits(**record['limits'])
  for name in ('argv', 'collect'):
    record[name] = tuple(record[name])
  return Job(**record)


def execution_to_bytes(execution: Execution) -> bytes:
  """An execution as JSON, collected files in base64."""
  record = {
    f.name: getattr(execution, f.name) for f in dataclasses.fields(execution)
  }
  record['outcome'] = execution.outcome.value
  record['collected'] = {
    k: _base64(v) for k, v in execution.collected.items()
  }
  return _pack(record)


def execution_from_bytes(data: bytes) -> Execution:
  """The inverse of execution_to_bytes."""
  record = _unpack(data)
  record['outcome'] = Outcome(record['outcome'])
  record['collected'] = {
    k: base64.b64decode(v) for k, v in record['collected'].items()
  }
  return Execution(**record)


def fingerprint() -> str:
  """16 hex digits of what both sides must have alike: sandbox and types."""
  here = pathlib.Path(__file__).resolve().parent
  digest = hashlib.sha256()
  for path in (*sorted(here.glob('*.py')), here.parent / 'types.py'):
    content = path.read_bytes()
    digest.update(f'{path.name} {len(content)} '.encode() + content)
  return digest.hexdigest()[:16]


def _boot_id() -> str:
  """Tells machines apart that share a file system, and starts of one."""
  with contextlib.suppress(OSError):
    with open('/proc/sys/kernel/random/boot_id') as f:
      return f.read().strip()
  return socket.gethostname()


class Folder:
  """A temporary folder, locked for as long as its owner's process lives.

  Its file `owner` names the machine and then the cgroups made meanwhile, so
  that `sweep` can remove what a killed owner could not.
  """

  def __init__(self, base: str = ''):
    self.path = tempfile.mkdtemp(prefix=PREFIX, dir=base or None)
    os.chmod(self.path, 0o711)
    new = os.path.join(self.path, 'owner.new')
    self._fd = os.open(new, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(self._fd, fcntl.LOCK_EX)
    self.write(_boot_id())
    # Under its final name it is locked from the first moment.
    os.rename(new, os.path.join(self.path, 'owner'))

  def write(self, line: str) -> None:
    os.write(self._fd, line.encode() + b'\n')

  def remove(self) -> None:
    if self._fd >= 0:
      _remove.remove_tree(self.path)
      os.close(self._fd)
      self._fd = -1


def sweep(base: str = '') -> int:
  """Removes folders and cgroups of dead owners. Returns how many."""
  base, number = base or tempfile.gettempdir(), 0
  with contextlib.suppress(OSError):
    for name in os.listdir(base):
      if name.startswith(PREFIX):
        number += _sweep_one(os.path.join(base, name))
  return number


def _sweep_one(path: str) -> bool:
  try:
    fd = os.open(
      os.path.join(path, 'owner'), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    )
  except OSError:
    return False
  try:
    if os.fstat(fd).st_uid != os.geteuid() or os.path.islink(path):
      return False  # another user's, who could name any group in it
    machine, *groups = os.read(fd, 1 << 20).decode().split('\n')
    if machine != _boot_id():
      return False  # on a shared file system locks of others may not show
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    for group in groups:
      if _GROUP.match(group):
        _cgroup.remove_left(group)
    _remove.remove_tree(path)
    return not os.path.exists(path)
  except (OSError, UnicodeDecodeError):
    return False
  finally:
    os.close(fd)


class _Local(local.LocalBackend):
  """Writes the name of each launcher's cgroups down before they exist."""

  def __init__(self, folder: Folder, slots: int, **options):
    self._folder = folder
    super().__init__(slots, work_dir=pathlib.Path(folder.path), **options)

  @property
  def _name(self) -> str:
    return self.__dict__['_name_now']

  @_name.setter
  def _name(self, name: str) -> None:
    if name:
      self._folder.write(name)
    self.__dict__['_name_now'] = name


def _as_driver(nice: int) -> str:
  """Undoes what Ray does to its workers. Returns a note where it cannot.

  Jobs inherit both: an execution time is a weight, and the launcher must not
  be killed before the job where memory ends.
  """
  with contextlib.suppress(OSError):
    with open('/proc/self/oom_score_adj', 'w') as f:
      f.write('0')
  now = os.getpriority(os.PRIO_PROCESS, 0)  # of this thread
  if now <= nice:
    return ''
  try:
    os.setpriority(os.PRIO_PROCESS, 0, nice)
  except OSError:
    return (
      f'jobs run at niceness {now}, not {nice}: start the node with '
      'RAY_worker_niceness=0'
    )
  return ''


class Slot:
  """What an actor holds: a launcher of its node. Methods return JSON bytes.

  Runs in the actor's threads; knows nothing of Ray.
  """

  def __init__(self):
    self._options: dict[str, Any] = {}
    self._folder: Folder | None = None
    self._backend: local.LocalBackend | None = None
    self._lock = threading.Lock()
    self._cancelled: set[int] = set()
    self._orphaned = False

  def open(self, text: str) -> bytes:
    """Starts the launcher and attacks it. {'tier', 'notes'} or {'error'}."""
    try:
      options = self._options = json.loads(text)
      notes = [_as_driver(options['nice'])]
      threading.Thread(
        target=self._watch, args=(os.getppid(),), daemon=True).start()
      sweep(options['base'])
      self._folder = Folder(options['base'])
      backend = self._backend = _Local(
        self._folder, options['slots'], **options['local']
      )
      with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        backend.start()
        tier = probe.confirm(backend, 'T0')
      notes += [str(w.message) for w in caught] + backend.hello['notes']
      return _pack({'tier': tier, 'notes': [n for n in notes if n]})
    except BaseException as error:  # noqa: BLE001: the driver raises it
      return _pack({'error': f'{type(error).__name__}: {error}'[:2000]})

  def _watch(self, raylet: int) -> None:
    """Ends with the node's raylet, which workers can outlive."""
    while os.getppid() == raylet:
      time.sleep(0.25)
    self._orphaned = True
    try:
      self.close()
    finally:
      os._exit(1)

  def run(self, token: int, data: bytes, timeout_s: float,
          gpu_ids: Sequence[str]) -> bytes:
    job = job_from_bytes(data)
    try:
      _as_driver(self._options['nice'])  # a launcher may start again here
      result = self._run(token, job, timeout_s, gpu_ids)
    except BaseException as error:  # noqa: BLE001: the pool retries
      result = outcome.infrastructure(job, self._backend.tier, repr(error))
    finally:
      with self._lock:
        self._cancelled.discard(token)
    if self._orphaned:
      time.sleep(60)  # an answer would pass this process for a living one
    return execution_to_bytes(result)

  def _run(self, token: int, job: Job, timeout_s: float,
           gpu_ids: Sequence[str]) -> Execution:
    for name, path in job.mounts.items():
      if not os.path.isdir(path):
        return outcome.infrastructure(
          job, self._backend.tier,
          f'node {self._options["node"]} has no folder {str(path)!r} for the '
          f'mount {name!r}; keep it on a file system that all nodes share, '
          f'under the same path'
        )
    return self._backend.run(
      job, self._options['index'], timeout_s, gpu_ids,
      lambda: token in self._cancelled,
    )

  def cancel(self, token: int, job_id: str) -> bytes:
    """Kills the run of `token`, also where it comes after this call."""
    with self._lock:
      self._cancelled.add(token)
    return _pack({'running': self._backend.cancel(job_id)})

  def close(self) -> bytes:
    if self._backend is not None:
      self._backend.close()
    if self._folder is not None:
      self._folder.remove()
    sweep(self._options.get('base', ''))
    return _pack({})


def _actor_class():
  """The actor. Local, so that Ray sends its text and not its module's name:
  a node without jaxagent can then say so."""

  class SandboxSlot:

    def load(self, root: str) -> bytes:
      """{'node', 'ip', 'pid', 'host', 'fingerprint' or 'error'}."""
      import importlib
      import json
      import os
      import socket
      import sys

      import ray

      record = {
        'node': ray.get_runtime_context().get_node_id(), 'pid': os.getpid(),
        'ip': ray.util.get_node_ip_address(), 'host': socket.gethostname(),
      }
      name = 'jaxagent.sandbox.ray_backend'
      try:
        try:
          module = importlib.import_module(name)
        except ImportError:
          if not os.path.isdir(os.path.join(root, 'jaxagent')):
            raise
          sys.path.insert(0, root)
          importlib.invalidate_caches()
          module = importlib.import_module(name)
        self.slot = module.Slot()
        record['fingerprint'] = module.fingerprint()
      except BaseException as error:  # noqa: BLE001: the driver raises it
        record['error'] = f'{type(error).__name__}: {error}'
      return json.dumps(record).encode()

    def call(self, name, *arguments) -> bytes:
      return getattr(self.slot, name)(*arguments)

  return SandboxSlot


@contextlib.contextmanager
def _kept_signals() -> Iterator[None]:
  """Gives SIGTERM and SIGINT back to who had them: ray.init takes SIGTERM."""
  if threading.current_thread() is not threading.main_thread():
    yield
    return
  before = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)}
  try:
    yield
  finally:
    for number, handler in before.items():
      if handler is not None and signal.getsignal(number) is not handler:
        signal.signal(number, handler)


@contextlib.contextmanager
def _environment(**variables: str) -> Iterator[None]:
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
def _loopback() -> Iterator[None]:
  """Ray takes 127.0.0.1 for what it says: else it puts an address there that
  others reach, and its servers, which run what they are sent, listen on all.

  This is what Ray does where it has no clusters (macOS); the variable is for
  the processes that it starts.
  """
  from ray._private import ray_constants

  before = ray_constants.ENABLE_RAY_CLUSTER
  ray_constants.ENABLE_RAY_CLUSTER = False
  try:
    with _environment(RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER='0'):
      yield
  finally:
    ray_constants.ENABLE_RAY_CLUSTER = before


@contextlib.contextmanager
def _own_address_file(folder: str) -> Iterator[None]:
  """Ray's Cluster notes its address in the temporary folder, for "auto": it
  would replace another cluster's, and fails where `ray` is not there."""
  os.mkdir(os.path.join(folder, 'ray'))
  with _environment(RAY_TMPDIR=folder):
    yield


def _read_token_again() -> None:
  """Makes Ray, which read them at its import, read RAY_AUTH_* again."""
  with contextlib.suppress(ImportError, AttributeError):  # before Ray 2.52
    from ray._raylet import AuthenticationTokenLoader, Config

    Config.initialize('')
    AuthenticationTokenLoader.instance().reset_cache()


_TRIAL = '''
import json, logging, os, sys
said = ''
try:
  import ray
  ray.init(address=sys.argv[1], log_to_driver=False, _skip_env_hook=True,
           logging_level=logging.CRITICAL)
except BaseException as error:
  said = f'{type(error).__name__}: {error}'
os.write(int(sys.argv[2]), json.dumps(said).encode())
'''


def _try_to_join(address: str) -> str:
  """'' where a process of its own can join, else why not, in a line.

  In the trainer's process an address that accepts and says nothing would
  hang, and Ray's core ends the process on some errors.
  """
  end = time.monotonic() + JOIN_S
  host, _, port = address.rpartition(':')
  if host and port.isdigit():
    try:
      socket.create_connection((host.strip('[]'), int(port)), 5).close()
    except (OSError, OverflowError) as error:
      return f'nothing answers there ({error})'
  read, write = os.pipe()
  process = subprocess.Popen(
    [sys.executable, '-c', _TRIAL, address, str(write)], pass_fds=[write],
    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
  )
  os.close(write)
  try:
    process.wait(max(1.0, end - time.monotonic()))
  except subprocess.TimeoutExpired:
    process.kill()
    process.wait()
    return f'no Ray cluster answered within {JOIN_S:g} s'
  finally:
    with open(read, 'rb') as f:
      data = f.read()
  if not data:
    return f'Ray gave up with status {process.returncode}'
  return ' '.join(json.loads(data).split())[:500]


@dataclasses.dataclass(eq=False)
class _Actor:
  handle: Any
  node: str  # Ray's id of it
  ip: str
  host: str
  pid: int
  index: int = 0  # among the slots of its node
  tier: str = ''
  notes: tuple[str, ...] = ()

  @property
  def place(self) -> str:
    return f'{self.host} ({self.ip})'


@dataclasses.dataclass(eq=False)
class _Run:
  token: int
  job_id: str
  actor: _Actor | None = None
  cancelled: bool = False


class Keeper:
  """A process around a private Ray: it ends both when its input closes.

  So they end with the trainer however that ends, and Ray forks its processes
  from one that runs no JAX.
  """

  def __init__(self, slots: int, base: str):
    root = str(pathlib.Path(__file__).resolve().parents[2])
    command = (
      f'import sys; sys.path.insert(0, {root!r}); '
      'from jaxagent.sandbox.ray_backend import keep; '
      'keep(int(sys.argv[1]), sys.argv[2])'
    )
    # Other users reach the loopback, too; Ray refuses them without this.
    self.token = {}
    if 'RAY_AUTH_MODE' not in os.environ:
      self.token = {
        'RAY_AUTH_MODE': 'token', 'RAY_AUTH_TOKEN': secrets.token_hex(32),
      }
    self._process = subprocess.Popen(
      [sys.executable, '-c', command, str(slots), base], stdin=subprocess.PIPE,
      stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
      env={**os.environ, **self.token, 'RAY_USAGE_STATS_ENABLED': '0'},
      start_new_session=True,  # Ctrl-C is for the trainer
    )

  def wait(self) -> dict[str, str]:
    """{'address', 'home'} of the Ray; RuntimeError where there is none."""
    if not select.select([self._process.stdout], [], [], LOAD_S)[0]:
      raise RuntimeError(f'it was not ready within {LOAD_S:g} s')
    line = self._process.stdout.readline()
    record = json.loads(line) if line else {'error': 'its process ended'}
    if 'error' in record:
      raise RuntimeError(record['error'])
    return record

  def close(self) -> None:
    self._process.stdin.close()
    try:
      self._process.wait(CLOSE_S)
    except subprocess.TimeoutExpired:
      self._process.kill()
      self._process.wait()
    self._process.stdout.close()


def keep(slots: int, base: str) -> None:
  """The keeper's process: a Ray of one node until standard input closes.

  base: where the slots' folders are.
  """
  said, sys.stdout = sys.stdout, sys.stderr
  sweep()
  short = len(tempfile.gettempdir()) + len(PREFIX) + 9 <= SOCKET_CHARS
  home = Folder('' if short else '/tmp')
  try:
    with _own_address_file(home.path):
      _hold(slots, home.path, said)
  finally:
    home.remove()
    sweep(base)


def _hold(slots: int, home: str, said: TextIO) -> None:
  """Starts a Ray on `home`, says where, ends it when standard input ends."""
  try:
    with _loopback():
      from ray.cluster_utils import Cluster

      cluster = Cluster(initialize_head=True, head_node_args={
        'num_cpus': slots, 'num_gpus': 0, 'include_dashboard': False,
        'object_store_memory': STORE_BYTES, 'temp_dir': home,
        '_system_config': {'worker_niceness': 0},
      })
    record = {'address': cluster.address, 'home': home}
  except BaseException as error:  # noqa: BLE001: the driver raises it
    record = {'error': _line(error)}
  try:
    print(json.dumps(record), file=said, flush=True)
    sys.stdin.read()
  finally:
    theirs = _processes_of(home)
    with contextlib.suppress(Exception):
      cluster.shutdown()
    _end(theirs)


class _Stopped(Exception):
  """A wait was given up because its job was cancelled or the pool closes."""


class RayBackend:
  """Runs jobs in one Ray actor per slot; replaces actors that are lost.

  Args:
    slots: how many jobs may run at once; each takes one of Ray's CPUs.
    address: '' starts a private Ray on this machine's loopback; 'auto' or
      'host:port' joins a cluster that this machine is a node of. A Ray that
      this process has joined before is used and left running.
    work_dir: scratch space of a private Ray; on a cluster every node uses its
      own temporary folder.
    zygote, hidden, disable, gpu_devices, keep_kb, collect_mb: as for
      LocalBackend, on every node.
  """

  name = 'ray'

  def __init__(self, slots: int, *, address: str = '', zygote: bool = True,
               work_dir: pathlib.Path | None = None,
               hidden: Sequence[pathlib.Path | str] = (),
               disable: Sequence[str] = (), gpu_devices: Sequence[str] = (),
               keep_kb: int = 64, collect_mb: int = 64):
    unknown = set(disable) - set(local.DISABLE)
    if unknown:
      raise ValueError(
        f'disable={sorted(unknown)}: choose from {local.DISABLE}.'
      )
    self.slots, self.address, self.tier = slots, address, ''
    self.restarts = 0
    self._work_dir = None if work_dir is None else os.path.abspath(work_dir)
    self._options = {
      'zygote': zygote, 'disable': list(disable), 'keep_kb': keep_kb,
      'gpu_devices': list(gpu_devices), 'collect_mb': collect_mb,
      'hidden': [os.path.abspath(h) for h in hidden],
    }
    self._ray: Any = None
    self._joined = False  # by this backend, so that it leaves at the end
    self._keeper: Keeper | None = None  # of a private Ray
    self._home = ''  # its folder
    self._print: Any = None  # what Ray prints its own messages with
    self._theirs: dict[int, str] = {}  # its processes: {pid: start time}
    self._actors: list[_Actor | None] = [None] * slots
    self._slot_locks = [threading.Lock() for _ in range(slots)]
    self._lock = threading.Lock()
    self._running: dict[str, _Run] = {}
    self._token = 0
    self._closing = False

  # Starting.

  def start(self) -> str:
    """Connects and starts every actor. Returns the lowest of their tiers.

    Raises BackendError, with the remedy, where a part of it is missing.
    """
    atexit.register(self.close)
    with _kept_signals():
      self._import()
      self._connect()
    self._check_cpus()
    actors = self._spawn(self.slots)
    if self._home:
      self._theirs = _processes_of(self._home)
    with self._lock:
      self._actors = list(actors)
    self.tier = min((a.tier for a in actors), key=errors.tier_number)
    return self.tier

  def _import(self) -> None:
    # The import and the start of a private Ray take a second each.
    joined = 'ray' in sys.modules and sys.modules['ray'].is_initialized()
    found = importlib.util.find_spec('ray') is not None
    if found and not self.address and not joined:
      if self._work_dir is not None:
        os.makedirs(self._work_dir, exist_ok=True)
      self._keeper = Keeper(self.slots, self._work_dir or '')
    try:
      import ray
    except ImportError as error:
      raise errors.BackendError(
        f'the ray backend needs Ray ({error}): pip install "jaxagent[ray]".'
      ) from error
    self._ray = ray

  @property
  def _where(self) -> str:
    return f'address={self.address!r}'

  def _connect(self) -> None:
    ray = self._ray
    if ray.is_initialized():
      there = ray.get_runtime_context().gcs_address
      if self.address not in ('', 'auto', there):
        raise errors.BackendError(
          f'{self._where}: this process has joined the Ray cluster at '
          f'{there} before; use that address, or ray.shutdown() first.'
        )
    elif self.address:
      self._join()
    else:
      self._start_private()

  def _join(self) -> None:
    if '://' in self.address:
      raise errors.BackendError(
        f'{self._where}: Ray Client addresses are not supported; run on a '
        'node of the cluster and use "auto" or host:port.'
      )
    problem = _try_to_join(self.address)
    if not problem:
      try:
        self._init(address=self.address)
        return
      except Exception as error:  # noqa: BLE001: Ray raises many kinds
        problem = _line(error)
    raise errors.BackendError(
      f'{self._where}: {problem}. Start a node of the cluster on this machine '
      f'with Python {sys.version.split()[0]} and Ray '
      f'{importlib.metadata.version("ray")} (ray start --address=HOST:PORT), '
      'or leave the address empty for a private one.'
    )

  def _start_private(self) -> None:
    try:
      record = self._keeper.wait()
      self._home = record['home']
      with _loopback(), _environment(**self._keeper.token):
        _read_token_again()
        self._init(address=record['address'])
    except Exception as error:  # noqa: BLE001: Ray raises many kinds
      raise errors.BackendError(
        f'a private Ray did not start on this machine: {_line(error)}. Free '
        f'memory and space under {tempfile.gettempdir()} (TMPDIR), or use the '
        'backend "local".'
      ) from error

  def _init(self, **options) -> None:
    # The hooks are those that package the working folder or uv's environment.
    self._joined = True
    self._ray.init(
      log_to_driver=False, logging_level=logging.ERROR, _skip_env_hook=True,
      **options,
    )
    with contextlib.suppress(ImportError, AttributeError):
      from ray._private import worker

      # For each lost node Ray prints fifty lines of a log to standard output.
      worker.print_to_stdstream, self._print = (
        _print_nothing, worker.print_to_stdstream
      )

  def _base(self) -> str:
    """Where slots keep their folders: '' is a node's temporary folder."""
    return self._work_dir or '' if self._home else ''

  def _check_cpus(self) -> None:
    """Ray would wait for ever for CPUs that there are not."""
    end = time.monotonic() + CPUS_S
    while True:
      total = self._ray.cluster_resources().get('CPU', 0)
      free = self._ray.available_resources().get('CPU', 0)
      if free >= self.slots:
        return
      if time.monotonic() > end or 0 < total < self.slots:
        break
      time.sleep(0.1)
    where = self._where if self.address else 'this Ray'
    raise errors.BackendError(
      f'slots={self.slots}: {where} has {total:g} CPUs, {free:g} of them '
      f'free, and every slot takes one. Use fewer slots, add nodes, or end '
      f'what holds them.'
    )

  def _spawn(self, number: int, stop: Callable[[], bool] = lambda: False,
             ) -> list[_Actor]:
    """Starts `number` actors and their launchers; BackendError, _Stopped."""
    remote = self._ray.remote(_actor_class()).options(
      num_cpus=1, max_restarts=0, max_task_retries=0, max_concurrency=4,
      scheduling_strategy='SPREAD',
    )
    root = str(pathlib.Path(__file__).resolve().parents[2])
    handles = [remote.remote() for _ in range(number)]
    try:
      loaded = self._gather(
        [h.load.remote(root) for h in handles], LOAD_S, stop,
        'no process of Ray started: its nodes are gone, or their CPUs taken',
      )
      actors = [self._check(h, r) for h, r in zip(handles, loaded)]
      self._number(actors)
      opened = self._gather(
        [a.handle.call.remote('open', self._open_options(a)) for a in actors],
        OPEN_S, stop, 'the launcher of a node did not start',
      )
      for actor, record in zip(actors, opened):
        if 'error' in record:
          raise errors.BackendError(f'node {actor.place}: {record["error"]}')
        actor.tier, actor.notes = record['tier'], tuple(record['notes'])
      return actors
    except BaseException:
      for handle in handles:
        self._kill(handle)
      raise

  def _gather(self, refs: list, seconds: float, stop: Callable[[], bool],
              problem: str) -> list[dict[str, Any]]:
    end, left = time.monotonic() + seconds, refs
    while left:
      if stop() or self._closing:
        raise _Stopped
      if time.monotonic() > end:
        raise errors.BackendError(
          f'{problem} ({len(left)} of {len(refs)} after {seconds:g} s).'
        )
      _, left = self._ray.wait(left, num_returns=len(left), timeout=0.2)
    try:
      return [_unpack(self._ray.get(ref)) for ref in refs]
    except Exception as error:  # noqa: BLE001: Ray raises many kinds
      raise errors.BackendError(f'{problem}: {_line(error)}') from error

  def _check(self, handle: Any, record: dict[str, Any]) -> _Actor:
    ours = fingerprint()
    place = f'{record["host"]} ({record["ip"]})'
    if 'error' in record:
      raise errors.BackendError(
        f'node {place} cannot import jaxagent ({record["error"]}): install '
        'the same version there, for the interpreter that runs Ray.'
      )
    if record['fingerprint'] != ours:
      raise errors.BackendError(
        f'node {place} has another jaxagent ({record["fingerprint"]}, here '
        f'{ours}): install the same version on every node.'
      )
    return _Actor(
      handle, record['node'], record['ip'], record['host'], record['pid']
    )

  def _number(self, actors: Sequence[_Actor]) -> None:
    """Gives slots of one node different numbers: user ids, CPUs."""
    with self._lock:
      taken = {(a.node, a.index) for a in self._actors if a is not None}
    for actor in actors:
      while (actor.node, actor.index) in taken:
        actor.index += 1
      taken.add((actor.node, actor.index))

  def _open_options(self, actor: _Actor) -> str:
    return json.dumps({
      'base': self._base(), 'slots': self.slots, 'index': actor.index,
      'nice': os.getpriority(os.PRIO_PROCESS, 0), 'node': actor.place,
      'local': self._options,
    })

  # Running.

  def run(self, job: Job, slot: int, timeout_s: float,
          gpu_ids: Sequence[str] = (),
          cancelled: Callable[[], bool] = lambda: False) -> Execution:
    """Runs one job in its slot's actor and waits for its end.

    What Ray loses is `infrastructure`; the slot's next run starts anew.
    """
    with self._lock:
      self._token += 1
      run = self._running[job.job_id] = _Run(self._token, job.job_id)
    try:
      if cancelled():
        return outcome.killed(job, self.tier)
      actor = self._actor(slot, lambda: run.cancelled)
      return self._run(run, actor, job, slot, timeout_s, gpu_ids)
    except _Stopped:
      return outcome.killed(job, self.tier)
    except errors.BackendError as error:
      return outcome.infrastructure(job, self.tier, str(error))
    finally:
      with self._lock:
        if self._running.get(job.job_id) is run:
          del self._running[job.job_id]

  def _run(self, run: _Run, actor: _Actor, job: Job, slot: int,
           timeout_s: float, gpu_ids: Sequence[str]) -> Execution:
    try:
      data = job_to_bytes(job)
      with self._lock:
        if run.cancelled or self._closing:
          raise _Stopped
        run.actor = actor
        ref = actor.handle.call.remote(
          'run', run.token, data, timeout_s, list(gpu_ids)
        )
      self._wait(run, ref, timeout_s + GUARD_S)
      return execution_from_bytes(self._ray.get(ref))
    except _Stopped:
      raise
    except Exception as error:  # noqa: BLE001: Ray raises many kinds
      self._lose(slot, actor)
      if run.cancelled or self._closing:
        raise _Stopped from error
      what = f'{type(error).__name__}: {str(error).partition(chr(10))[0]}'
      return outcome.infrastructure(
        job, self.tier, f'node {actor.place}: {what[:300]}'
      )

  def _wait(self, run: _Run, ref: Any, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not self._ray.wait([ref], timeout=1.0)[0]:
      if time.monotonic() > end:
        raise TimeoutError(f'no answer within {seconds:g} s')
      if run.cancelled:
        self._send_cancel(run)  # the first may have met a broken connection

  def _actor(self, slot: int, stop: Callable[[], bool]) -> _Actor:
    """The slot's actor, a new one where it was lost; BackendError."""
    with self._slot_locks[slot]:
      actor = self._actors[slot]
      if actor is not None:
        return actor
      (actor,) = self._spawn(1, stop)
      if errors.tier_number(actor.tier) < errors.tier_number(self.tier):
        self._kill(actor.handle)
        raise errors.BackendError(
          f'node {actor.place} offers {actor.tier}, not {self.tier} as the '
          f'slots that were lost ({"; ".join(actor.notes)}).'
        )
      with self._lock:
        self._actors[slot] = actor
        self.restarts += 1
      return actor

  def _lose(self, slot: int, actor: _Actor) -> None:
    with self._lock:
      if self._actors[slot] is actor:
        self._actors[slot] = None
    self._kill(actor.handle)

  def _kill(self, handle: Any) -> None:
    with contextlib.suppress(Exception):
      self._ray.kill(handle, no_restart=True)

  def cancel(self, job_id: str) -> bool:
    """Kills a running job. True where it was running."""
    with self._lock:
      run = self._running.get(job_id)
      if run is None:
        return False
      run.cancelled = True
    self._send_cancel(run)
    return True

  def _send_cancel(self, run: _Run) -> None:
    # Does not wait: the actor remembers it, whichever call comes first.
    if run.actor is not None:
      with contextlib.suppress(Exception):
        run.actor.handle.call.remote('cancel', run.token, run.job_id)

  def stats(self) -> dict[str, Any]:
    with self._lock:
      actors = list(self._actors)
    notes = [note for a in actors if a is not None for note in a.notes]
    return {
      'launcher_pid': None, 'restarts': self.restarts,
      'notes': list(dict.fromkeys(notes)),
      'actors': [
        None if a is None else {
          'node': a.node, 'host': a.host, 'ip': a.ip, 'pid': a.pid,
          'tier': a.tier,
        } for a in actors
      ],
    }

  # Closing.

  def close(self) -> None:
    """Ends every job, actor and, where this backend started it, Ray."""
    with self._lock:
      if self._closing:
        return
      self._closing = True
      actors = [a for a in self._actors if a is not None]
      self._actors = [None] * self.slots
    atexit.unregister(self.close)
    if self._ray is not None and self._ray.is_initialized():
      self._close_actors(actors)
      if self._joined:
        self._leave()
    if self._keeper is not None:
      self._keeper.close()
      _end(self._theirs)
      sweep(self._base())

  def _close_actors(self, actors: Sequence[_Actor]) -> None:
    with contextlib.suppress(Exception):
      refs = [a.handle.call.remote('close') for a in actors]
      if refs:
        self._ray.wait(refs, num_returns=len(refs), timeout=CLOSE_S)
    for actor in actors:
      self._kill(actor.handle)

  def _leave(self) -> None:
    """Shuts a private Ray down with all its processes, or leaves a cluster."""
    if self._home:
      self._theirs.update(_processes_of(self._home))
    with _kept_signals(), contextlib.suppress(Exception):
      self._ray.shutdown()
    if self._print is not None:
      self._ray._private.worker.print_to_stdstream = self._print
    if self._home:
      _read_token_again()


def _end(processes: dict[int, str]) -> None:
  """Waits up to 3 s for {pid: start time}, then kills what is left."""
  end = time.monotonic() + 3
  while processes and time.monotonic() < end:
    processes = {p: s for p, s in processes.items() if _started(p) == s}
    time.sleep(0.02)
  for pid in processes:  # agents outlive the raylet
    with contextlib.suppress(OSError):
      os.kill(pid, signal.SIGKILL)


def _print_nothing(*_, **__) -> None:
  pass


def _line(error: BaseException) -> str:
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


def _started(pid: int) -> str:
  fields = _stat(pid)
  return fields[19] if fields else ''


def _processes_of(folder: str) -> dict[int, str]:
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
      found[pid] = _started(pid)
      todo += children.get(pid, [])
  return {pid: start for pid, start in found.items() if start}
