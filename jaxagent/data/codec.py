"""Records <-> JSON-able values, for checkpoints of host-side state.

Handles None, bool, int, float (NaN and infinities too), str, bytes, lists,
tuples, dicts with string keys, NumPy arrays and scalars, paths and the frozen
dataclasses and enums of `jaxagent.types`, and registered records as
`jaxagent.records` writes them. Anything else is a TypeError that names the place,
because a checkpoint that drops a field is not a checkpoint.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import pathlib
import zlib
from typing import Any

import numpy as np

from jaxagent import records, types

_TAG = '__kind__'


def encode(value: Any, where: str = 'value') -> Any:
  """Returns a JSON-able form of `value`.

  Raises:
    TypeError: for a type that `decode` could not rebuild; names `where`.
    records.DamagedRecord, records.UnknownRecord: as `records.to_json`.
  """
  if (
    value is None
    or isinstance(value, bool | str)
    and type(value)
    in (
      bool,
      str,
    )
  ):
    return value
  if isinstance(value, enum.Enum):
    return {_TAG: 'enum', 'name': type(value).__name__, 'value': value.value}
  if isinstance(value, np.ndarray):
    return encode_array(value)
  if isinstance(value, np.generic):
    return encode(value.item(), where)
  if isinstance(value, int):
    return int(value)
  if isinstance(value, float):
    if np.isfinite(value):
      return float(value)
    return {_TAG: 'float', 'value': repr(float(value))}
  if isinstance(value, str):
    return str(value)
  if isinstance(value, bytes):
    return {_TAG: 'bytes', 'value': base64.b64encode(value).decode()}
  if isinstance(value, pathlib.PurePath):
    return {_TAG: 'path', 'value': str(value)}
  return _encode_compound(value, where)


def _encode_compound(value: Any, where: str) -> Any:
  if isinstance(value, list):
    return [encode(v, f'{where}[{i}]') for i, v in enumerate(value)]
  if isinstance(value, tuple):
    items = [encode(v, f'{where}[{i}]') for i, v in enumerate(value)]
    return {_TAG: 'tuple', 'value': items}
  if isinstance(value, dict):
    if not all(isinstance(k, str) for k in value):
      raise TypeError(f'{where}: only dicts with string keys are saved.')
    plain = {k: encode(v, f'{where}.{k}') for k, v in value.items()}
    # Keys may be a policy's words, such as file names.
    return {_TAG: 'dict', 'value': plain} if _TAG in value else plain
  if isinstance(value, types.Record):
    return {_TAG: 'kept', 'value': encode(records.to_json(value), where)}
  name = type(value).__name__
  if dataclasses.is_dataclass(value) and getattr(types, name, None) is type(
    value
  ):
    fields = {
      f.name: encode(getattr(value, f.name), f'{where}.{f.name}')
      for f in dataclasses.fields(value)
    }
    return {_TAG: 'record', 'name': name, 'fields': fields}
  raise TypeError(
    f'{where}: cannot save a {name}. Use JSON values, NumPy arrays, bytes, '
    'paths, or records of jaxagent.types.'
  )


def decode(value: Any) -> Any:
  """Inverse of `encode`.

  Raises records.UnknownRecord where a record is of a kind or version that is not
  known.
  """
  if isinstance(value, list):
    return [decode(v) for v in value]
  if not isinstance(value, dict):
    return value
  kind = value.get(_TAG)
  if kind is None:
    return _decode_dict(value)
  if kind == 'dict':
    return _decode_dict(value['value'])
  if kind == 'array':
    return decode_array(value)
  if kind == 'float':
    return float(value['value'])
  if kind == 'bytes':
    return base64.b64decode(value['value'])
  if kind == 'path':
    return pathlib.Path(value['value'])
  if kind == 'tuple':
    return tuple(decode(v) for v in value['value'])
  if kind == 'enum':
    return getattr(types, value['name'])(value['value'])
  if kind == 'record':
    fields = {k: decode(v) for k, v in value['fields'].items()}
    return getattr(types, value['name'])(**_migrated(fields))
  if kind == 'kept':
    return records.from_json(decode(value['value']))
  raise ValueError(f'unknown kind {kind!r} in saved state.')


def _migrated(fields: dict[str, Any]) -> dict[str, Any]:
  """The fields of a saved Executed, Turn or Sample as they are now.

  Before there were records each held a dict `info`, without outcome and seconds and,
  after a completion, with its `finish_reason`.
  """
  if 'info' not in fields:
    return fields
  fields = dict(fields)
  info = dict(fields.pop('info'))
  reason = info.pop('finish_reason', '')
  if 'start' in fields:
    fields['finish_reason'] = reason
  own = {'outcome': fields['outcome'].value, 'exec_s': fields['exec_s']}
  return fields | {'record': records.from_json(own | info) if info else None}


def _decode_dict(value: dict[str, Any]) -> dict[str, Any]:
  return {k: decode(v) for k, v in value.items()}


def encode_array(x: np.ndarray) -> dict[str, Any]:
  """A compressed, exact, JSON-able form of an array (no object arrays)."""
  if x.dtype.hasobject:
    raise TypeError('object arrays cannot be saved; use a list.')
  raw = zlib.compress(np.ascontiguousarray(x).tobytes(), 1)
  return {
    _TAG: 'array',
    'dtype': x.dtype.str,
    'shape': list(x.shape),
    'data': base64.b64encode(raw).decode(),
  }


def decode_array(value: dict[str, Any]) -> np.ndarray:
  """Inverse of `encode_array`; the result is writable."""
  raw = zlib.decompress(base64.b64decode(value['data']))
  x = np.frombuffer(raw, dtype=np.dtype(value['dtype'])).copy()
  return x.reshape(value['shape'])
