"""Records as JSON objects and back, by their kind and version.

An object names its class by `kind`, and the version of its fields by `format`
(`version` is the policy's, in a trace). Both are missing in files of older runs: they
are then 'step' and 1.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import functools
import sys
import types as python_types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from jaxagent.files import modules
from jaxagent.types import Record

KIND, FORMAT = 'kind', 'format'
_OLDEST = 'step'  # the kind of what names none
# Kinds of recipes, whose classes are imported when a file has the first one.
_OF_RECIPES = {
  'idea': 'jaxagent.recipes.ideator.record:IdeaRecord',
  'implementer_step': 'jaxagent.recipes.ideator.record:ImplementerStepRecord',
}
# Keys that stand beside a record's own in files (`trajectory`, `audit.seal`).
_BESIDE = (
  KIND, FORMAT, 'prompt_id', 'update', 'version', 'reward', 'prompt_tokens', 'tokens',
  'finish_reason', 'state', 'workspace_id', 'submission', 'prompt', 'answer_s',
  'edited', 'private', 'whole', 'parent', 'steps', 'prev_hash', 'hash', 'of',
)  # fmt: skip
_LARGEST = 10**300  # of a whole number that stands for a float
_DEEPEST = 64  # lists and objects within one another

R = typing.TypeVar('R', bound=type[Record])
_known: dict[str, type[Record]] = {}
_files: dict[str, str] = {}  # KIND -> the file that its class stands in


class UnknownRecord(ValueError):
  """A record's kind or version is not known here; it is not damaged."""


class DamagedRecord(ValueError):
  """A record lacks a field, or holds one of a wrong type; the message names it."""


def register(record: R) -> R:
  """Makes a subclass of `types.Record` known by its KIND; a class decorator.

  Raises ValueError where it is no frozen dataclass with a KIND and VERSION, where
  another class has its KIND, where DERIVED_FROM names no field, or where a field has
  a type that cannot be kept.
  """
  name = getattr(record, '__qualname__', repr(record))
  where = f'record {name}'
  if not (isinstance(record, type) and issubclass(record, Record)):
    raise ValueError(f'{where} must be a subclass of jaxagent.types.Record.')
  own = record.__dict__.get('__dataclass_params__')
  if own is None or not own.frozen:
    raise ValueError(f'{where} must be a dataclass with frozen=True.')
  if not (isinstance(record.KIND, str) and record.KIND):
    raise ValueError(f'{where}: KIND={record.KIND!r} must be a name.')
  version = record.VERSION
  if not isinstance(version, int) or isinstance(version, bool) or version < 1:
    raise ValueError(f'{where}: VERSION={version!r} must be 1 or more.')
  forms = _forms(record)  # type: ignore[arg-type]  # a class is hashable
  if taken := [field for field in forms if field in _BESIDE]:
    raise ValueError(
      f'{where}: fields cannot be called {", ".join(taken)}: files have that of '
      'every record; choose other names.'
    )
  if unknown := sorted(set(record.DERIVED_FROM) - set(forms)):
    raise ValueError(
      f'{where}: DERIVED_FROM names {", ".join(unknown)}; its fields are '
      f'{", ".join(forms)}.'
    )
  file = _file_of(record, sys._getframe(1).f_globals)
  if before := _other_with_kind(record, file):
    raise ValueError(
      f'{where}: KIND={record.KIND!r} is that of {before}; choose another.'
    )
  _known[record.KIND] = record
  _files[record.KIND] = file
  return record


def _file_of(record: type[Record], caller: Mapping[str, Any]) -> str:
  """Returns the file that a class stands in, '' where that is not known.

  caller: globals of who registers it; of a file that is run, and no module, they alone
  name the file.
  """
  if caller.get('__name__') == record.__module__:
    return str(caller.get('__file__', ''))
  return str(getattr(sys.modules.get(record.__module__), '__file__', ''))


def _other_with_kind(record: type[Record], file: str) -> str:
  """Returns the place of another class that has a record's KIND, '' if none has.

  A file that is read twice, as a config's is, makes its classes twice.
  """
  own = f'{record.__module__}:{record.__qualname__}'
  reserved = _OF_RECIPES.get(record.KIND, own)
  there = _known.get(record.KIND)
  if there is not None:
    same = f'{there.__module__}:{there.__qualname__}' == own
    again = there.__qualname__ == record.__qualname__ and (
      bool(file) and file == _files.get(record.KIND)
    )
    return '' if same or again else modules.place_of(there)
  return '' if reserved == own else reserved


def kinds() -> set[str]:
  """Returns the KINDs that are known or kept for a recipe of the package."""
  return {*_known, *_OF_RECIPES}


