"""Submissions of several files: a folder, or a `.zip` of one, in `strict` alone.

The files lie beside each other, all of one kind. Those of a table (`.csv`, `.jsonl`) are
its parts: each has the same columns, and their rows are joined in the order of the
names. Those of arrays are `NAME.npy`, one array each. Nothing is unpacked to disk.
"""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import stat
import zipfile
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxagent.graders import arrays, tables
from jaxagent.graders.tables import InvalidSubmission, opened

if TYPE_CHECKING:
  import pandas as pd

ZIP = '.zip'
MAX_FILES = 200_000
_TABLES = ('.csv', '.jsonl')


def read_table(
  source: pathlib.Path | bytes, *, max_bytes: int, **options
) -> pd.DataFrame:
  """Joins the tables of a folder, or of a zip; options: of `tables.read_table`.

  max_bytes: of all files together.

  Raises: InvalidSubmission, naming the file.
  """
  import pandas as pd

  parts: list[pd.DataFrame] = []
  first = ''
  for name, data in _files(source, _TABLES, max_bytes):
    suffix = pathlib.PurePath(name).suffix.lower()
    with _named(name):
      part = tables.read_table(
        data, suffix=suffix, max_bytes=max_bytes, **options
      )
    if parts and set(part.columns) != set(parts[0].columns):
      raise InvalidSubmission(
        f'{name} has the columns {list(part.columns)[:5]}, and {first} '
        f'{list(parts[0].columns)[:5]}',
        'columns',
      )
    first = first or name
    parts.append(part)
  return pd.concat(parts, ignore_index=True)


def read_arrays(
  source: pathlib.Path | bytes, *, max_bytes: int
) -> dict[str, np.ndarray]:
  """Reads the arrays of a folder, or of a zip, by the names of its files.

  max_bytes: of all files together.

  Raises: InvalidSubmission, naming the file.
  """
  found = {}
  for name, data in _files(source, ('.npy',), max_bytes):
    with _named(name):
      array = arrays.read_arrays(data, '.npy', max_bytes=max_bytes)['']
    found[pathlib.PurePath(name).stem] = array
  return found


def packed(name: str, data: bytes) -> bytes:
  """Returns a `.zip` that holds a file alone; a `.zip` or `.npz` is one already."""
  if pathlib.PurePath(name).suffix.lower() in (ZIP, '.npz'):
    return data
  return zipped({name: data})


def pack(folder: pathlib.Path) -> bytes:
  """Returns a folder's files as a `.zip`, the same for the same files.

  Raises: InvalidSubmission for links and folders in it; OSError.
  """
  sizes = _listed(folder)
  return zipped({n: _content(folder / n, sizes[n]) for n in sorted(sizes)})


def zipped(files: Mapping[Any, bytes]) -> bytes:
  """Returns a `.zip` of files by their names (or `zipfile.ZipInfo`), always the same."""
  out = io.BytesIO()
  with zipfile.ZipFile(out, 'w') as archive:
    for name, data in files.items():
      entry = zipfile.ZipInfo(name) if isinstance(name, str) else name
      archive.writestr(entry, data)
  return out.getvalue()


@contextlib.contextmanager
def _named(name: str) -> Iterator[None]:
  """Gives a refusal the name of the file."""
  try:
    yield
  except InvalidSubmission as error:
    raise InvalidSubmission(f'{name}: {error}', error.check) from error


def _files(
  source: pathlib.Path | bytes, suffixes: Collection[str], max_bytes: int
) -> Iterator[tuple[str, bytes]]:
  """Yields name and content of each file, by name; refuses anything else there."""
  if isinstance(source, pathlib.Path) and source.is_dir():
    sizes = _listed(source)
    _check(sizes, suffixes, max_bytes)
    for name in sorted(sizes):
      yield name, _content(source / name, sizes[name])
    return
  stream, _, _ = opened(source, max_bytes)
  with stream:
    try:
      archive = zipfile.ZipFile(stream)
    except (zipfile.BadZipFile, ValueError, OSError) as error:
      raise InvalidSubmission(
        f'it is no whole zip file: {error}', 'table'
      ) from error
    sizes = _entries(archive)
    _check(sizes, suffixes, max_bytes)
    for name in sorted(sizes):
      yield name, _unpacked(archive, name, sizes[name])


def _check(
  sizes: dict[str, int], suffixes: Collection[str], max_bytes: int
) -> None:
  if not sizes:
    raise InvalidSubmission(
      f'it holds no {" or ".join(suffixes)} file', 'table'
    )
  if sum(sizes.values()) > max_bytes:
    raise InvalidSubmission(
      f'its files have {sum(sizes.values())} bytes; at most {max_bytes}', 'text'
    )
  kinds = {pathlib.PurePath(name).suffix.lower() for name in sizes}
  if len(kinds) > 1 or not kinds <= set(suffixes):
    raise InvalidSubmission(
      f'it holds files of {", ".join(sorted(kinds))[:100]}; all must be of one kind, '
      f'{" or ".join(suffixes)}',
      'table',
    )


def _listed(folder: pathlib.Path) -> dict[str, int]:
  """Name -> bytes of the files of a folder; refuses links and folders in it."""
  sizes = {}
  with os.scandir(folder) as entries:
    for entry in entries:
      if not entry.is_file(follow_symlinks=False):
        raise InvalidSubmission(
          f'{entry.name} is no file: a folder holds files beside each other, and no '
          'links',
          'table',
        )
      sizes[entry.name] = entry.stat(follow_symlinks=False).st_size
      _check_count(len(sizes))
  return sizes


def _entries(archive: zipfile.ZipFile) -> dict[str, int]:
  """Name -> bytes of the files of a zip, as it says; refuses other entries."""
  sizes: dict[str, int] = {}
  for entry in archive.infolist():
    mode = entry.external_attr >> 16
    if entry.is_dir() or '/' in entry.filename or stat.S_ISLNK(mode):
      raise InvalidSubmission(
        f'{entry.filename[:80]} is no file beside the others', 'table'
      )
    if entry.filename in sizes:
      raise InvalidSubmission(f'{entry.filename[:80]} is there twice', 'table')
    sizes[entry.filename] = entry.file_size
    _check_count(len(sizes))
  return sizes


def _check_count(count: int) -> None:
  if count > MAX_FILES:
    raise InvalidSubmission(f'it holds more than {MAX_FILES} files', 'table')


def _content(path: pathlib.Path, size: int) -> bytes:
  """Reads a file that is no link, up to the size that was counted."""
  handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
  with os.fdopen(handle, 'rb') as file:
    return file.read(size)


def _unpacked(archive: zipfile.ZipFile, name: str, size: int) -> bytes:
  """Reads an entry, never more than it says it has."""
  try:
    with archive.open(name) as file:
      data = file.read(size + 1)
  except Exception as error:  # any bytes at all may stand there
    raise InvalidSubmission(
      f'{name[:80]} cannot be unpacked: {error}', 'table'
    ) from error
  if len(data) != size:
    raise InvalidSubmission(f'{name[:80]} is not {size} bytes long', 'table')
  return data
