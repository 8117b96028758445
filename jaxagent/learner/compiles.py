"""Number of programs that this process has compiled, in all of its threads.

Learner, optimizer, advantages and rollout engine share one process and one
device: what any of them compiles in the middle of a run costs the same
seconds. An operation outside of jit is a program, too, and so is one that is read from
the cache of an earlier start (`jaxagent/devices/compile_cache.py`): which programs a run
needs does not depend on that, only their seconds do.
"""

from __future__ import annotations

import logging
import threading

import jax

log = logging.getLogger(__name__)

# Once a program that no cache in memory held; private to jax, so tested.
_EVENT = '/jax/core/compile/backend_compile_duration'
_HIT = '/jax/compilation_cache/cache_hits'

_lock = threading.Lock()
_compiled = _read = 0


def count() -> int:
  """Programs compiled since this module was imported."""
  return _compiled


def read() -> int:
  """Returns how many of `count` were read from the cache of an earlier start."""
  return _read


class Recompiles:
  """Counts compilations after the first `warm_updates` updates."""

  def __init__(self, warm_updates: int):
    self._warm_updates = warm_updates
    self._measured = self._at_warm = self._more = 0

  def measure(self) -> dict[str, float]:
    """Metrics at the end of an update; warns of what is new."""
    now = count()
    self._measured += 1
    if self._measured <= self._warm_updates:
      self._at_warm = now
    more = now - self._at_warm
    if more > self._more:
      log.warning('%d programs compiled after warm-up.', more)
    self._more = more
    return {
      'learner/recompiles': float(more),
      'learner/compiles': float(now),
      'learner/compiles_cached': float(read()),
    }


def _listen(event: str, duration_secs: float, **unused: str | int) -> None:
  global _compiled
  if event == _EVENT:
    with _lock:
      _compiled += 1


def _listen_hits(event: str, **unused: str | int) -> None:
  global _read
  if event == _HIT:
    with _lock:
      _read += 1


jax.monitoring.register_event_duration_secs_listener(_listen)
jax.monitoring.register_event_listener(_listen_hits)
