"""Whether a recipe's class of records gives rewards, before any work."""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import types as python_types
import typing
from typing import Any

from jaxagent.types import Outcome, Record

# What an execution may come to: outcome, score, whether the response could be acted on.
_ENDS = (
  (Outcome.OK, 0.9, True),
  (Outcome.SCRIPT_ERROR, None, True),
  (Outcome.INVALID_FORMAT, None, False),
)


def complaint(record: type[Record]) -> str:
  """Returns why no record of a class can have a reward, '' where one may.

  Derives the rewards of made-up records. As no one knows what their fields may hold
  together, the class is refused where none of them has a reward or a reason for having
  none, or where its code uses a name that is not defined.
  """
  problems = []
  for outcome, score, valid in _ENDS:
    try:
      made = _made(record, outcome, score, valid)
    except Exception:  # a check of its own fields that these do not pass
      return ''
    try:
      made.earned()
    except NameError as error:
      return f'{error}'
    except Exception as error:  # a recipe's own class may raise anything
      problems.append(f'{type(error).__name__}: {error}')
  return problems[0] if len(problems) == len(_ENDS) else ''


def _made(
  record: type[Record], outcome: Outcome, score: float | None, valid: bool
) -> Record:
  """Returns a record whose fields without a default are made up."""
  hints = typing.get_type_hints(record)
  given: dict[str, Any] = {
    'outcome': outcome,
    'score_after': score,
    'valid_action': valid,
  }
  missing = dataclasses.MISSING
  for number, field in enumerate(dataclasses.fields(record)):
    required = field.default is missing and field.default_factory is missing
    if required and field.name not in given:
      given[field.name] = _value(hints[field.name], number)
  return record(**given)


def _value(hint: Any, number: int) -> Any:
  """Returns a value of a type; numbers differ, so that no difference is zero."""
  origin, inner = typing.get_origin(hint), typing.get_args(hint)
  if origin in (typing.Union, python_types.UnionType):
    return _value(next(i for i in inner if i is not type(None)), number)
  if origin is tuple:
    return (_value(inner[0], number),)
  if origin in (dict, collections.abc.Mapping):
    return {'name': _value(inner[1], number)}
  if isinstance(hint, type) and issubclass(hint, enum.Enum):
    return next(iter(hint))
  return {
    bool: True,
    int: number + 1,
    float: 0.1 + number / 8,
    str: 'text',
  }.get(hint)
