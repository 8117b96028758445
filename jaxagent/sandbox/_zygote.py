"""Modules that a zygote imports once, so that jobs forked from it need not.

A supervisor asks it for a job here; `_births` is the process that answers.

Standard library only: it runs in the launcher, its supervisors and containers.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import socket
import warnings
from collections.abc import Sequence
from typing import Any

from jaxagent.sandbox import _linux, _wire

MODULES = (
  'numpy numpy.random numpy.linalg numpy.fft pandas scipy scipy.sparse '
  'scipy.stats scipy.optimize scipy.special scipy.linalg sklearn '
  'sklearn.pipeline sklearn.preprocessing sklearn.linear_model '
  'sklearn.ensemble sklearn.tree sklearn.neighbors sklearn.naive_bayes '
  'sklearn.svm sklearn.decomposition sklearn.feature_extraction.text '
  'sklearn.feature_selection sklearn.impute sklearn.compose sklearn.metrics '
  'sklearn.model_selection sklearn.neural_network sklearn.cluster '
  'sklearn.kernel_ridge sklearn.discriminant_analysis sklearn.dummy '
  'sklearn.multiclass sklearn.calibration sklearn.datasets '
  'sklearn.gaussian_process sklearn.random_projection '
  'csv json math re random collections itertools functools statistics '
  'datetime time pathlib io string warnings'
).split()

# Variables that modules have set when they were imported, as KMP_INIT_AT_FORK.
SET: dict[str, str] = {}

# How interpreters are started, a job's and the one it is forked from: as -I but
# for -E, under which PYTHONHASHSEED is not read either. No folder of the user's,
# nor the working one, is on the path; variables are clean, for they are made
# anew. Unbuffered: what a job printed before it was killed is kept, in order.
FLAGS = ('-s', '-P', '-B', '-u')
# What such an interpreter reads when it starts. A set's order is part of what a
# script does, so it is the same each time.
INTERPRETER = {'LANG': 'C.UTF-8', 'PYTHONHASHSEED': '0'}

# Without threads of numerical libraries, nor the one that pyarrow's allocator
# starts when pandas imports it (apache/arrow#17285).
ENVIRONMENT = {
  **{
    f'{name}_NUM_THREADS': '1' for name in ('OMP', 'OPENBLAS', 'MKL', 'NUMEXPR')
  },
  'JE_ARROW_MALLOC_CONF': 'background_thread:false',
}


class Born(BaseException):
  """Unwinds a job's first process to the frame that its script runs on, so
  that nothing of the zygote's is above it.

  Arguments: command line and environment of a job that starts anew, script,
  its arguments.
  """


class ThreadsLeft(Exception):
  """An import has left threads running: a fork would lose them with whatever
  they hold. Its text names the module and the threads."""


# The namespaces that a child joins by itself; `pid` its parent has joined.
JOINED = {
  'mnt': _linux.NEWNS,
  'net': _linux.NEWNET,
  'ipc': _linux.NEWIPC,
  'uts': _linux.NEWUTS,
}
# Descriptors of a request, in order; the job's cgroups follow.
PASSED = ('out', 'err', 'sync', 'proc', 'pid', *JOINED)
ANSWER_S = 10.0
MADV_COLLAPSE, HUGE = 25, 2 << 20


def warm_up() -> list[str]:
  """Imports the stack; returns the modules that are not there.

  Raises ThreadsLeft.
  """
  missing = []
  # Not `catch_warnings`, which would take back the filters that modules set.
  warnings.simplefilter('ignore')
  ours, before = warnings.filters[0], dict(os.environ)
  for name in MODULES:
    try:
      importlib.import_module(name)
    except ImportError:
      missing.append(name)
    threads = _threads()
    if threads:
      raise ThreadsLeft(f'{name} leaves threads running ({", ".join(threads)})')
  # The list itself is what Python's own warnings are checked against; typeshed
  # has it read-only and leaves the second out.
  kept = [f for f in warnings.filters if f is not ours]
  warnings.filters[:] = kept  # type: ignore[index]
  warnings._filters_mutated()  # type: ignore[attr-defined]
  SET.update((k, v) for k, v in os.environ.items() if before.get(k) != v)
  gc.collect()
  gc.freeze()
  return missing


def _threads() -> list[str]:
  """Names of this process's threads beside the first."""
  names = []
  for thread in os.listdir('/proc/self/task'):
    if int(thread) != os.getpid():
      try:
        with open(f'/proc/self/task/{thread}/comm') as f:
          names.append(f.read().strip())
      except OSError:
        pass  # it has ended
  return sorted(names)


def collapse() -> None:
  """Gathers what the modules have allocated in huge pages, where the kernel
  can (Linux 6.1): a fork then copies one entry for 512 pages."""
  with open('/proc/self/maps') as f:
    lines = [line.split() for line in f]
  for bounds, rights, _, _, inode, *name in lines:
    if inode != '0' or 'w' not in rights or (name and name != ['[heap]']):
      continue
    low, high = (int(n, 16) for n in bounds.split('-'))
    low, high = -(-low // HUGE) * HUGE, high // HUGE * HUGE
    if low < high:
      _linux.LIBC.madvise(
        ctypes.c_void_p(low), ctypes.c_size_t(high - low), MADV_COLLAPSE
      )


def held() -> dict[str, int]:
  """Gives what a job begins with, in bytes: `base_data`, as RLIMIT_DATA counts
  this process's, and `base_space`, as RLIMIT_AS does."""
  found = {'base_data': 0, 'base_space': 0}
  with open('/proc/self/status') as f:
    for line in f:
      name, _, rest = line.partition(':')
      key = {'VmData': 'base_data', 'VmSize': 'base_space'}.get(name)
      if key:
        found[key] = int(rest.split()[0]) * 1024
  return found


def born(
  zygote: int,
  message: dict[str, Any],
  fds: dict[str, int],
  cgroup_fds: Sequence[int],
) -> socket.socket:
  """Asks for a job in the room of this process, its supervisor.

  zygote: the socket to ask on. message: `request` and `header` of the job.
  fds: 'out', 'err', 'sync' and 'proc' of it. Returns a socket that can be
  read once the job's first process is dead (`ended`). Raises OSError.
  """
  ours, theirs = socket.socketpair()
  ours.settimeout(ANSWER_S)
  own = {
    name: os.open(f'/proc/self/ns/{name}', os.O_RDONLY | os.O_CLOEXEC)
    for name in ('pid', *JOINED)
  }
  passed = [{**fds, **own}[name] for name in PASSED]
  with theirs, socket.socket(fileno=os.dup(zygote)) as asked:
    socket.send_fds(asked, [b'x'], [theirs.fileno(), *passed, *cgroup_fds])
  for fd in own.values():
    os.close(fd)
  _wire.send(ours, message)
  return ours


def ended(stream: socket.socket) -> dict[str, Any]:
  """{status, cpu_s, resident (bytes)} of a job that `born` asked for.

  Raises OSError or EOFError where the zygote could not fork, or is dead.
  """
  record, _ = _wire.receive(stream)
  if 'error' in record:
    raise OSError(record['error'])
  return record
