"""How many programs this process has compiled, whoever asked for them.

Learner, optimizer, advantages and rollout engine share one process and one
device: what any of them compiles in the middle of a run costs the same
seconds. An operation outside of jit is a program, too.
"""

from __future__ import annotations

import threading

import jax

# Once a program that no cache in memory held; private to jax, so tested.
_EVENT = '/jax/core/compile/backend_compile_duration'

_lock = threading.Lock()
_compiled = 0


def count() -> int:
  """Programs compiled since this module was imported."""
  return _compiled


def _listen(event: str, duration_s: float, **unused) -> None:
  global _compiled
  if event == _EVENT:
    with _lock:
      _compiled += 1


jax.monitoring.register_event_duration_secs_listener(_listen)
