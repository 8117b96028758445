"""Registers the weight-transfer backend `jaxagent` with vLLM.

Select it with `--weight-transfer-config '{"backend": "jaxagent"}'`.
"""

import time

BACKEND = 'jaxagent'
_NAP_S = 2e-5


def register() -> None:
  """Called by vLLM in each of its processes, perhaps more than once."""
  from vllm.distributed.weight_transfer.factory import (
    WeightTransferEngineFactory as Factory,
  )

  if BACKEND not in Factory._registry:
    Factory.register_engine(
      BACKEND, 'jaxagent_vllm.receiver', 'WeightReceiver'
    )
  _nap_instead_of_yielding()


def _nap_instead_of_yielding() -> None:
  """On the CPU, vLLM's processes wait for each other by yielding in a loop.

  Newer Linux schedulers take the rest of its share from a process that yields:
  beside any busy process (the trainer) a decode of 0.5 s was seen to take 2 s
  (Linux 6.18, two cores). A short sleep keeps the share.
  """
  from vllm.distributed.device_communicators import shm_broadcast
  from vllm.platforms import current_platform

  if current_platform.is_cpu() and hasattr(shm_broadcast, 'sched_yield'):
    shm_broadcast.sched_yield = lambda: time.sleep(_NAP_S)
