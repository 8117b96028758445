"""Safetensors files read lazily and written tensor by tensor.

The format (huggingface/safetensors): 8 bytes little-endian header length, a
JSON header of name -> {dtype, shape, data_offsets}, then the bytes. Reading
maps the file, so that a shard's slice touches its own pages alone; writing
streams, so that no second copy of the model is ever held.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import ml_dtypes
import numpy as np

DTYPES: Mapping[str, np.dtype] = {
  'F32': np.dtype(np.float32),
  'F16': np.dtype(np.float16),
  'BF16': np.dtype(ml_dtypes.bfloat16),
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_MAX_HEADER = 100 << 20


@dataclasses.dataclass(frozen=True)
class Tensor:
  """Where one tensor lies. `dtype` is the file's own name for it."""

  file: pathlib.Path
  dtype: str
  shape: tuple[int, ...]
  start: int
  size: int

  def read(self) -> np.ndarray:
    """A read-only view of the file; slice it before copying."""
    return np.memmap(
      self.file, DTYPES[self.dtype], 'r', self.start, self.shape
    ) if self.size else np.zeros(self.shape, DTYPES[self.dtype])


def read_index(folder: pathlib.Path) -> dict[str, Tensor]:
  """Every tensor of a folder by name; no weight is read.

  Follows `model.safetensors.index.json` where there is one. Raises
  FileNotFoundError or ValueError naming the file and the remedy.
  """
  listing = folder / 'model.safetensors.index.json'
  if listing.is_file():
    wanted = json.loads(listing.read_text())['weight_map']
    files = sorted({folder / name for name in wanted.values()})
    gone = [f.name for f in files if not f.is_file()]
    if gone:
      raise FileNotFoundError(
        f'{folder}: shards {gone} of {listing.name} are not there; copy them.'
      )
  else:
    wanted, files = None, sorted(folder.glob('*.safetensors'))
  if not files:
    pickles = sorted(p.name for p in folder.glob('*.bin'))
    hint = f' {pickles} is pickle and is never loaded;' if pickles else ''
    raise FileNotFoundError(
      f'{folder}: no *.safetensors;{hint} save it with safe_serialization=True.'
    )
  out: dict[str, Tensor] = {}
  for file in files:
    for name, tensor in read_header(file).items():
      if name in out:
        raise ValueError(f'{name} is in {out[name].file.name} and {file.name}.')
      out[name] = tensor
  if wanted is not None:
    absent = sorted(set(wanted) - set(out))
    if absent:
      raise ValueError(f'{listing}: lists {absent}, which no shard holds.')
  return out


def read_header(file: pathlib.Path) -> dict[str, Tensor]:
  """The tensors of one file. Raises ValueError where it is truncated."""
  total = file.stat().st_size
  with open(file, 'rb') as handle:
    length = int.from_bytes(handle.read(8), 'little')
    if total < 8 or not 0 < length <= min(total - 8, _MAX_HEADER):
      raise ValueError(
        f'{file}: not a safetensors file, or truncated ({total} bytes, header '
        f'of {length}); copy it again.'
      )
    try:
      header = json.loads(handle.read(length))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
      raise ValueError(f'{file}: damaged header ({error}).') from error
  header.pop('__metadata__', None)
  base = 8 + length
  end = max((e['data_offsets'][1] for e in header.values()), default=0)
  if base + end != total:
    raise ValueError(
      f'{file}: {total} bytes where the header says {base + end}; it is '
      'truncated or damaged: copy it again.'
    )
  out = {}
  for name, e in header.items():
    start, stop = e['data_offsets']
    shape = tuple(e['shape'])
    width = DTYPES[e['dtype']].itemsize if e['dtype'] in DTYPES else None
    if width and stop - start != width * int(np.prod(shape)):
      raise ValueError(f'{file}: {name} has {stop - start} bytes for {shape}.')
    out[name] = Tensor(file, e['dtype'], shape, base + start, stop - start)
  return out


@dataclasses.dataclass(frozen=True)
class Pending:
  """A tensor to be written: `load` is called once, when its turn comes.

  array: the same on the devices that have it, where they do.
  """

  name: str
  shape: tuple[int, ...]
  load: Callable[[], np.ndarray]
  array: Callable[[], Any] | None = None


def write_sharded(
  folder: pathlib.Path,
  tensors: Iterable[Pending],
  dtype: np.dtype,
  max_shard_bytes: int,
  stem: str = 'model',
) -> list[pathlib.Path]:
  """Writes `stem.safetensors`, or numbered shards with an index."""
  width = np.dtype(dtype).itemsize
  shards: list[list[Pending]] = [[]]
  room = max_shard_bytes
  for tensor in tensors:
    size = width * int(np.prod(tensor.shape))
    if shards[-1] and size > room:
      shards.append([])
      room = max_shard_bytes
    shards[-1].append(tensor)
    room -= size
  count = len(shards)
  files, weight_map, total = [], {}, 0
  for i, shard in enumerate(shards):
    name = f'{stem}-{i + 1:05d}-of-{count:05d}' if count > 1 else stem
    file = folder / f'{name}.safetensors'
    total += write_file(file, shard, dtype)
    weight_map |= {t.name: file.name for t in shard}
    files.append(file)
  if count > 1:
    index = {'metadata': {'total_size': total}, 'weight_map': weight_map}
    (folder / f'{stem}.safetensors.index.json').write_text(
      json.dumps(index, indent=2, sort_keys=True)
    )
  return files


def write_file(
  file: pathlib.Path, tensors: list[Pending], dtype: np.dtype
) -> int:
  """Writes one file by way of a temporary name; returns the data's bytes."""
  dtype = np.dtype(dtype)
  header, offset = {'__metadata__': {'format': 'pt'}}, 0
  for t in tensors:
    size = dtype.itemsize * int(np.prod(t.shape))
    header[t.name] = {
      'dtype': _NAMES[dtype],
      'shape': list(t.shape),
      'data_offsets': [offset, offset + size],
    }
    offset += size
  text = json.dumps(header).encode()
  text += b' ' * (-len(text) % 8)
  part = file.with_name(file.name + '.part')
  with open(part, 'wb') as handle:
    handle.write(len(text).to_bytes(8, 'little') + text)
    for t in tensors:
      value = np.ascontiguousarray(t.load(), dtype)
      if value.shape != t.shape:
        raise ValueError(f'{t.name}: {value.shape}, announced as {t.shape}.')
      handle.write(value.tobytes())
    handle.flush()
    os.fsync(handle.fileno())
  part.replace(file)
  return offset