def load(place: str) -> type[Record]:
  """Imports and registers the record class 'module:Class' or 'FILE.py:Class'.

  Raises ValueError, naming module and class, where there is none such.
  """
  module, _, name = place.rpartition(':')
  try:
    record = getattr(modules.imported(module), name)
  except Exception as error:  # noqa: BLE001 - a module may raise anything
    raise ValueError(
      f'record {place!r} is not there ({type(error).__name__}: {error}); give '
      'MODULE:CLASS or FILE.py:CLASS.'
    ) from error
  return register(record)


def place_of(record: type[Record]) -> str:
  """Returns what `load` finds a class by."""
  module = sys.modules[record.__module__]
  where = modules.file_of(module) or record.__module__
  return f'{where}:{record.__qualname__}'


def to_json(record: Record) -> dict[str, Any]:
  """Returns the JSON object of a record.

  Raises UnknownRecord where its class is not registered, DamagedRecord where a
  field holds what it must not.
  """
  cls = type(record)
  if _known.get(cls.KIND) is not cls:
    raise UnknownRecord(
      f'{cls.__qualname__} is not a registered record; decorate it with '
      'jaxagent.records.register.'
    )
  return {
    KIND: cls.KIND,
    FORMAT: cls.VERSION,
    **fields_to_json(record, f'{cls.KIND} record'),
    # Files have it of every kind.
    'is_edit': record.is_edit,
  }


def from_json(value: Any, *, whole: bool = False) -> Record:
  """Returns the record of a JSON object; what is no field of it is ignored.

  whole: every field that its reward is derived from must be there, but for those
    that may be null, or left out for their default, and are then.

  Raises UnknownRecord for a kind or version that is not known, DamagedRecord where
  a field is missing or has a wrong type.
  """
  cls, fields = _class_of(value)
  what = f'{cls.KIND} record'
  needed = [name for name in cls.DERIVED_FROM if whole and _is_firm(cls, name)]
  return cls(**fields_from_json(cls, fields, what, needed))


def _class_of(value: Any) -> tuple[type[Record], dict[str, Any]]:
  """The class of a JSON object, and its fields as the class has them now."""
  need_object(value, 'record')
  kind = value.get(KIND, _OLDEST)
  if isinstance(kind, str) and kind in _OF_RECIPES and kind not in _known:
    load(_OF_RECIPES[kind])
  if not isinstance(kind, str) or kind not in _known:
    raise UnknownRecord(
      f'its kind {_short(kind)} is not known, but {", ".join(sorted(_known))}; '
      'read it with the version of jaxagent, or the recipe, that wrote it'
    )
  cls, version = _known[kind], value.get(FORMAT, 1)
  if version == cls.VERSION and type(version) is int:
    return cls, value
  fields = None
  if type(version) is int and 0 < version < cls.VERSION:
    fields = cls.upgraded(dict(value), version)
  if fields is None:
    raise UnknownRecord(
      f'its kind {kind!r} has format {_short(version)}, and known is '
      f'{cls.VERSION}; read it with the version of jaxagent, or the recipe, that '
      'wrote it'
    )
  return cls, fields


def need_object(value: Any, what: str) -> None:
  """Raises DamagedRecord where a value is no JSON object."""
  if not isinstance(value, dict):
    raise DamagedRecord(f'{what}: {type(value).__name__} instead of an object')


def fields_to_json(
  record: Any, what: str, skip: Iterable[str] = ()
) -> dict[str, Any]:
  """Returns the fields of a dataclass as JSON values, without those of `skip`.

  what: how an error names the record.
  """
  found = {}
  for name, (field, form) in _forms(type(record), frozenset(skip)).items():  # type: ignore[arg-type]
    value = getattr(record, name)
    if field.metadata.get('optional') and value in (_default(field), None):
      continue
    found[name] = _checked(form.write, value, form, what, name)
  return found


def fields_from_json(
  cls: type,
  value: Mapping[str, Any],
  what: str,
  needed: Iterable[str] = (),
  skip: Iterable[str] = (),
) -> dict[str, Any]:
  """Returns the arguments of a dataclass that a JSON object holds.

  needed: fields that must be there, beside those without a default.
  """
  forms = _forms(cls, frozenset(skip))
  needed = {*needed} | {n for n, (f, _) in forms.items() if _is_required(f)}
  if missing := [name for name in forms if name in needed - set(value)]:
    raise DamagedRecord(f'{what}: fields are missing: {", ".join(missing)}')
  return {
    name: _checked(form.read, value[name], form, what, name)
    for name, (_, form) in forms.items()
    if name in value
  }


def _checked(
  convert: Callable[[Any], Any], value: Any, form: _Form, what: str, name: str
) -> Any:
  try:
    return convert(value)
  except (ValueError, TypeError, OverflowError, RecursionError):
    raise DamagedRecord(
      f'{what}: {name} is {_short(value)}; it must be {form.words}'
    ) from None


