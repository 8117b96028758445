"""vLLM's side of a weight update: a file that both processes see."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import torch
from vllm.distributed.weight_transfer.base import (
  WeightTransferEngine,
  WeightTransferInitInfo,
  WeightTransferUpdateInfo,
)
from vllm.model_executor.model_loader.reload import layerwise

from jaxagent_vllm import manifest

PROTOCOL = 1  # of init_info and update_info; the trainer sends its own


@dataclasses.dataclass
class InitInfo(WeightTransferInitInfo):
  """protocol: of the trainer."""

  protocol: int


@dataclasses.dataclass
class UpdateInfo(WeightTransferUpdateInfo):
  """All weights of one version.

  path: file, as this machine names it.
  tensors: see `manifest.parse`.
  """

  path: str
  tensors: list[dict[str, Any]]


class FileWeightReceiver(WeightTransferEngine[InitInfo, UpdateInfo]):
  """Loads a version in one piece, after everything about it was checked."""

  init_info_cls = InitInfo
  update_info_cls = UpdateInfo
  supports_draft_weight_update = False

  def init_transfer_engine(self, init_info: InitInfo) -> None:
    if init_info.protocol != PROTOCOL:
      raise ValueError(
        f'the trainer speaks protocol {init_info.protocol} and this plug-in '
        f'{PROTOCOL}: install the jaxagent_vllm that came with the trainer.'
      )

  def start_weight_update(self) -> None:
    """Nothing: the model is not touched before the weights are checked."""

  def receive_weights(self, update_info: UpdateInfo) -> None:
    try:
      self._receive(update_info)
    except Exception as error:
      # The server's answer does not say why: the trainer finds it here.
      with contextlib.suppress(OSError), open(f'{update_info.path}.refused', 'w') as f:
        f.write(str(error))
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
    data = manifest.open_file(update_info.path, tensors)
    with torch.device(self.device):
      layerwise.initialize_layerwise_reload(model)
      try:
        model.load_weights((t.name, _tensor(data, t)) for t in tensors)
      finally:
        layerwise.finalize_layerwise_reload(model, config)

  def finish_weight_update(self) -> None:
    """Nothing is left to do."""

  def shutdown(self) -> None:
    """Nothing is held."""


def _shapes(model: torch.nn.Module) -> dict[str, tuple[int, ...]]:
  """Parameters as the model was made, before any kernel packed them."""
  shapes = {}
  for prefix, layer in model.named_modules():
    made, _ = layerwise.get_layerwise_info(layer).restore_metadata
    # A bias is never packed, and not recorded.
    bias = layer._parameters.get('bias')
    made = made if bias is None else {**made, 'bias': bias}
    for name, parameter in made.items():
      shapes[f'{prefix}.{name}'.lstrip('.')] = tuple(parameter.shape)
  return shapes


def _tensor(data, t: manifest.Tensor) -> torch.Tensor:
  """A view of the file: the loader copies it into the model."""
  part = data[t.offset : t.offset + t.nbytes]
  flat = torch.frombuffer(part, dtype=torch.uint8)
  return flat.view(getattr(torch, t.dtype)).view(t.shape)
