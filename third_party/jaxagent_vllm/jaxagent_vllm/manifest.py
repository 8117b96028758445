"""What the trainer says of a file of weights, and whether file and model agree.

A file holds tensors one after the other, each from its own offset; the manifest
names them. Nothing here needs vLLM, so that it can be tested without.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import math
import os
from collections.abc import Mapping, Sequence

import numpy as np

ITEM_BYTES = {'float32': 4, 'bfloat16': 2, 'float16': 2}
_MASK = 2**64 - 1
_THREADS = min(8, os.cpu_count() or 1)


class ManifestError(ValueError):
  """Manifest, file or model do not fit; nothing was changed."""


@dataclasses.dataclass(frozen=True)
class Tensor:
  """One tensor: bytes [offset, offset + nbytes) of the file.

  checksum: see `checksum`.
  """

  name: str
  dtype: str
  shape: tuple[int, ...]
  offset: int
  checksum: int

  @property
  def nbytes(self) -> int:
    return math.prod(self.shape) * ITEM_BYTES[self.dtype]


def parse(entries: Sequence[Mapping]) -> list[Tensor]:
  """Entries of the manifest as they come over HTTP."""
  tensors, seen = [], set()
  for entry in entries:
    try:
      tensor = Tensor(
        str(entry['name']),
        str(entry['dtype']),
        tuple(int(n) for n in entry['shape']),
        int(entry['offset']),
        int(entry['checksum']),
      )
    except (KeyError, TypeError, ValueError) as error:
      raise ManifestError(f'manifest entry {entry!r}: {error!r}') from error
    if tensor.dtype not in ITEM_BYTES:
      raise ManifestError(
        f'{tensor.name}: dtype {tensor.dtype!r}; one of {sorted(ITEM_BYTES)}.'
      )
    if tensor.offset < 0 or min(tensor.shape, default=1) < 1:
      raise ManifestError(f'{tensor.name}: offset or shape of {entry!r}.')
    if tensor.name in seen:
      raise ManifestError(f'{tensor.name}: named twice.')
    seen.add(tensor.name)
    tensors.append(tensor)
  if not tensors:
    raise ManifestError('the manifest names no tensor.')
  return tensors


def checksum(data: np.ndarray) -> int:
  """Of bytes [n]: their sum as little-endian 64-bit words, modulo 2^64.

  As fast as memory. It finds what goes wrong here (a file that is half written,
  one of another version, a wrong offset), not an adversary.
  """
  whole = len(data) // 8 * 8
  words = data[:whole].view('<u8')
  rest = int.from_bytes(data[whole:].tobytes(), 'little')
  return (int(np.add.reduce(words, dtype=np.uint64)) + rest) & _MASK


def open_file(path: str, tensors: Sequence[Tensor]) -> np.ndarray:
  """The file's bytes, mapped; every tensor is in it and has its checksum."""
  try:
    size = os.path.getsize(path)
    end = max(t.offset + t.nbytes for t in tensors)
    if size < end:
      raise ManifestError(
        f'{path} has {size} bytes; the manifest needs {end}. Is it shared with '
        'this machine, and is there room where it lies?'
      )
    data = np.memmap(path, np.uint8, mode='c')
  except OSError as error:
    raise ManifestError(f'{path} cannot be read: {error}') from error
  parts = [data[t.offset : t.offset + t.nbytes] for t in tensors]
  with concurrent.futures.ThreadPoolExecutor(_THREADS) as executor:
    for t, found in zip(tensors, executor.map(checksum, parts)):
      if found != t.checksum:
        raise ManifestError(
          f'{t.name}: checksum {found}, not {t.checksum}, in {path}.'
        )
  return data


def check_model(
  tensors: Sequence[Tensor],
  wanted: Mapping[str, tuple[int, ...]],
  packed: Mapping[str, Sequence[str]],
  *,
  tied: bool,
  shards: int,
) -> None:
  """Raises ManifestError unless the tensors are those of the model.

  Args:
    wanted: the model's own parameters, as it was made -> shape.
    packed: name of a module -> names of those it is put together from, one
      below the other.
    tied: the output head may be given although it is the embedding.
    shards: tensor parallelism; above 1 only names are compared.
  """
  given = {t.name: t.shape for t in tensors}
  faults = []
  for name, shape in wanted.items():
    parts = _parts(name, packed)
    found = [given.pop(part) for part in parts if part in given]
    if len(found) < len(parts):
      faults.append(f'{", ".join(parts)}: missing')
    elif shards == 1 and not _fits(found, shape, name):
      faults.append(f'{", ".join(parts)}: {found}, for {shape}')
  if tied:
    given.pop('lm_head.weight', None)
  faults += [f'{name}: unknown' for name in given]
  if faults:
    more = f' and {len(faults) - 5} more' if len(faults) > 5 else ''
    raise ManifestError(
      'these weights are not of the model that is served: '
      + '; '.join(faults[:5])
      + more
    )


def _parts(name: str, packed: Mapping[str, Sequence[str]]) -> list[str]:
  pieces = name.split('.')
  for i, piece in enumerate(pieces):
    if piece in packed:
      return [
        '.'.join([*pieces[:i], part, *pieces[i + 1 :]])
        for part in packed[piece]
      ]
  return [name]


def _fits(found, shape, name: str) -> bool:
  rows = sum(part[0] for part in found)
  rest = {tuple(part[1:]) for part in found}
  if rest != {tuple(shape[1:])}:
    return False
  # A vocabulary is padded to a multiple of some number of rows.
  padded = name.endswith(('embed_tokens.weight', 'lm_head.weight'))
  return rows == shape[0] or (padded and 0 <= shape[0] - rows < 1024)
