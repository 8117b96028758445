"""Where a run's own kinds of records come from: `records.json` of its work directory.

So that `jaxagent.audit` and other readers find the class of a recipe outside of the
package. A file that lies in the work directory itself is not imported: reading a run
does not execute code that came with it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib

from jaxagent.records import codec
from jaxagent.types import Record

FILE = 'records.json'


def note(work: pathlib.Path, record: type[Record]) -> None:
  """Writes down where a record's class is found; not of the package's own.

  Raises ValueError where the work directory is that of another recipe's records.
  """
  path = work / FILE
  if (kinds := _kinds(path)) and record.KIND not in kinds:
    raise ValueError(
      f'work directory {work} has records of kind {", ".join(kinds)}, of another recipe '
      f'than that of kind {record.KIND}. Give --work_dir=NEW, or run the former recipe.'
    )
  if record.__module__.split('.')[0] == 'jaxagent':
    return
  text = json.dumps({record.KIND: codec.place_of(record)}, indent=1)
  temporary = path.with_suffix('.tmp')
  temporary.write_text(text + '\n')
  os.replace(temporary, path)


def _kinds(path: pathlib.Path) -> list[str]:
  """Returns the kinds in a file of notes; none where it is missing or damaged."""
  try:
    return list(json.loads(path.read_text(encoding='utf-8')).keys())
  except (OSError, ValueError, AttributeError, RecursionError):
    return []


def load_noted(run: pathlib.Path) -> list[str]:
  """Registers the classes that a run, or the run around a folder or file, names.

  Returns their places. Raises ValueError where the file is damaged, or a place is
  not there or lies within the run.
  """
  run = run.resolve()
  path = next(
    (f / FILE for f in (run, *run.parents) if (f / FILE).is_file()), None
  )
  if path is None:
    return []
  places = _read(path)
  for place in places:
    found = _file(place)
    if found is not None and path.parent in found.parents:
      raise ValueError(
        f'{path} names {place}, which lies in the run itself and is not imported '
        f'unasked; if you trust it, give --record {place}.'
      )
    try:
      codec.load(place)
    except ValueError as error:
      raise ValueError(f'{path} names {place!r}: {error}') from error
  return places


def _read(path: pathlib.Path) -> list[str]:
  """Returns the places in a file of notes."""
  try:
    places = list(json.loads(path.read_text(encoding='utf-8')).values())
    if not all(isinstance(place, str) for place in places):
      raise ValueError('a place is no text')
  except (ValueError, AttributeError, RecursionError) as error:
    raise ValueError(
      f'{path} is damaged ({error}); name the records with --record MODULE:CLASS.'
    ) from error
  return places


def _file(place: str) -> pathlib.Path | None:
  """Returns file or folder of a place's module, without importing it."""
  module = place.rpartition(':')[0]
  if module.endswith('.py'):
    return pathlib.Path(module).expanduser().resolve()
  try:
    spec = importlib.util.find_spec(module.partition('.')[0])
  except (ImportError, ValueError):
    return None
  where = (
    [spec.origin, *(spec.submodule_search_locations or ())] if spec else []
  )
  files = [pathlib.Path(one).resolve() for one in where if one]
  return files[0] if files else None
