"""Reading arrays: `.npy` and `.npz`, numbers only, nothing unpickled.

A header says how large an array is; it is believed only as far as the file
itself, or the entry of the archive, is that large.
"""

from __future__ import annotations

import math
import pathlib
import zipfile
from collections.abc import Collection
from typing import IO, BinaryIO

import numpy as np

from jaxagent.graders.tables import MAX_BYTES, InvalidSubmission, opened

SUFFIXES = ('.npy', '.npz')
MAX_ARRAYS = 1000


def read_arrays(
  source: str | pathlib.Path | bytes,
  suffix: str = '',
  *,
  max_bytes: int | None = None,
  texts: Collection[str] = (),
) -> dict[str, np.ndarray]:
  """The arrays of a file, or of its bytes, by name; that of a `.npy` has the name ''.

  suffix: that of the file's name, which bytes do not have.
  max_bytes: of the file, and of what an archive unpacks to; MAX_BYTES for None.
  texts: arrays that hold text, of the answers alone.

  Raises: FileNotFoundError; InvalidSubmission where it holds pickled objects,
  anything but numbers, or more than max_bytes.
  """
  max_bytes = MAX_BYTES if max_bytes is None else max_bytes
  stream, size, name = opened(source, max_bytes)
  if not isinstance(source, bytes):
    suffix = pathlib.Path(source).suffix.lower()
  try:
    with stream:
      if suffix == '.npz':
        return _read_archive(stream, max_bytes, texts)
      return {'': _read_array(stream, size, 'biuf')}
  except MemoryError:
    raise
  except Exception as error:  # any bytes at all may stand in a file
    raise InvalidSubmission(
      f'{name} is not a readable {suffix} file: {error}', 'table'
    ) from error


def _read_archive(
  stream: BinaryIO, max_bytes: int, texts: Collection[str]
) -> dict[str, np.ndarray]:
  arrays = {}
  with zipfile.ZipFile(stream) as archive:
    entries = archive.infolist()
    size = sum(entry.file_size for entry in entries)
    if size > max_bytes or len(entries) > MAX_ARRAYS:
      raise ValueError(
        f'{len(entries)} arrays of {size} bytes, of at most {MAX_ARRAYS} and '
        f'{max_bytes}'
      )
    for entry in entries:
      with archive.open(entry) as file:
        name = entry.filename.removesuffix('.npy')
        if name in arrays:
          raise ValueError(f'the array {name!r} occurs twice')
        kinds = 'U' if name in texts else 'biuf'
        arrays[name] = _read_array(file, entry.file_size, kinds)
  return arrays


def _read_array(
  file: BinaryIO | IO[bytes], size: int, kinds: str
) -> np.ndarray:
  """One array of a stream of at most `size` bytes; `kinds` are of its dtype."""
  try:
    shape, fortran, dtype = _header(file)
  except MemoryError as error:  # of the parser: a header is short
    raise ValueError('its header is nested too deeply') from error
  if dtype.hasobject:
    raise ValueError('it holds pickled objects, which are not loaded')
  if dtype.kind not in kinds:
    raise ValueError(f'it holds {dtype}, not numbers')
  count = math.prod(shape)
  if min(shape, default=0) < 0 or count * dtype.itemsize > size:
    raise ValueError(f'it is too short for its shape {shape}')
  data = file.read(count * dtype.itemsize)
  if len(data) < count * dtype.itemsize:
    raise ValueError(f'it is too short for its shape {shape}')
  array = np.frombuffer(data, dtype=dtype, count=count)
  return array.reshape(shape, order='F' if fortran else 'C')


def _header(
  file: BinaryIO | IO[bytes],
) -> tuple[tuple[int, ...], bool, np.dtype]:
  version = np.lib.format.read_magic(file)
  if version == (1, 0):
    return np.lib.format.read_array_header_1_0(file)
  if version == (2, 0):
    return np.lib.format.read_array_header_2_0(file)
  raise ValueError(f'its format {version} is not 1.0 or 2.0')
