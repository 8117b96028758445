"""Devices that the learner and an embedded engine share, thread beside thread.

XLA records CUDA graphs when a program runs first, or its buffers move. While one
thread records, a graph that another launches can be refused
(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: JAX 0.11.2, H200, whole run of 24 layers). So
only the engine's decoding loop, which needs one, has graphs (`main` sets XLA_FLAGS),
and programs of engine and learner run in turns: on one stream they would wait for
each other as well.

So do they on several devices of any kind: two programs with collectives, launched by
two threads, can reach the devices in different orders, and each then waits for ever
for a device that the other holds.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.extend

# Of products in bfloat16 without sparsity, by the makers' data sheets.
PEAK_FLOPS = {
  'a100': 312e12,
  'h100': 989e12,
  'h200': 989e12,
  'tpu-v5e': 197e12,
  'tpu-v5p': 459e12,
  'tpu-v6e': 918e12,
}
# How jax names the devices (`device_kind`), whole or up to a space or hyphen.
_KINDS = {
  'NVIDIA A100': 'a100',
  'NVIDIA H100 80GB HBM3': 'h100',
  'NVIDIA H200': 'h200',
  'TPU v5 lite': 'tpu-v5e',
  'TPU v5e': 'tpu-v5e',
  'TPU v5p': 'tpu-v5p',
  'TPU v5': 'tpu-v5p',
  'TPU v6 lite': 'tpu-v6e',
  'TPU v6e': 'tpu-v6e',
}


def peak_flops(device_kind: str) -> float | None:
  """FLOPs a second of a device as jax names it; None for one that is not known."""
  for name, key in _KINDS.items():
    rest = device_kind.removeprefix(name)
    if rest != device_kind and (not rest or rest[0] in ' -'):
      return PEAK_FLOPS[key]
  return None


@functools.cache
def is_cuda() -> bool:
  """Whether the default backend is NVIDIA's."""
  version = jax.extend.backend.get_backend().platform_version
  return version.startswith('cuda')


def takes_turns() -> bool:
  """Whether two threads' programs are kept apart here."""
  return is_cuda() or jax.local_device_count() > 1


class FairLock:
  """Lock that is granted in the order of requests; not reentrant."""

  def __init__(self):
    self._moved = threading.Condition()
    self._queue: collections.deque[object] = collections.deque()

  def __enter__(self) -> None:
    ticket = object()
    with self._moved:
      self._queue.append(ticket)
      try:
        self._moved.wait_for(lambda: self._queue[0] is ticket)
      except BaseException:  # also a signal's: the ticket must not block others
        self._queue.remove(ticket)
        self._moved.notify_all()
        raise

  def __exit__(self, *_: object) -> None:
    with self._moved:
      self._queue.popleft()
      self._moved.notify_all()


_TURNS = FairLock()


def turn() -> contextlib.AbstractContextManager:
  """Returns the lock to hold while a program runs on a GPU or several devices.

  Elsewhere it is an empty context."""
  return _TURNS if takes_turns() else contextlib.nullcontext()


def in_turns(program: Callable[..., Any]) -> Callable[..., Any]:
  """`program`; where there are turns it keeps its own until its results are there."""
  if not takes_turns():
    return program

  def run(*args: Any) -> Any:
    with turn():
      return jax.block_until_ready(program(*args))

  # To be compiled without being run.
  setattr(run, 'lower', getattr(program, 'lower', None))  # noqa: B010
  return run
