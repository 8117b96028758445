"""Weights from the trainer to vLLM servers, two ways (`nccl_sync` is a third).

`FileSync` lays all tensors into one file in shared memory; our plug-in
(third_party/jaxagent_vllm) checks names, shapes and checksums before it touches
the model. `FolderSync` writes a checkpoint that any vLLM can reload.
"""

from __future__ import annotations

import concurrent.futures
import errno
import logging
import math
import os
import pathlib
import shutil
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np

from jaxagent.files import copies
from jaxagent.rollout.engines.vllm_api import ServerError, Vllm
from jaxagent.sandbox import scratch

_log = logging.getLogger(__name__)
_ALIGN = 64
_THREADS = min(8, os.cpu_count() or 1)
_MASK = 2**64 - 1


class Tensor(Protocol):
  """One weight under its Hugging Face name."""

  name: str
  shape: tuple[int, ...]

  def load(self) -> np.ndarray:
    """Loads the array into host memory."""


class WeightSync(Protocol):
  """Transport of weights from the trainer to a server."""

  def write(self, params: Any, version: int) -> None:
    """Writes weights to where servers find them; replaces the last ones."""

  async def push(self, server: Vllm) -> None:
    """Makes a server take what was written last."""

  def close(self) -> None:
    """Removes what was written."""


Export = Callable[[Any], Iterable[Tensor]]


class FileSync:
  """Weights in one file, overwritten: new pages cost more than the copy.

  It is not read meanwhile: a server copies what it takes before it answers.

  Args:
    export: params -> their tensors.
    directory: shared memory, or a file system that servers elsewhere see.
    fallback: used, with a warning, where `directory` has no room.
    dtype: in which they travel, e.g. that of the server's model.
  """

  def __init__(
    self,
    export: Export,
    directory: pathlib.Path,
    fallback: pathlib.Path,
    dtype: np.dtype,
  ):
    self._export, self._dtype = export, np.dtype(dtype)
    self._places = [directory, fallback]
    self._folder: scratch.Folder | None = None
    self._data: np.memmap | None = None
    self._manifest: list[dict] = []
    self._version = -1

  def write(self, params: Any, version: int) -> None:
    tensors = list(self._export(params))
    self._manifest, size = self._lay_out(tensors)
    if self._data is None or self._data.size != size:
      self._data = self._room(size)
    self._refusal().unlink(missing_ok=True)
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as executor:
      sums = executor.map(self._put, self._manifest, tensors)
      for entry, total in zip(self._manifest, sums):
        entry['checksum'] = total
    self._data.flush()  # for a server that sees it over a network
    self._version = version

  def _put(self, entry: dict, tensor: Tensor) -> int:
    """The tensor at its place; its checksum."""
    size = math.prod(tensor.shape) * self._dtype.itemsize
    assert self._data is not None  # `write` makes it
    part = self._data[entry['offset'] : entry['offset'] + size]
    place = part.view(self._dtype).reshape(tensor.shape)
    copies.copy(place, tensor.load())
    return checksum(part)

  def _lay_out(self, tensors) -> tuple[list[dict], int]:
    manifest, offset = [], 0
    for tensor in tensors:
      entry = {'name': tensor.name, 'shape': list(tensor.shape)}
      manifest.append(entry | {'dtype': self._dtype.name, 'offset': offset})
      size = math.prod(tensor.shape) * self._dtype.itemsize
      offset += -(-size // _ALIGN) * _ALIGN
    return manifest, offset

  def _room(self, size: int) -> np.memmap:
    """A file of `size` bytes that are really there."""
    while True:
      try:
        if self._folder is None:
          self._places[0].mkdir(parents=True, exist_ok=True)
          scratch.sweep(str(self._places[0]))  # of trainers that were killed
          self._folder = scratch.Folder(str(self._places[0]))
        with open(self._path(), 'w+b') as file:
          os.posix_fallocate(file.fileno(), 0, size)
        return np.memmap(self._path(), np.uint8, mode='r+')
      except OSError as error:
        full = self._places.pop(0)
        self._drop()
        if not self._places:
          raise OSError(
            errno.ENOSPC, f'no room for {size} bytes of weights', str(full)
          ) from error
        _log.warning(
          '%s has no room for %.3g GB of weights (%s): they go through %s.',
          full,
          size / 1e9,
          error,
          self._places[0],
        )

  async def push(self, server: Vllm) -> None:
    await server.init_transfer()  # it may have been started anew
    try:
      told = {'path': str(self._path()), 'tensors': self._manifest}
      await server.load_weights(told, self._version)
    except ServerError as error:
      refusal = self._refusal()
      if not refusal.exists():
        raise
      raise ServerError(
        f'{server.url} refuses version {self._version}: {refusal.read_text()}'
      ) from error

  def _drop(self) -> None:
    if self._folder is not None:
      self._folder.remove()
    self._folder = self._data = None

  def _path(self) -> pathlib.Path:
    assert self._folder is not None  # until `close`
    return pathlib.Path(self._folder.path, 'weights')

  def _refusal(self) -> pathlib.Path:
    """Returns the file in which a server writes why it refuses the weights."""
    return self._path().with_suffix('.refused')

  def close(self) -> None:
    self._drop()


class FolderSync:
  """A checkpoint folder for each version; needs no plug-in.

  Args:
    save: (params, new folder) -> None; a whole Hugging Face folder, the output
      head included where it is tied: vLLM on the CPU keeps a packed copy.
    directory: that servers see, too.
  """

  def __init__(
    self, save: Callable[[Any, pathlib.Path], object], directory: pathlib.Path
  ):
    self._save, self._directory = save, directory
    self._folder: pathlib.Path | None = None
    self._version = -1

  def write(self, params: Any, version: int) -> None:
    folder = self._directory / f'version-{version}'
    shutil.rmtree(folder, ignore_errors=True)
    self._save(params, folder)
    old, self._folder, self._version = self._folder, folder, version
    if old is not None and old != folder:
      shutil.rmtree(old, ignore_errors=True)

  async def push(self, server: Vllm) -> None:
    await server.reload_folder(str(self._folder), self._version)

  def close(self) -> None:
    if self._folder is not None:
      shutil.rmtree(self._folder, ignore_errors=True)


def checksum(data: np.ndarray) -> int:
  """Does what the servers' `jaxagent_vllm.manifest.checksum` does."""
  whole = len(data) // 8 * 8
  words = data[:whole].view('<u8')
  rest = int.from_bytes(data[whole:].tobytes(), 'little')
  return (int(np.add.reduce(words, dtype=np.uint64)) + rest) & _MASK
