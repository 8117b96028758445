"""Copies of arrays between memory and files, and their transposition on the way.

NumPy copies a transposed array row by row, and of a matrix that exceeds the cache it
fetches each cache line anew for each row. Block by block the same copy is 2 to 4 times
as fast (`docs/lab_log.md`, 2026-11-30).
"""

from __future__ import annotations

import numpy as np

_ROWS, _COLUMNS = 256, 64  # of a block of the target: 64 KiB of float32


def copy(target: np.ndarray, source: np.ndarray) -> None:
  """Copies into an array of the same shape, in that array's precision.

  Raises ValueError for another shape.
  """
  if source.shape != target.shape:
    raise ValueError(f'{source.shape} is copied into {target.shape}.')
  if not _is_turned(target, source):
    target[...] = source
    return
  places = _as_bits(target)
  rows, columns = target.shape
  for i in range(0, rows, _ROWS):
    for j in range(0, columns, _COLUMNS):
      # Rounded where it lies, then moved as bits: dtypes that are not NumPy's own are
      # moved one element at a time.
      part = source[i : i + _ROWS, j : j + _COLUMNS]
      part = part.astype(target.dtype, 'K', copy=False)
      places[i : i + _ROWS, j : j + _COLUMNS] = _as_bits(part)


def contiguous(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
  """Returns the array in C order and that precision; itself where it is so already."""
  if array.dtype == dtype and array.flags.c_contiguous:
    return array
  found = np.empty(array.shape, dtype)
  copy(found, array)
  return found


def _is_turned(target: np.ndarray, source: np.ndarray) -> bool:
  """Whether rows of the target lie as columns in the source, and are long."""
  return (
    target.ndim == 2
    and min(target.shape) > _COLUMNS
    and target.flags.c_contiguous
    and source.strides[0] == source.itemsize
  )


def _as_bits(array: np.ndarray) -> np.ndarray:
  return array.view(f'u{array.dtype.itemsize}')
