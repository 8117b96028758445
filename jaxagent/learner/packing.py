"""The samples of one update on their way through packed micro-batches."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from jaxagent import models, types
from jaxagent.data import batching, shared_prompts
from jaxagent.devices import sharding
from jaxagent.learner.config import LearnerConfig
from jaxagent.models import attention

_log = logging.getLogger(__name__)
# Weights of a model from which 'auto' is flat: in a smaller one compiling for more
# lengths costs a run more than padding does (docs/lab_log.md).
LEAST_FLAT = 600_000
_Packed = batching.Packing | shared_prompts.SharedPacking


class Packer:
  """Packs samples into micro-batches on a mesh; remembers the shapes used.

  shapes: (rows, row length) of packings so far, which are preferred: each
    new one compiles. They decide the packing, hence the order of float
    additions, so they are part of a checkpoint.
  """

  def __init__(
    self,
    model_config: models.ModelConfig,
    config: LearnerConfig,
    mesh: Mesh,
    pad_id: int,
  ):
    self.config, self.mesh, self.pad_id = config, mesh, pad_id
    self._said = False
    self.shapes: set[tuple[int, int]] = set()
    self._attention_tokens = _attention_tokens(model_config)
    check(model_config, config, mesh)
    self.is_flat = _is_flat(model_config, config, mesh)
    # A row with several samples is no longer than without shared prompts.
    self._longest_shared = min(config.micro_batch_tokens, config.row_tokens[-1])

  def put(self, arrays: dict[str, np.ndarray]) -> dict[str, jax.Array]:
    """Rows of a micro-batch [B, T], on the mesh."""
    return sharding.put(arrays, sharding.rows_sharding(self.mesh))

  def note_row(self, row_tokens: int) -> None:
    """Says once that a row is longer than what a device is to hold."""
    most = self.config.micro_batch_tokens
    if row_tokens > most and not self._said:
      self._said = True
      _log.warning(
        'rows of %d tokens are longer than micro_batch_tokens=%d: each device holds '
        'one row.', row_tokens, most,
      )  # fmt: skip

  def conversations(
    self, rows: Sequence[tuple[np.ndarray, np.ndarray]]
  ) -> list[types.Batch]:
    """(tokens [L], loss mask [L]) each -> batches of SFT."""
    if self.is_flat:
      return batching.pack_conversations(rows, plan=self._flat)
    parts = sharding.rows_multiple(self.mesh)
    return batching.pack_conversations(
      rows,
      row_tokens_buckets=self.config.row_tokens[-1:],
      max_tokens=self.config.micro_batch_tokens * parts,
      rows_multiple=parts,
    )

  def _flat(self, lengths: Sequence[int] | np.ndarray) -> batching.Packing:
    packing = batching.plan_flat(
      lengths,
      longest=self.config.row_tokens[-1],
      max_tokens=self.config.micro_batch_tokens,
      prefer=self.shapes,
    )
    self.shapes.add((packing.rows, packing.row_tokens))
    return packing

  def _plan(self, lengths: np.ndarray) -> batching.Packing:
    if self.is_flat:
      return self._flat(lengths)
    parts = sharding.rows_multiple(self.mesh)
    packing = batching.plan_packing(
      lengths,
      row_tokens_buckets=self.config.row_tokens,
      max_tokens=self.config.micro_batch_tokens * parts,
      rows_multiple=parts,
      prefer=self.shapes,
      attention_tokens=self._attention_tokens,
    )
    self.shapes.add((packing.rows, packing.row_tokens))
    return packing

  def pack(
    self, sequences: Sequence[np.ndarray], skip: np.ndarray
  ) -> tuple[_Packed, list[dict[str, jax.Array]]]:
    """(packing, device arrays of each micro-batch) of some samples.

    sequences: int32, prompt and response of each. skip: [n], tokens of each prompt.
    """
    packing: _Packed
    if self.config.share_prompts:
      packing = shared_prompts.plan_shared(
        sequences, skip, plan=self._plan, longest=self._longest_shared
      )
      arrays = packing.arrays(sequences, skip, self.pad_id)
    else:
      packing = self._plan(np.array([len(s) for s in sequences]))
      ids = batching.pack_tokens(packing, sequences, self.pad_id)
      arrays = dict(zip(('tokens', 'positions', 'segment_ids'), ids))
    self.note_row(packing.row_tokens)
    micros = [
      self.put({k: v[m] for k, v in arrays.items()})
      for m in range(packing.n_micro)
    ]
    return packing, micros


class PackedBatch:
  """The samples of one update, packed once and reused where possible."""

  def __init__(self, packer: Packer, samples: Sequence[types.Sample]):
    self.packer, self.samples = packer, list(samples)
    self.sequences = [batching.sequence_of(s) for s in self.samples]
    self.lengths = np.array([len(s) for s in self.sequences])
    self.skip = np.array([len(s.prompt_ids) for s in self.samples], np.int64)
    self.width = max(len(s.token_ids) for s in self.samples)
    self.all = np.arange(len(self.samples))
    self._ids: dict[bytes, tuple] = {}
    self.everything = self._packed(self.all)[0]

  def _packed(self, members: np.ndarray):
    key = members.tobytes()
    if key not in self._ids:
      self._ids[key] = self.packer.pack(
        [self.sequences[i] for i in members], self.skip[members]
      )
    return self._ids[key]

  def micros(
    self, members: Any = None, fields: Any = None
  ) -> list[dict[str, jax.Array]]:
    """Micro-batches of some samples, with per-sample fields [n, R] packed."""
    members = self.all if members is None else members
    packing, base = self._packed(members)
    if not fields:
      return base
    skip = self.skip[members]
    packed = {
      k: packing.scatter(np.asarray(v, np.float32), skip)
      for k, v in fields.items()
    }
    return [
      base[m] | self.packer.put({k: v[m] for k, v in packed.items()})
      for m in range(packing.n_micro)
    ]

  def per_token(self, run: Any) -> np.ndarray:
    """`run` over all micro-batches -> float32 [N, R]."""
    return self.unpacked([run(micro) for micro in self.micros()])

  def unpacked(self, outs: Sequence[jax.Array]) -> np.ndarray:
    """[B, T] of each micro-batch -> float32 [N, R] of the response tokens."""
    packed = np.stack([sharding.fetch(out) for out in outs])
    table = self.everything.unpack(packed, self.skip, self.width)
    return table.astype(np.float32)


class Clock:
  """Seconds by stage."""

  def __init__(self):
    self.seconds: dict[str, float] = {}

  def __call__(self, name: str):
    @contextlib.contextmanager
    def timed():
      began = time.monotonic()
      yield
      spent = time.monotonic() - began
      self.seconds[name] = self.seconds.get(name, 0.0) + spent

    return timed()


def _attention_tokens(c: models.ModelConfig) -> float:
  """Row length at which attention's products equal the weights'."""
  width = c.num_attention_heads * c.head_dim
  weights_ = c.num_params() + (
    0 if c.tie_word_embeddings else -c.vocab_size * c.hidden_size
  )
  # Softmax and masking about double the cost of the products.
  return max(weights_ / (2 * c.num_hidden_layers * width) / 2, 64.0)


def check(model: models.ModelConfig, config: LearnerConfig, mesh: Mesh) -> None:
  """Raises ValueError for rows that a mesh, or its kernel of attention, cannot run."""
  if config.row_layout == 'flat' and mesh.size > 1:
    raise ValueError(
      f"rl.row_layout='flat' is one row a pass, which {mesh.size} devices cannot share; choose "
      "'auto' or 'packed'."
    )
  if config.product_dtype == 'bfloat16' and mesh.size > 1:
    raise ValueError(
      f"rl.product_dtype='bfloat16' is for one CPU device, not for {mesh.size} devices; "
      "choose model.dtype='bfloat16', or 'float32' or 'auto'."
    )
  if config.share_prompts:
    complaint = attention.no_branches(_kernel(model, mesh))
    if complaint:
      raise ValueError(complaint)


def _is_flat(
  model: models.ModelConfig, config: LearnerConfig, mesh: Mesh
) -> bool:
  """Whether samples lie one behind the other in one row a micro-batch."""
  if config.row_layout != 'auto' or mesh.size > 1:
    return config.row_layout == 'flat'
  if model.num_params() < LEAST_FLAT:
    return False
  # Any other kernel would pay for all pairs of the long row.
  return _kernel(model, mesh) == 'blocks'


def _kernel(model: models.ModelConfig, mesh: Mesh) -> str:
  """Returns the kernel of attention on a mesh, whatever the length of a row."""
  first = mesh.devices.flat[0]
  return attention.choose(
    model.attention, model.dtype, model.head_dim, device=first
  )
