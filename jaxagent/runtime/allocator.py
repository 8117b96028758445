"""How the C library keeps memory that programs take and give back at each call.

XLA on a CPU asks it for the temporary arrays of every execution. By default glibc gives
blocks above some size back to the system at once, and takes them page by page when the
next execution asks: a fifth of a small learner's CPU seconds
(`docs/lab_log.md`, 2026-11-30; `findings/jax_cpu_page_faults.sh`).
"""

from __future__ import annotations

import ctypes
import os

# Of mallopt(3): blocks that are mapped one by one, freed memory at the end of the heap
# that is given back, and heaps, of which the threads' hold no block above 64 MB.
_MMAP_THRESHOLD, _TRIM_THRESHOLD, _ARENA_MAX = -3, -1, -8
_KEPT_BYTES = 1 << 30
_OWN = ('MALLOC_MMAP_THRESHOLD_', 'MALLOC_TRIM_THRESHOLD_', 'MALLOC_ARENA_MAX')


def keep_freed_memory() -> bool:
  """Lets this process keep blocks of up to 1 GB for itself; returns whether it does.

  Before threads begin. Nothing is changed where the environment says how (glibc's
  MALLOC_ variables or its GLIBC_TUNABLES of malloc), or the C library is another one.
  """
  tuned = 'glibc.malloc' in os.environ.get('GLIBC_TUNABLES', '')
  if tuned or any(name in os.environ for name in _OWN):
    return False
  try:
    mallopt = ctypes.CDLL(None).mallopt
  except (AttributeError, OSError, TypeError):  # TypeError: on Windows
    return False
  values = {
    _MMAP_THRESHOLD: _KEPT_BYTES,
    _TRIM_THRESHOLD: _KEPT_BYTES,
    _ARENA_MAX: 1,
  }
  return all([mallopt(name, value) == 1 for name, value in values.items()])
