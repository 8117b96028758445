"""What finished stages left in the work directory, damaged or not.

A file that a full disk or a kill damaged is said, set aside beside itself
(`*.damaged`) and made again: it must not end a run.
"""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Callable, Iterable
from typing import Any

_DAMAGE = (ValueError, LookupError, TypeError, AttributeError)


def kept_json(
  path: pathlib.Path, read: Callable[[Any], Any] = lambda value: value
) -> Any:
  """`read` of the JSON in `path`; None where there is none to be used.

  read: turns the JSON value into what the caller wants; where it raises
    ValueError, LookupError, TypeError or AttributeError the file counts as
    damaged.
  """
  if not path.exists():
    return None
  try:
    return read(json.loads(path.read_text(encoding='utf-8')))
  except _DAMAGE as error:
    _set_aside(path, f'{_said(error)}; it is made again')
    return None


def mend_lines(path: pathlib.Path, keys: Iterable[str]) -> None:
  """Leaves only whole records in a file of JSON lines.

  keys: what a record must hold. A file with another line is set aside as it
  is, and what is whole in it written anew.
  """
  if not path.exists():
    return
  good, bad = [], []
  for number, line in enumerate(path.read_bytes().splitlines(), 1):
    try:
      _check_record(json.loads(line), keys)
      good.append(line)
    except _DAMAGE as error:
      bad.append(f'line {number}: {_said(error)}')
  if not bad:
    return
  temporary = path.with_suffix('.tmp')
  temporary.write_bytes(b''.join(line + b'\n' for line in good))
  _set_aside(path, f'{bad[0]}; the {len(good)} whole records are kept')
  os.replace(temporary, path)


def trajectories(value: Any) -> list[dict]:
  """The records of `evaluate_policy`; raises where one is not whole."""
  if not isinstance(value, list) or not value:
    raise ValueError('no list of trajectories')
  for record in value:
    _check_record(record, ('task', 'index', 'split', 'score', 'steps'))
  return value


def seconds(value: Any) -> dict[str, float]:
  """Wall seconds by stage."""
  return {str(stage): float(wall) for stage, wall in value.items()}


def texts(value: Any) -> list[str]:
  """A list of texts."""
  if not isinstance(value, list) or not all(isinstance(t, str) for t in value):
    raise ValueError('no list of texts')
  return value


def _check_record(record: Any, keys: Iterable[str]) -> None:
  if not isinstance(record, dict):
    raise ValueError(f'{type(record).__name__} instead of an object')
  missing = [key for key in keys if key not in record]
  if missing:
    raise ValueError(f'without {", ".join(missing)}')


def _set_aside(path: pathlib.Path, what: str) -> None:
  aside = path.with_name(path.name + '.damaged')
  os.replace(path, aside)
  print(f'{path} is damaged ({what}); set aside as {aside.name}.', flush=True)


def _said(error: Exception) -> str:
  return f'{type(error).__name__}: {error}'
