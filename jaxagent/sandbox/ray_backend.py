"""The `ray` backend: one actor per slot, each around a launcher of its node.

The driver sends a job as bytes and gets an execution as bytes (JSON, contents
in base64). Nothing else of a result is decoded. A lost actor or node ends the
run as `infrastructure`; the next run of that slot starts a new actor.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import importlib.metadata
import importlib.util
import json
import logging
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jaxagent.sandbox import (
  cpu_levels,
  errors,
  local,
  outcome,
  ray_bytes,
  ray_nodes,
  ray_private,
  ray_slot,
  scratch,
)
from jaxagent.types import Execution, Job

JOIN_S = 15.0  # an address that has not answered by then is refused
CPUS_S = 8.0  # how long slots wait for CPUs that others hold
LOAD_S = 60.0  # an actor's process, and jaxagent in it
PLACE_S = 30.0  # Ray may still place actors on a node that is gone
OPEN_S = 180.0  # a launcher with its zygote, and the probe
GUARD_S = 30.0  # past a job's limit without an answer the actor is given up
CLOSE_S = 15.0
NODES_S = 2.0  # between two looks at the nodes of a cluster

_log = logging.getLogger(__name__)


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


_TRIAL = """
import json, logging, os, sys
said = ''
try:
  import ray
  ray.init(address=sys.argv[1], log_to_driver=False, _skip_env_hook=True,
           logging_level=logging.CRITICAL)
except BaseException as error:
  said = f'{type(error).__name__}: {error}'
