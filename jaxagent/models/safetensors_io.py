"""Safetensors files read lazily and written tensor by tensor.

The format (huggingface/safetensors): 8 bytes little-endian header length, a
JSON header of name -> {dtype, shape, data_offsets}, then the bytes. Reading
maps the file, so that a shard's slice touches its own pages alone; writing
streams, so that no second copy of the model is ever held.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from jaxagent.files import copies, model_files

DTYPES: Mapping[str, np.dtype] = {
  'F32': np.dtype(np.float32),
  'F16': np.dtype(np.float16),
  'BF16': np.dtype(ml_dtypes.bfloat16),
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_MAX_HEADER = 100 << 20


WHOLE = 'model.safetensors'
LISTING = 'model.safetensors.index.json'
_CHUNK = 1 << 22  # elements that are looked at together

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Tensor:
  """Place of one tensor in a file. `dtype` is the file's own name for it."""

  file: pathlib.Path
  dtype: str
  shape: tuple[int, ...]
  start: int
  size: int

  def read(self) -> np.ndarray:
    """A read-only view of the file, which shows what is written there later.

    Copy what is to be kept; slice it before.
    """
    return (
      np.memmap(self.file, DTYPES[self.dtype], 'r', self.start, self.shape)
      if self.size
      else np.zeros(self.shape, DTYPES[self.dtype])
    )

  def finite(self) -> bool:
    """Whether no element is NaN or infinite."""
    flat = self.read().reshape(-1)
    chunks = (flat[i : i + _CHUNK] for i in range(0, flat.size, _CHUNK))
    return all(map(is_finite, chunks))


def is_finite(values: np.ndarray) -> bool:
  """Says whether no element is NaN or infinite."""
  if values.dtype == DTYPES['BF16']:  # NumPy has no fast test of its own for it
    bits = np.ascontiguousarray(values).view(np.uint16)
    return not np.any((bits & 0x7F80) == 0x7F80)
  return bool(np.isfinite(values).all())


def read_index(folder: pathlib.Path) -> dict[str, Tensor]:
  """Every tensor of a folder by name; no weight is read.

  As `transformers` 4.56 to 5.24 do: `model.safetensors` where there is one,
  else the shards of `model.safetensors.index.json`. Where both are there, the
  log says which counts. Raises FileNotFoundError or ValueError naming the file
  and the remedy.
  """
  if (folder / WHOLE).is_file():
    if (folder / LISTING).is_file():
      _log.warning(
        '%s: %s is read, as transformers does, not the shards of %s beside it; '
        'remove the one that is not meant.', folder, WHOLE, LISTING,
      )  # fmt: skip
    return read_header(folder / WHOLE)
  wanted = _listed(folder)
  files = sorted({folder / name for name in wanted.values()})
  gone = [f.name for f in files if not f.is_file()]
  if gone:
    raise FileNotFoundError(
      f'{folder}: shards {gone} of {LISTING} are not there; copy them.'
    )
  out: dict[str, Tensor] = {}
  for file in files:
    for name, tensor in read_header(file).items():
      if name in out:
        raise ValueError(
          f'{folder}: {name} is in {out[name].file.name} and {file.name}; copy '
          'the shards of one model again.'
        )
      out[name] = tensor
  absent = sorted(set(wanted) - set(out))
  if absent:
    raise ValueError(
      f'{folder / LISTING}: lists {_few(absent)}, which no shard holds; copy '
      'index and shards of one model.'
    )
  return out


def _listed(folder: pathlib.Path) -> dict[str, str]:
  """Name of a tensor to its shard, as the index has it."""
  file = folder / LISTING
  if not file.is_file():
    others = sorted(p.name for p in folder.glob('*.safetensors'))
    pickles = sorted(p.name for p in folder.glob('*.bin'))
    hint = f' {_few(pickles)} is pickle and is never loaded;' if pickles else ''
    if others:
      hint += f' {_few(others)} alone says not what it is part of;'
    raise FileNotFoundError(
      f'{folder}: no {WHOLE} and no {LISTING};{hint} copy them, or save the '
      'model with safe_serialization=True.'
    )
  wanted = model_files.read_json(file).get('weight_map')
  if not isinstance(wanted, dict) or not all(
    isinstance(shard, str) and pathlib.PurePath(shard).name == shard
    for shard in wanted.values()
  ):
    raise ValueError(
      f'{file}: weight_map is not an object of file names; copy it again.'
    )
  return wanted


def _few(names: list[str], most: int = 3) -> str:
  more = f' and {len(names) - most} more' if len(names) > most else ''
  return f'{", ".join(names[:most])}{more}'


def read_header(file: pathlib.Path) -> dict[str, Tensor]:
  """The tensors of one file; ValueError where it is damaged or no such file."""
  model_files.refuse_pointer(file)
  total = file.stat().st_size
  with open(file, 'rb') as handle:
    length = int.from_bytes(handle.read(8), 'little')
    if total < 8 or not 0 < length <= min(total - 8, _MAX_HEADER):
      raise ValueError(
        f'{file}: not a safetensors file, or truncated ({total} bytes, header '
        f'of {length}); copy it again.'
      )
    raw = handle.read(length)
  header = model_files.parse_json(raw, f'{file}: damaged header')
  header.pop('__metadata__', None)
  base = 8 + length
  try:
    out = {name: _entry(file, base, **entry) for name, entry in header.items()}
  except (TypeError, ValueError) as error:
    raise ValueError(
      f'{file}: damaged header ({error}); copy it again.'
    ) from error
  end = max((t.start + t.size for t in out.values()), default=base)
  if end != total:
    raise ValueError(
      f'{file}: {total} bytes where the header says {end}; it is truncated or '
      'damaged: copy it again.'
    )
  for name, tensor in out.items():
    width = DTYPES[tensor.dtype].itemsize if tensor.dtype in DTYPES else None
    if width and tensor.size != width * math.prod(tensor.shape):
      raise ValueError(
        f'{file}: {name} has {tensor.size} bytes for {tensor.shape}; copy it '
        'again.'
      )
  return out


def _entry(
  file: pathlib.Path, base: int, dtype: str, shape: list, data_offsets: list
) -> Tensor:
  """A header's entry as a Tensor; TypeError or ValueError where it is none."""
  start, stop = data_offsets
  numbers = (*shape, start, stop)
  if any(type(n) is not int or n < 0 for n in numbers) or stop < start:
    raise ValueError(f'shape {shape}, data_offsets {data_offsets}')
  return Tensor(file, str(dtype), tuple(shape), base + start, stop - start)


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
  files, total = [], 0
  weight_map: dict[str, str] = {}
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
  header: dict[str, dict[str, Any]] = {'__metadata__': {'format': 'pt'}}
  offset = 0
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
      value = copies.contiguous(t.load(), dtype)
      if value.shape != t.shape:
        raise ValueError(f'{t.name}: {value.shape}, announced as {t.shape}.')
      handle.write(value.reshape(-1).view(np.uint8).data)
    handle.flush()
    os.fsync(handle.fileno())
  part.replace(file)
  return offset
