"""The first process of a job's container: the supervisor, without a launcher.

The Docker backend sends this and the modules it needs as the text of a `python
-c` command, so an image needs Python 3.11 and no package. It talks frames
over its standard streams. The job has the same user id; what keeps the job off
this process is that the first process of a pid namespace takes no signal that
it has no handler for, and that it cannot be traced or opened (not dumpable).
Standard library only.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from typing import Any

from jaxagent.sandbox import (
  _afresh,
  _cgroup,
  _linux,
  _room,
  _runner,
  _supervisor,
  _wire,
  _zygote,
)


class Streams:
  """The part of a socket that `_wire` needs, over two descriptors."""

  def __init__(self, source: int, target: int):
    self.source, self.target = source, target

  def recv(self, size: int) -> bytes:
    return os.read(self.source, size)

  def sendall(self, data: bytes) -> None:
    left = memoryview(data)
    while left:
      left = left[os.write(self.target, left) :]


def _config(runner: str, cpu: dict[str, str]) -> dict:
  path = f'{_room.BOX}/.runner.py'
  with open(path, 'w') as f:
    f.write(runner)
  keep = {k: os.environ[k] for k in ('LD_LIBRARY_PATH',) if k in os.environ}
  return {
    'python': sys.executable,
    'runner': path,
    'container': True,
    'namespaces': True,
    'user_namespaces': False,
    'real_root': False,
    # The container's own group counts memory, processes and CPU time.
    'cgroups': True,
    'cpu_quota': True,
    'cgroup_fds': (),
    'landlock': _linux.landlock_abi() > 0,
    'seccomp': bool(_linux.NR),
    'gpu_devices': [],
    'base_data': 0,
    'base_space': 0,
    'readable': [],
    'slots': 1,
    'environment': {'USER': 'sandbox', **keep, **cpu},
  }


def main(runner: str, cpu: dict[str, str]) -> None:
  """Runs one job; the frames are the supervisor's result and a trailer.

  runner: the text of `_runner.py`. cpu: variables of the jobs' CPU level. In a
  job that was forked of the imports, runs the job's script.
  """
  born = None
  try:
    _main(runner, cpu)
  except _zygote.Born as job:
    born = job.args
  if born:
    _afresh.prepare()
    _afresh.begin(*born[:2])
    _runner.finish(_runner.run(*born[2:]))


def _main(runner: str, cpu: dict[str, str]) -> None:
  began = time.monotonic()
  _linux.prctl(_linux.PR_SET_DUMPABLE, 0)
  signal.signal(signal.SIGINT, signal.SIG_DFL)
  streams = Streams(0, 1)
  trailer: dict[str, Any] = {'dead': 0}
  try:
    request = {'uid': None, 'slot': 0, 'cloned_at': began}
    _supervisor.supervise(streams, request, _config(runner, cpu))
    trailer.update(_cgroup.own_use())
  except _zygote.Born:
    raise
  except BaseException:  # noqa: BLE001: the pool sees it and retries
    trailer['launch_error'] = traceback.format_exc()[-2000:]
  _wire.send(streams, trailer)
