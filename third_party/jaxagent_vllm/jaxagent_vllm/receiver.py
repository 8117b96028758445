"""vLLM's side of a weight update: a file that both processes see, or NCCL."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import torch
from vllm.distributed.weight_transfer.base import (
  WeightTransferEngine,
  WeightTransferInitInfo,
  WeightTransferUpdateInfo,
)
from vllm.model_executor.model_loader.reload import layerwise

from jaxagent_vllm import manifest
from jaxagent_vllm.group import Group

PROTOCOL = 2  # of init_info and update_info; the trainer sends its own
# Of mallopt(3): blocks that are mapped one by one, and freed memory at the end of the
# heap that is given back.
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1
_KEPT_BYTES = 1 << 30


@dataclasses.dataclass
class InitInfo(WeightTransferInitInfo):
  """protocol: of the trainer. The others: of `Group`, where it sends over NCCL."""

  protocol: int
  unique_id: str = ''
  size: int = 0
  nccl_version: int = 0


@dataclasses.dataclass
class UpdateInfo(WeightTransferUpdateInfo):
  """All weights of one version.

  tensors: see `manifest.parse`.
  path: file, as this machine names it; '' where they come over NCCL.
  group: its name, then.
  """

  tensors: list[dict[str, Any]]
  path: str = ''
  group: str = ''


class WeightReceiver(WeightTransferEngine[InitInfo, UpdateInfo]):
  """Loads a version in one piece, after everything about it was checked.

  Of what comes over NCCL, the checksum of each tensor just before it is loaded:
  there is no room for all of them beside the model.
  """

  init_info_cls = InitInfo
  update_info_cls = UpdateInfo
  supports_draft_weight_update = False
  group: Group | None = None

  def init_transfer_engine(self, init_info: InitInfo) -> None:
    if init_info.protocol != PROTOCOL:
      raise ValueError(
        f'the trainer speaks protocol {init_info.protocol} and this plug-in '
        f'{PROTOCOL}: install the jaxagent_vllm that came with the trainer.'
      )
    if torch.device(self.device).type == 'cpu':
      _keep_freed_memory()
    if init_info.unique_id:
      self._leave()
      self.group = Group(
        init_info.unique_id,
        init_info.size,
        init_info.nccl_version,
        self.parallel_config,
      )

  def start_weight_update(self) -> None:
    """Nothing: the model is not touched before the weights are checked."""

  def receive_weights(self, update_info: UpdateInfo) -> None:
    try:
      self._receive(update_info)
    except Exception as error:
      self._leave()  # the trainer may be sending: it is to make a new group
      if update_info.path:
        _tell(error, update_info.path)
      raise

  def _receive(self, update_info: UpdateInfo) -> None:
    tensors = manifest.parse(update_info.tensors)
    model, config = self.model, self.model_config
    manifest.check_model(
      tensors,
      _shapes(model),
      getattr(model, 'packed_modules_mapping', {}),
      tied=bool(getattr(config.hf_config, 'tie_word_embeddings', False)),
      shards=self.parallel_config.tensor_parallel_size,
    )
    weights = self._weights(update_info, tensors)
    with torch.device(self.device):
      layerwise.initialize_layerwise_reload(model)
      try:
        model.load_weights(weights)
      finally:
        layerwise.finalize_layerwise_reload(model, config)

  def _weights(self, update_info: UpdateInfo, tensors: Sequence[manifest.Tensor]):
    """(name, weight) of each."""
    if update_info.path:
      data = manifest.open_file(update_info.path, tensors)
      return ((t.name, _tensor(data, t)) for t in tensors)
    if self.group is None or self.group.name != update_info.group:
      raise manifest.ManifestError('this server is not in that group.')
    return self.group.receive(tensors)

  def finish_weight_update(self) -> None:
    """Nothing is left to do."""

  def shutdown(self) -> None:
    self._leave()

  def _leave(self) -> None:
    if self.group is not None:
      self.group.close()
    self.group = None


@functools.cache
def _keep_freed_memory() -> None:
  """Lets this process keep blocks of up to 1 GB for itself, where its libc is glibc.

  A layer is loaded into fresh memory, packed into other memory, and both are freed: by
  default each goes back to the system and comes again page by page, two thirds of the
  seconds of a load. Not before the first load: what that one frees is a whole model.
  """
  with contextlib.suppress(AttributeError, OSError):
    mallopt = ctypes.CDLL(None).mallopt
    mallopt(_MMAP_THRESHOLD, _KEPT_BYTES)
    mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)


def _tell(error: Exception, path: str) -> None:
  """The server's answer does not say why: the trainer finds it here."""
  with contextlib.suppress(OSError), open(f'{path}.refused', 'w') as file:
    file.write(str(error))


def _shapes(model: torch.nn.Module) -> dict[str, tuple[int, ...]]:
  """Parameters as the model was made, before any kernel packed them.

  With `--enable-lora` a layer stands below a wrapper, as its `base_layer`, which is
  no part of the names of a checkpoint.
  """
  shapes = {}
  for name, layer in model.named_modules():
    prefix = '.'.join(p for p in name.split('.') if p != 'base_layer')
    made, _ = layerwise.get_layerwise_info(layer).restore_metadata
    # A bias is never packed, and not recorded.
    bias = layer._parameters.get('bias')
    made = made if bias is None else {**made, 'bias': bias}
    for own, parameter in made.items():
      shapes[f'{prefix}.{own}'.lstrip('.')] = tuple(parameter.shape)
  return shapes


def _tensor(data, t: manifest.Tensor) -> torch.Tensor:
  """A view of the file: the loader copies it into the model."""
  part = data[t.offset : t.offset + t.nbytes]
  flat = torch.frombuffer(part, dtype=torch.uint8)
  return flat.view(getattr(torch, t.dtype)).view(t.shape)
