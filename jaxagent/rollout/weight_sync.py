"""Weights from the trainer to vLLM servers, two ways.

`FileSync` lays all tensors into one file in shared memory; our plug-in
(third_party/jaxagent_vllm) checks names, shapes and checksums before it touches
the model. `FolderSync` writes a checkpoint that any vLLM can reload.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import pathlib
import shutil
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np

from jaxagent.rollout.vllm_api import ServerError, Vllm
from jaxagent.sandbox import scratch

_log = logging.getLogger(__name__)
_ALIGN = 64
_MASK = 2**64 - 1


class Tensor(Protocol):
  """One weight under its Hugging Face name."""

  name: str
  shape: tuple[int, ...]

  def load(self) -> np.ndarray:
    """On the host."""


Export = Callable[[Any], Iterable[Tensor]]


class FileSync:
  """One file, replaced by each version.

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
    self._path: pathlib.Path | None = None
    self._manifest: list[dict] = []
    self._version = -1

  def write(self, params: Any, version: int) -> None:
    tensors = list(self._export(params))
    self._manifest, size = self._lay_out(tensors)
    data, path = self._room(size, version)
    for entry, tensor in zip(self._manifest, tensors):
      array = np.ascontiguousarray(tensor.load(), self._dtype)
      part = data[entry['offset'] : entry['offset'] + array.nbytes]
      part[:] = array.reshape(-1).view(np.uint8)
      entry['checksum'] = checksum(part)
    old, self._path, self._version = self._path, path, version
    if old not in (None, path):
      old.unlink(missing_ok=True)

  def _lay_out(self, tensors) -> tuple[list[dict], int]:
    manifest, offset = [], 0
    for tensor in tensors:
      entry = {'name': tensor.name, 'shape': list(tensor.shape)}
      manifest.append(entry | {'dtype': self._dtype.name, 'offset': offset})
      size = math.prod(tensor.shape) * self._dtype.itemsize
      offset += -(-size // _ALIGN) * _ALIGN
    return manifest, offset

  def _room(self, size: int, version: int) -> tuple[np.memmap, pathlib.Path]:
    """A file of `size` bytes that are really there."""
    while True:
      try:
        if self._folder is None:
          self._places[0].mkdir(parents=True, exist_ok=True)
          scratch.sweep(str(self._places[0]))  # of trainers that were killed
          self._folder = scratch.Folder(str(self._places[0]))
        path = pathlib.Path(self._folder.path, f'version-{version}')
        with open(path, 'w+b') as file:
          os.posix_fallocate(file.fileno(), 0, size)
        return np.memmap(path, np.uint8, mode='r+'), path
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
      await server.load_file(str(self._path), self._manifest, self._version)
    except ServerError as error:
      told = pathlib.Path(f'{self._path}.refused')
      if not told.exists():
        raise
      raise ServerError(
        f'{server.url} refuses version {self._version}: {told.read_text()}'
      ) from error

  def _drop(self) -> None:
    if self._folder is not None:
      self._folder.remove()
    self._folder = self._path = None

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
  """As `jaxagent_vllm.manifest.checksum`, which is installed elsewhere."""
  whole = len(data) // 8 * 8
  words = data[:whole].view('<u8')
  rest = int.from_bytes(data[whole:].tobytes(), 'little')
  return (int(np.add.reduce(words, dtype=np.uint64)) + rest) & _MASK
