"""The node's side of the ray backend: an actor around a launcher."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import threading
import time
import warnings
from collections.abc import Sequence
from typing import Any

from jaxagent.sandbox import local, outcome, probe, ray_bytes, scratch
from jaxagent.types import Execution, Job


def fingerprint() -> str:
  """16 hex digits of what both sides must have alike: sandbox and types."""
  here = pathlib.Path(__file__).resolve().parent
  digest = hashlib.sha256()
  for path in (*sorted(here.glob('*.py')), here.parent / 'types.py'):
    content = path.read_bytes()
    digest.update(f'{path.name} {len(content)} '.encode() + content)
  return digest.hexdigest()[:16]


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
  """An actor's launcher on its node. Methods return JSON bytes.

  Runs in the actor's threads; knows nothing of Ray.
  """

  def __init__(self):
    self._options: dict[str, Any] = {}
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
        target=self._watch, args=(os.getppid(),), daemon=True
      ).start()
      backend = self._backend = local.LocalBackend(
        options['slots'],
        work_dir=pathlib.Path(options['base']) if options['base'] else None,
        **options['local'],
      )
      with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        backend.start()
        tier = probe.confirm(backend, 'T0')
      notes += [str(w.message) for w in caught] + backend.hello['notes']
      return ray_bytes.pack({'tier': tier, 'notes': [n for n in notes if n]})
    except BaseException as error:  # noqa: BLE001: the driver raises it
      said = f'{type(error).__name__}: {error}'
      return ray_bytes.pack({'error': said[:2000]})

  def _watch(self, raylet: int) -> None:
    """Ends with the node's raylet, which workers can outlive."""
    while os.getppid() == raylet:
      time.sleep(0.25)
    self._orphaned = True
    try:
      self.close()
    finally:
      os._exit(1)

  def run(
    self, token: int, data: bytes, timeout_s: float, gpu_ids: Sequence[str]
  ) -> bytes:
    job = ray_bytes.job_from_bytes(data)
    try:
      _as_driver(self._options['nice'])  # a launcher may start again here
      result = self._run(token, job, timeout_s, gpu_ids)
    except BaseException as error:  # noqa: BLE001: the pool retries
      tier = self._backend.tier if self._backend is not None else ''
      result = outcome.infrastructure(job, tier, repr(error))
    finally:
      with self._lock:
        self._cancelled.discard(token)
    if self._orphaned:
      time.sleep(60)  # an answer would pass this process for a living one
    return ray_bytes.execution_to_bytes(result)

  def _run(
    self, token: int, job: Job, timeout_s: float, gpu_ids: Sequence[str]
  ) -> Execution:
    for name, path in job.mounts.items():
      if not os.path.isdir(path):
        return outcome.infrastructure(
          job,
          self._opened().tier,
          f'node {self._options["node"]} has no folder {str(path)!r} for the '
          f'mount {name!r}; keep it on a file system that all nodes share, '
          f'under the same path',
        )
    return self._opened().run(
      job,
      self._options['index'],
      timeout_s,
      gpu_ids,
      lambda: token in self._cancelled,
    )

  def cancel(self, token: int, job_id: str) -> bytes:
    """Kills the run of `token`, also where it comes after this call."""
    with self._lock:
      self._cancelled.add(token)
    return ray_bytes.pack({'running': self._opened().cancel(job_id)})

  def _opened(self) -> local.LocalBackend:
    if self._backend is None:
      raise RuntimeError('the slot has no launcher: `open` comes first.')
    return self._backend

  def close(self) -> bytes:
    if self._backend is not None:
      self._backend.close()
    scratch.sweep(self._options.get('base', ''))
    return ray_bytes.pack({})


def actor_class():
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
        'node': ray.get_runtime_context().get_node_id(),
        'pid': os.getpid(),
        'ip': ray.util.get_node_ip_address(),
        'host': socket.gethostname(),
      }
      name = 'jaxagent.sandbox.ray_slot'
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