os.write(int(sys.argv[2]), json.dumps(said).encode())
"""


def _try_to_join(address: str) -> str:
  """'' where a process of its own can join, else why not, in a line.

  In the trainer's process an address that accepts and says nothing would
  hang, and Ray's core ends the process on some errors. What the core writes to
  standard error says why.
  """
  end = time.monotonic() + JOIN_S
  host, _, port = address.rpartition(':')
  if host and port.isdigit():
    try:
      socket.create_connection((host.strip('[]'), int(port)), 5).close()
    except (OSError, OverflowError) as error:
      return f'nothing answers there ({error})'
  with tempfile.TemporaryFile() as errors_of_core:
    problem = _trial(address, errors_of_core.fileno(), end)
    errors_of_core.seek(0)
    words = ray_nodes.last_words(errors_of_core.read().decode(errors='replace'))
  if problem and words and words not in problem:
    problem += f' (Ray: "{words}")'
  return problem


def _trial(address: str, stderr: int, end: float) -> str:
  read, write = os.pipe()
  process = subprocess.Popen(
    [sys.executable, '-c', _TRIAL, address, str(write)],
    pass_fds=[write],
    stdin=subprocess.DEVNULL,
    stdout=subprocess.DEVNULL,
    stderr=stderr,
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
    zygote, hidden, disable, gpu_devices, keep_kb, collect_mb, cpu_level: as
      for LocalBackend, on every node.
  """

  name = 'ray'

  def __init__(
    self,
    slots: int,
    *,
    address: str = '',
    zygote: bool = True,
    work_dir: pathlib.Path | None = None,
    hidden: Sequence[pathlib.Path | str] = (),
    disable: Sequence[str] = (),
    gpu_devices: Sequence[str] = (),
    keep_kb: int = 64,
    collect_mb: int = 64,
    cpu_level: str = cpu_levels.DEFAULT,
  ):
    unknown = set(disable) - set(local.DISABLE)
    if unknown:
      raise ValueError(
        f'disable={sorted(unknown)}: choose from {local.DISABLE}.'
      )
    self.slots, self.address, self.tier = slots, address, ''
    self.restarts = 0
    self._work_dir = None if work_dir is None else os.path.abspath(work_dir)
    self._options = {
      'zygote': zygote,
      'disable': list(disable),
      'keep_kb': keep_kb,
      'gpu_devices': list(gpu_devices),
      'collect_mb': collect_mb,
      'hidden': [os.path.abspath(h) for h in hidden],
      'cpu_level': cpu_levels.check(cpu_level),
    }
    self._ray: Any = None
    self._joined = False  # by this backend, so that it leaves at the end
    self._keeper: ray_private.Keeper | None = None  # of a private Ray
    self._home = ''  # its folder
    self._print: Any = None  # what Ray prints its own messages with
    self._theirs: dict[int, str] = {}  # its processes: {pid: start time}
    self._actors: list[_Actor | None] = [None] * slots
    self._slot_locks = [threading.Lock() for _ in range(slots)]
    self._lock = threading.Lock()
    self._running: dict[str, _Run] = {}
    self._lost_slots: dict[str, set[int]] = {}  # by node, since the last look
    self._lost_jobs: dict[str, set[str]] = {}
    self._token = 0
    self._closing = False
    self._closed = threading.Event()

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
      self._theirs = ray_private.processes_of(self._home)
    with self._lock:
      self._actors = list(actors)
    self.tier = min((a.tier for a in actors), key=errors.tier_number)
    if self.address:
      threading.Thread(target=self._watch_nodes, daemon=True).start()
    return self.tier

  def _watch_nodes(self) -> None:
    """Logs which nodes go and come until the backend closes."""
    nodes = ray_nodes.Nodes(self._held)
    while not self._closed.is_set():
      with contextlib.suppress(Exception):  # Ray raises many kinds
        for line in nodes.changes(self._ray.nodes()):
          _log.warning('%s', line)
      self._closed.wait(NODES_S)

  def _held(self, node: str) -> tuple[int, list[str]]:
    """Returns how many slots were on a node, and the jobs that ran there.

    Those that were lost since the last look count, too.
    """
    with self._lock:
      slots = self._lost_slots.pop(node, set())
      jobs = self._lost_jobs.pop(node, set())
      slots |= {
        i
        for i, a in enumerate(self._actors)
        if a is not None and a.node == node
      }
      jobs |= {
        job
        for job, run in self._running.items()
        if run.actor is not None and run.actor.node == node
      }
    return len(slots), sorted(jobs)

  def _import(self) -> None:
    # The import and the start of a private Ray take a second each.
    joined = 'ray' in sys.modules and sys.modules['ray'].is_initialized()
    found = importlib.util.find_spec('ray') is not None
    if found and not self.address and not joined:
      if self._work_dir is not None:
        os.makedirs(self._work_dir, exist_ok=True)
      self._keeper = ray_private.Keeper(self.slots, self._work_dir or '')
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
        problem = ray_private.one_line(error)
    remedy = ray_nodes.remedy(
      problem, sys.version.split()[0], importlib.metadata.version('ray')
    )
    raise errors.BackendError(f'{self._where}: {problem}. {remedy}')

  def _start_private(self) -> None:
    assert self._keeper is not None  # made by `start`
    try:
      record = self._keeper.wait()
      self._home = record['home']
      token = self._keeper.token
      with ray_private.loopback(), ray_private.environment(**token):
        ray_private.read_token_again()
        self._init(address=record['address'])
    except Exception as error:  # noqa: BLE001: Ray raises many kinds
      raise errors.BackendError(
        'a private Ray did not start on this machine: '
        f'{ray_private.one_line(error)}. Free '
        f'memory and space under {tempfile.gettempdir()} (TMPDIR), or use the '
        'backend "local".'
      ) from error

  def _init(self, **options) -> None:
    # The hooks are those that package the working folder or uv's environment.
    self._joined = True
    self._ray.init(
      log_to_driver=False,
      logging_level=logging.ERROR,
      _skip_env_hook=True,
      **options,
    )
    with contextlib.suppress(ImportError, AttributeError):
      from ray._private import worker

      # For each lost node Ray prints fifty lines of a log to standard output.
      worker.print_to_stdstream, self._print = (
        _print_nothing,
        worker.print_to_stdstream,
      )

  def _base(self) -> str:
    """Base of the slots' folders: '' is a node's temporary folder."""
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

  def _spawn(
    self,
    number: int,
    stop: Callable[[], bool] = lambda: False,
  ) -> list[_Actor]:
    """Starts `number` actors and their launchers; BackendError, _Stopped."""
    remote = self._ray.remote(ray_slot.actor_class()).options(
      num_cpus=1,
      max_restarts=0,
      max_task_retries=0,
      max_concurrency=4,
      scheduling_strategy='SPREAD',
    )
    root = str(pathlib.Path(__file__).resolve().parents[2])
    handles = [remote.remote() for _ in range(number)]
    try:
      loaded = self._gather(
        [h.load.remote(root) for h in handles],
        LOAD_S,
        stop,
        'no process of Ray started: its nodes are gone, or their CPUs taken',
      )
      actors = [self._check(h, r) for h, r in zip(handles, loaded)]
      self._number(actors)
      opened = self._gather(
        [a.handle.call.remote('open', self._open_options(a)) for a in actors],
        OPEN_S,
        stop,
        'the launcher of a node did not start',
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

  def _gather(
    self, refs: list, seconds: float, stop: Callable[[], bool], problem: str
  ) -> list[dict[str, Any]]:
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
      return [ray_bytes.unpack(self._ray.get(ref)) for ref in refs]
    except Exception as error:  # noqa: BLE001: Ray raises many kinds
      raise errors.BackendError(
        f'{problem}: {ray_private.one_line(error)}'
      ) from error

  def _check(self, handle: Any, record: dict[str, Any]) -> _Actor:
    ours = ray_slot.fingerprint()
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
    return json.dumps(
      {
        'base': self._base(),
        'slots': self.slots,
        'index': actor.index,
        'nice': os.getpriority(os.PRIO_PROCESS, 0),
        'node': actor.place,
        'local': self._options,
      }
    )

  # Running.

  def run(
    self,
    job: Job,
    slot: int,
    timeout_s: float,
    gpu_ids: Sequence[str] = (),
    cancelled: Callable[[], bool] = lambda: False,
  ) -> Execution:
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

  def _run(
    self,
    run: _Run,
    actor: _Actor,
    job: Job,
    slot: int,
    timeout_s: float,
    gpu_ids: Sequence[str],
  ) -> Execution:
    try:
      data = ray_bytes.job_to_bytes(job)
      with self._lock:
        if run.cancelled or self._closing:
          raise _Stopped
        run.actor = actor
        ref = actor.handle.call.remote(
          'run', run.token, data, timeout_s, list(gpu_ids)
        )
      self._wait(run, ref, timeout_s + GUARD_S)
      return ray_bytes.execution_from_bytes(self._ray.get(ref))
    except _Stopped:
      raise
    except Exception as error:  # noqa: BLE001: Ray raises many kinds
      self._lose(slot, actor, job.job_id)
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
      actor = self._replace(stop)
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

  def _replace(self, stop: Callable[[], bool]) -> _Actor:
    """A new actor. One that dies before it has opened costs its job nothing."""
    end = time.monotonic() + PLACE_S
    while True:
      try:
        (actor,) = self._spawn(1, stop)
        return actor
      except errors.BackendError as error:
        died = isinstance(error.__cause__, self._ray.exceptions.RayActorError)
        if not died or time.monotonic() > end:
          raise
        time.sleep(0.5)

  def _lose(self, slot: int, actor: _Actor, job_id: str) -> None:
    with self._lock:
      if self.address:
        self._lost_slots.setdefault(actor.node, set()).add(slot)
        self._lost_jobs.setdefault(actor.node, set()).add(job_id)
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
      'launcher_pid': None,
      'restarts': self.restarts,
      'notes': list(dict.fromkeys(notes)),
      'actors': [
        None
        if a is None
        else {
          'node': a.node,
          'host': a.host,
          'ip': a.ip,
          'pid': a.pid,
          'tier': a.tier,
        }
        for a in actors
      ],
    }

  # Closing.

  def close(self) -> None:
    """Ends every job, actor and, where this backend started it, Ray."""
    with self._lock:
      if self._closing:
        return
      self._closing = True
      self._closed.set()
      actors = [a for a in self._actors if a is not None]
      self._actors = [None] * self.slots
    atexit.unregister(self.close)
    if self._ray is not None and self._ray.is_initialized():
      self._close_actors(actors)
      if self._joined:
        self._leave()
    if self._keeper is not None:
      self._keeper.close()
      ray_private.end_all(self._theirs)
      scratch.sweep(self._base())

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
      self._theirs.update(ray_private.processes_of(self._home))
    with _kept_signals(), contextlib.suppress(Exception):
      self._ray.shutdown()
    if self._print is not None:
      self._ray._private.worker.print_to_stdstream = self._print
    if self._home:
      ray_private.read_token_again()


def _print_nothing(*_, **__) -> None:
  pass
