"""Reads the files that finished stages left in the work directory.

A damaged file (full disk, killed process) is reported, renamed `*.damaged` and made
again: it must not end a run. A file with records of another version of jaxagent that
this one cannot read is left as it is and ends the run with one line.
"""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Callable
from typing import Any

from jaxagent import records
from jaxagent.errors import UserError

_DAMAGE = (
  ValueError,
  LookupError,
  TypeError,
  AttributeError,
  RecursionError,
)


def kept_json(
  path: pathlib.Path, read: Callable[[Any], Any] = lambda value: value
) -> Any:
  """Returns `read` of the JSON in `path`; None if it is missing or damaged.

  read: turns the JSON value into what the caller wants; where it raises
    ValueError, LookupError, TypeError or AttributeError the file counts as
    damaged.

  Raises UserError where a record is of a kind or version that is not known.
  """
  if not path.exists():
    return None
  try:
    return read(json.loads(path.read_text(encoding='utf-8')))
  except records.UnknownRecord as error:
    raise _unknown(path, error) from error
  except _DAMAGE as error:
    _set_aside(path, f'{_said(error)}; it is made again')
    return None


def mend_lines(path: pathlib.Path, read: Callable[[Any], Any]) -> list[Any]:
  """Returns `read` of each line of a file of JSON lines; [] if there is no file.

  A file with a damaged line is renamed `*.damaged`; its whole lines are written anew.

  read: as in `kept_json`.

  Raises UserError where a record is of a kind or version that is not known.
  """
  if not path.exists():
    return []
  found, good, bad = [], [], []
  for number, line in enumerate(path.read_bytes().splitlines(), 1):
    try:
      found.append(read(json.loads(line)))
      good.append(line)
    except records.UnknownRecord as error:
      raise _unknown(f'{path}:{number}', error) from error
    except _DAMAGE as error:
      bad.append(f'line {number}: {_said(error)}')
  if not bad:
    return found
  temporary = path.with_suffix('.tmp')
  temporary.write_bytes(b''.join(line + b'\n' for line in good))
  _set_aside(path, f'{bad[0]}; the {len(good)} whole records are kept')
  os.replace(temporary, path)
  return found


def trajectories(value: Any) -> list[records.Evaluated]:
  """Reads the trajectories of an evaluation; raises where one is damaged."""
  if not isinstance(value, list) or not value:
    raise ValueError('no list of trajectories')
  return [records.Evaluated.from_json(one) for one in value]


def evaluated(work: pathlib.Path, label: str) -> list[records.Evaluated]:
  """Returns the stored trajectories of `label` of the run in `work`.

  Raises UserError where there are none.
  """
  path = work / 'eval' / f'{label}.json'
  if (found := kept_json(path, trajectories)) is None:
    raise UserError(
      f'{path} is missing or was damaged: rerun the same command to make it again.'
    )
  return found


def seconds(value: Any) -> dict[str, float]:
  """Reads wall seconds by stage."""
  return {str(stage): float(wall) for stage, wall in value.items()}


def texts(value: Any) -> list[str]:
  """Reads a list of texts."""
  if not isinstance(value, list) or not all(isinstance(t, str) for t in value):
    raise ValueError('no list of texts')
  return value


def _unknown(place: Any, error: records.UnknownRecord) -> UserError:
  return UserError(f'{place}: {error}; or give --work_dir=NEW.')


def _set_aside(path: pathlib.Path, what: str) -> None:
  aside = path.with_name(path.name + '.damaged')
  os.replace(path, aside)
  print(f'{path} is damaged ({what}); set aside as {aside.name}.', flush=True)


def _said(error: Exception) -> str:
  return f'{type(error).__name__}: {error}'
