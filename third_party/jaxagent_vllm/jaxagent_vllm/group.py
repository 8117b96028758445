"""Weights over NCCL, from a trainer on other GPUs (rank 0 of the group).

Written against vLLM 0.32; not run yet: it needs GPUs of both sides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from jaxagent_vllm import manifest


class Group:
  """This worker's place among the trainer and the workers of its server.

  Returns when all of them have come.

  Args:
    unique_id: of NCCL, in base64, from the trainer.
    size: the trainer and all workers of this server.
    version: of the trainer's NCCL, as `ncclGetVersion` gives it.
  """

  def __init__(
    self, unique_id: str, size: int, version: int, parallel_config: Any
  ):
    from vllm.distributed.device_communicators import pynccl_wrapper
    from vllm.distributed.weight_transfer import nccl_common

    own = int(pynccl_wrapper.NCCLLibrary().ncclGetRawVersion())
    if own != version:  # they would hang, or fail without a word
      raise ValueError(
        f'the trainer has NCCL {version} and this server {own}: install the '
        'same nvidia-nccl in both environments.'
      )
    info = nccl_common.NCCLWeightTransferInitInfo(
      rank_offset=1, world_size=size, nccl_unique_id_b64=unique_id
    )
    self.name = unique_id
    self._comm = nccl_common.worker_init_process_group(info, parallel_config)

  def receive(
    self, tensors: Sequence[manifest.Tensor]
  ) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, weight) in the manifest's order, each with its checksum.

    Raises ManifestError at a tensor that has another.
    """
    for t in tensors:
      # As bytes, on both sides: whatever the precision, they are sent as they are.
      data = torch.empty(t.nbytes, dtype=torch.uint8, device=self._comm.device)
      self._comm.broadcast(data, src=0)
      weight = data.view(getattr(torch, t.dtype)).view(t.shape)
      if (found := checksum(weight)) != t.checksum:
        raise manifest.ManifestError(
          f'{t.name}: checksum {found}, not {t.checksum}, over NCCL.'
        )
      yield t.name, weight

  def close(self) -> None:
    self._comm.destroy()


def checksum(weight: torch.Tensor) -> int:
  """The sum of its elements' bits as signed integers, modulo 2^32.

  As `jaxagent.rollout.engines.nccl_sync.checksum`, on the device that has the weight.
  """
  word = {2: torch.int16, 4: torch.int32}[weight.element_size()]
  return int(weight.view(word).sum(dtype=torch.int64)) % 2**32
