"""Reading arrays: `.npy` and `.npz`, numbers only, nothing unpickled.

A header says how large an array is; it is believed only as far as the file
itself, or the entry of the archive, is that large.
"""

from __future__ import annotations

import math
import pathlib
import zipfile
from typing import BinaryIO

import numpy as np

from jaxagent.graders.tables import MAX_BYTES, InvalidSubmission

SUFFIXES = ('.npy', '.npz')
MAX_ARRAYS = 1000


def read_arrays(path: str | pathlib.Path) -> dict[str, np.ndarray]:
  """The arrays of a file by name; that of a `.npy` has the name ''.

  Raises: FileNotFoundError; InvalidSubmission where it holds pickled objects,
  anything but numbers, or more than MAX_BYTES.
  """
  path = pathlib.Path(path)
  if not path.is_file():
    raise FileNotFoundError(f'{path} does not exist or is not a file')
  try:
    if path.suffix.lower() == '.npz':
      return _read_archive(path)
    with path.open('rb') as file:
      return {'': _read_array(file, path.stat().st_size)}
  except MemoryError:
    raise
  except Exception as error:  # any bytes at all may stand in a file
    raise InvalidSubmission(
      f'{path} is not a readable {path.suffix} file: {error}'
    ) from error


def _read_archive(path: pathlib.Path) -> dict[str, np.ndarray]:
  arrays = {}
  with zipfile.ZipFile(path) as archive:
    entries = archive.infolist()
    size = sum(entry.file_size for entry in entries)
    if size > MAX_BYTES or len(entries) > MAX_ARRAYS:
      raise ValueError(
        f'{len(entries)} arrays of {size} bytes, of at most {MAX_ARRAYS} and '
        f'{MAX_BYTES}'
      )
    for entry in entries:
      with archive.open(entry) as file:
        name = entry.filename.removesuffix('.npy')
        if name in arrays:
          raise ValueError(f'the array {name!r} occurs twice')
        arrays[name] = _read_array(file, entry.file_size)
  return arrays


def _read_array(file, size: int) -> np.ndarray:
  """One array of a stream of at most `size` bytes."""
  if size > MAX_BYTES:
    raise ValueError(f'{size} bytes are more than {MAX_BYTES}')
  shape, fortran, dtype = _header(file)
  if dtype.hasobject:
    raise ValueError('it holds pickled objects, which are not loaded')
  if dtype.kind not in 'biuf':
    raise ValueError(f'it holds {dtype}, not numbers')
  count = math.prod(shape)
  if min(shape, default=0) < 0 or count * dtype.itemsize > size:
    raise ValueError(f'it is too short for its shape {shape}')
  data = file.read(count * dtype.itemsize)
  if len(data) < count * dtype.itemsize:
    raise ValueError(f'it is too short for its shape {shape}')
  array = np.frombuffer(data, dtype=dtype, count=count)
  return array.reshape(shape, order='F' if fortran else 'C')


def _header(file: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype]:
  version = np.lib.format.read_magic(file)
  if version == (1, 0):
    return np.lib.format.read_array_header_1_0(file)
  if version == (2, 0):
    return np.lib.format.read_array_header_2_0(file)
  raise ValueError(f'its format {version} is not 1.0 or 2.0')