def _short(value: Any) -> str:
  try:
    return ascii(value)[:80]
  except (
    ValueError,
    RecursionError,
  ):  # an int of thousands of digits, a deep list
    return f'a {type(value).__name__} that cannot be shown'


def _is_required(field: dataclasses.Field) -> bool:
  missing = dataclasses.MISSING
  return field.default is missing and field.default_factory is missing


def _is_firm(cls: type, name: str) -> bool:
  """Whether a field is always written: not null, nor left out where it has a default."""
  field = _forms(cls)[name][0]
  return not field.metadata.get('optional') and _default(field) is not None


def _default(field: dataclasses.Field) -> Any:
  if field.default_factory is not dataclasses.MISSING:
    return field.default_factory()
  return field.default


@dataclasses.dataclass(frozen=True)
class _Form:
  """How values of a type are kept; both raise where a value is none of it."""

  words: str
  write: Callable[[Any], Any]
  read: Callable[[Any], Any]


@functools.cache
def _forms(
  cls: type, skip: frozenset[str] = frozenset()
) -> dict[str, tuple[dataclasses.Field, _Form]]:
  """Field -> how it is kept; raises ValueError for a type that cannot be."""
  hints = typing.get_type_hints(cls)
  return {
    field.name: (field, _form_of(hints[field.name], f'{cls.__name__}.{field.name}'))
    for field in dataclasses.fields(cls)
    if field.name not in skip
  }  # fmt: skip


def _form_of(hint: Any, where: str) -> _Form:
  origin, inner = typing.get_origin(hint), typing.get_args(hint)
  if hint in _PLAIN:
    return _PLAIN[hint]
  if isinstance(hint, type) and issubclass(hint, enum.Enum):
    words = f'one of {", ".join(str(one.value) for one in hint)}'
    return _Form(words, lambda v: hint(v).value, hint)
  if origin in (typing.Union, python_types.UnionType):
    others = [i for i in inner if i is not type(None)]
    if type(None) in inner and len(others) == 1:
      return _either_or_none(_form_of(others[0], where))
  if origin is tuple and len(inner) == 2 and inner[1] is Ellipsis:
    one = _form_of(inner[0], where)
    return _Form(
      f'a list, each {one.words}',
      lambda v: [one.write(i) for i in _list(v)],
      lambda v: tuple(one.read(i) for i in _list(v)),
    )
  if origin in (dict, collections.abc.Mapping) and inner[0] is str:
    one = _form_of(inner[1], where)
    return _Form(
      f'an object, each value {one.words}',
      lambda v: {_text(k): one.write(i) for k, i in _object(v).items()},
      lambda v: {_text(k): one.read(i) for k, i in _object(v).items()},
    )
  raise ValueError(
    f'{where}: {hint} cannot be kept; use str, bool, int, float, an enum, Any '
    '(JSON), tuple[T, ...], Mapping[str, T], or one of them | None.'
  )


def _either_or_none(one: _Form) -> _Form:
  return _Form(
    f'{one.words} or null',
    lambda v: None if v is None else one.write(v),
    lambda v: None if v is None else one.read(v),
  )


def _text(value: Any) -> str:
  if not isinstance(value, str):
    raise TypeError
  return str(value)  # of a subclass, the text alone


def _flag(value: Any) -> bool:
  if not isinstance(value, bool | np.bool_):
    raise TypeError
  return bool(value)


def _whole(value: Any) -> int:
  if isinstance(value, bool) or not isinstance(value, int | np.integer):
    raise TypeError
  if abs(value := int(value)) > _LARGEST:
    raise ValueError
  return value


def _number(value: Any) -> int | float:
  if isinstance(value, float | np.floating):
    return float(value)
  return _whole(value)


def _list(value: Any) -> Any:
  if not isinstance(value, list | tuple):
    raise TypeError
  return value


def _object(value: Any) -> Any:
  if not isinstance(value, Mapping):
    raise TypeError
  return value


def _any(value: Any, deep: int = 0) -> Any:
  if deep > _DEEPEST:
    raise ValueError
  if value is None or isinstance(value, bool):
    return value
  if isinstance(value, str):
    return _text(value)
  if isinstance(value, list | tuple):
    return [_any(one, deep + 1) for one in value]
  if isinstance(value, Mapping):
    return {_text(k): _any(one, deep + 1) for k, one in value.items()}
  return _number(value)


_PLAIN = {
  str: _Form('a text', _text, _text),
  bool: _Form('true or false', _flag, _flag),
  int: _Form('a whole number', _whole, _whole),
  float: _Form('a number', _number, _number),
  Any: _Form('a JSON value', _any, _any),
}
