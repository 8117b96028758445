"""The trainer's end of a NCCL group with the workers of one vLLM server.

Through CuPy, which takes JAX's buffers by their address. Not run yet: it needs
GPUs of its own for each side.
"""

from __future__ import annotations

import base64
import importlib.util
from collections.abc import Iterable

import jax

from jaxagent.rollout.engine import EngineError

_IN_FLIGHT = 1 << 30  # bytes that are sent before any is given back


def complaint() -> str:
  """Returns why this machine cannot send over NCCL; '' if it can."""
  if importlib.util.find_spec('cupy') is None:
    return (
      'CuPy is not installed: `pip install cupy-cuda12x` (or cupy-cuda13x, as '
      'JAX has it)'
    )
  if jax.default_backend() != 'gpu':
    return f'the trainer runs on {jax.default_backend()!r}, not on a GPU'
  return ''


def version() -> int:
  """Returns the version of the loaded NCCL; the servers' must be the same."""
  from cupy.cuda import nccl

  return nccl.get_version()


def unique_id() -> str:
  """Names a new group; base64 of NCCL's 128 bytes, as vLLM takes it."""
  from cupy.cuda import nccl

  return base64.b64encode(bytes(n % 256 for n in nccl.get_unique_id())).decode()


class Group:
  """Rank 0 of it. Returns when every worker has come.

  Args:
    name: of `unique_id`.
    size: this process and the server's workers.
    device: whose memory is sent; a GPU that no worker has.

  Raises EngineError where NCCL does.
  """

  def __init__(self, name: str, size: int, device: jax.Device):
    import cupy
    from cupy.cuda import nccl

    self.name = name
    self._device = cupy.cuda.Device(device.local_hardware_id)
    # CuPy takes C's signed characters.
    raw = tuple(b - 256 * (b > 127) for b in base64.b64decode(name))
    try:
      with self._device:
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._comm = nccl.NcclCommunicator(size, raw, 0)
        # vLLM's workers begin with a sum of one number.
        one = cupy.zeros(1, cupy.float32)
        cupy.cuda.runtime.deviceSynchronize()
        self._comm.allReduce(
          one.data.ptr, one.data.ptr, 1, nccl.NCCL_FLOAT, nccl.NCCL_SUM,
          self._stream.ptr,
        )  # fmt: skip
        self._stream.synchronize()
    except nccl.NcclError as error:
      raise EngineError(f'NCCL: {error}') from error

  def send(self, tensors: Iterable[jax.Array]) -> None:
    """Each in turn, as bytes, to every worker; blocking.

    Raises EngineError where NCCL does, after an `abort` too.
    """
    from cupy.cuda import nccl

    held: list[jax.Array] = []  # until they are sent
    try:
      with self._device:
        for tensor in tensors:
          pointer = jax.block_until_ready(tensor).unsafe_buffer_pointer()
          self._comm.broadcast(
            pointer,
            pointer,
            tensor.nbytes,
            nccl.NCCL_UINT8,
            0,
            self._stream.ptr,
          )
          held.append(tensor)
          if sum(t.nbytes for t in held) > _IN_FLIGHT:
            self._stream.synchronize()
            held.clear()
        self._stream.synchronize()
    except nccl.NcclError as error:
      raise EngineError(f'NCCL: {error}') from error

  def abort(self) -> None:
    """Ends the group, and what is being sent; from any thread."""
    with self._device:
      self._comm.abort()
