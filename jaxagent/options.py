"""Options of a package: a small frozen dataclass with one field for each.

    @dataclasses.dataclass(frozen=True)
    class Ideas(Section):
      kept: int = option(10, help='Ideas kept of those proposed.')
      proposed: int = option(100, help='Ideas proposed for a task.')

      relations = (
        relation(
          'kept',
          'proposed',
          holds=lambda kept, proposed: kept <= proposed,
          say='{at}kept={kept} is more than {at}proposed={proposed}; lower it.',
        ),
      )

A field holds all that is known of its option: default, choices or bounds, unit,
help, check. The config, its table (`--config_help`, docs/config.md) and every
refusal are made from it. The type is that of the default.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import json
import math
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

_BOUNDS = {
  'above': (lambda value, bound: value > bound, 'above', '>'),
  'least': (lambda value, bound: value >= bound, 'at least', '>='),
  'below': (lambda value, bound: value < bound, 'below', '<'),
  'most': (lambda value, bound: value <= bound, 'at most', '<='),
}
_MOST_SHOWN = 200  # characters of a dictionary in an error


@dataclasses.dataclass(frozen=True)
class Option:
  """Everything known of one option; see `option`."""

  default: Any
  kind: type
  help: str
  choices: tuple[str, ...] = ()
  bounds: Mapping[str, float] = dataclasses.field(default_factory=dict)
  unit: str = ''
  example: str = ''
  check: Callable[[str, Any], str] | None = None
  advanced: bool = False
  optional: bool = False
  is_path: bool = False

  def complaint(self, key: str, value: Any) -> str:
    """Returns what is wrong with a value in one sentence, '' if nothing is."""
    if isinstance(value, float) and not math.isfinite(value):
      return f'{key}={value!r} must be finite; give a number.'
    checks = [_CHECKS[self.kind], _own_check]
    if self.kind in (str, tuple):  # the option's own check is more precise
      checks.reverse()
    return next(filter(None, (check(self, key, value) for check in checks)), '')

  @property
  def shown_default(self) -> str:
    """The default as the table has it, '' of an option that may be missing."""
    return '' if self.default is None else repr(self.default)

  @property
  def accepts(self) -> str:
    """Choices, or type and bounds, with the unit."""
    if self.choices:
      words = ' | '.join(self.choices)
      return f'any of {words}' if self.kind is tuple else words
    words = {
      bool: 'True | False',
      int: 'whole number',
      float: 'number',
      str: 'path' if self.is_path else 'text',
      tuple: 'tuple of texts',
      dict: 'dictionary',
    }[self.kind]
    for how, bound in self.bounds.items():
      number = bound if self.kind is int else f'{bound:g}'
      words += f' {_BOUNDS[how][2]} {number}'
    return f'{words} [{self.unit}]' if self.unit else words


def option(
  default: Any,
  *,
  help: str,
  choices: Sequence[str] = (),
  unit: str = '',
  above: float | None = None,
  least: float | None = None,
  below: float | None = None,
  most: float | None = None,
  example: str = '',
  check: Callable[[str, Any], str] | None = None,
  kind: type | None = None,
  advanced: bool = False,
  optional: bool = False,
  is_path: bool = False,
) -> Any:
  """Makes a field of a `Section`.

  Args:
    default: a bool, int, float, str, tuple of texts or dict; its type is the
      option's, unless `kind` gives it. A whole number is at least 1 unless
      `least` says otherwise.
    help: one line for the table; says which value turns the option off.
    choices: the texts it may be, or of a tuple those that it may hold.
    unit: of a number, such as 's' or 'tokens'.
    above, least, below, most: bounds of a number.
    example: a text of a tuple. With it, texts may repeat; without it they may
      not.
    check: (key, value) -> what is wrong in one sentence, '' if nothing is. That
      of a dictionary gets the dictionary and may raise ValueError instead.
    advanced: for experts; shown in the second part of the table.
    optional: may be missing in a config.
    is_path: a file or folder, in which `~` stands for a home.
  """
  kind = kind or type(default)
  if kind not in _CHECKS:
    raise TypeError(
      f'option({default!r}) is of type {kind.__name__}; choose one of: '
      f'{", ".join(k.__name__ for k in _CHECKS)}.'
    )
  if kind is int and least is None:
    least = 1
  given = {'above': above, 'least': least, 'below': below, 'most': most}
  made = Option(
    default=default,
    kind=kind,
    help=help,
    choices=tuple(choices),
    bounds={how: bound for how, bound in given.items() if bound is not None},
    unit=unit,
    example=example,
    check=check,
    advanced=advanced,
    optional=optional,
    is_path=is_path,
  )
  return _field(made)


def with_default(section: type[Section], name: str, default: Any, **changes):
  """Makes a field like `section`'s `name` with another default.

  changes: other attributes of `Option` that differ.
  """
  before = section.options()[name]
  return _field(dataclasses.replace(before, default=default, **changes))


def _field(made: Option) -> Any:
  how: dict[str, Any] = (
    {'default_factory': lambda: dict(made.default)}
    if made.kind is dict
    else {'default': made.default}
  )
  return dataclasses.field(**how, metadata={'option': made})


@dataclasses.dataclass(frozen=True)
class Relation:
  """A check between options of one section; see `relation`."""

  names: tuple[str, ...]
  holds: Callable[..., Any]
  say: str
  stage: str = 'config'


def relation(
  *names: str, holds: Callable[..., Any], say: str, stage: str = 'config'
) -> Relation:
  """Makes a check between options of one section.

  Args:
    names: the options it reads.
    holds: their values -> whether they fit each other.
    say: the complaint; `{name}` is a value, `{at}` what stands before a key
      ('config.rl.'), `{section}` the class.
    stage: 'config', or 'run' for what `--dry_run` may plan without.
  """
  return Relation(names, holds, say, stage)


@dataclasses.dataclass(frozen=True)
class Row:
  """One line of the table of options."""

  key: str
  default: str
  accepts: str
  help: str
  advanced: bool


@dataclasses.dataclass(frozen=True)
class Section:
  """Base of a package's options: validates itself and lists its rows.

  A subclass is a frozen dataclass whose fields are made by `option`; fields
  without it are no options. Making one raises ValueError for what is refused.
  `relations` of all base classes apply. `is_open`: other keys are allowed.
  `free`: options that a resumed run may change.
  """

  relations: ClassVar[tuple[Relation, ...]] = ()
  is_open: ClassVar[bool] = False
  free: ClassVar[tuple[str, ...]] = ()

  def __post_init__(self):
    values = {
      name: value
      for name, made in self.options().items()
      if (value := getattr(self, name)) is not None or not made.optional
    }
    if complaint := (
      self.options_complaint(values) or self.relations_complaint(values)
    ):
      raise ValueError(complaint)

  @classmethod
  def options(cls) -> dict[str, Option]:
    """Returns the options by name."""
    return {
      field.name: field.metadata['option']
      for field in dataclasses.fields(cls)
      if 'option' in field.metadata
    }

  @classmethod
  def defaults(cls) -> dict[str, Any]:
    """Returns the default of each option that a config begins with."""
    return {
      name: made.default
      for name, made in cls.options().items()
      if made.default is not None
    }

  @classmethod
  def of(cls, values: Any, **more: Any):
    """Makes the section from a mapping that holds at least its options.

    more: fields that are no options, or override one. Raises ValueError.
    """
    given = {}
    for name, made in cls.options().items():
      if name in values and name not in more:
        value = values[name]
        if made.kind is dict:
          value = as_dict(value)
        given[name] = tuple(value) if isinstance(value, list) else value
    return cls(**given, **more)

  @classmethod
  def rows(cls, at: str = '') -> list[Row]:
    """Returns the options' lines of the table; `at` stands before each name."""
    return [
      Row(f'{at}{name}', o.shown_default, o.accepts, o.help, o.advanced)
      for name, o in cls.options().items()
    ]

  @classmethod
  def options_complaint(cls, values: Mapping[str, Any], at: str = '') -> str:
    """Returns the first complaint about a single value, '' if there is none."""
    for name, made in cls.options().items():
      if name in values:
        if complaint := made.complaint(f'{at}{name}', values[name]):
          return complaint
      elif not made.optional:
        # A command line sets only what a config has.
        return (
          f'{at}{name} is missing; set it in the config file; its default is '
          f'{made.default!r}.'
        )
    return ''

  @classmethod
  def relations_complaint(
    cls,
    values: Mapping[str, Any],
    at: str = '',
    stage: str = 'config',
  ) -> str:
    """Returns the first complaint about values of this section together."""
    for rule in cls.all_relations():
      if rule.stage != stage:
        continue
      if any(name not in values for name in rule.names):
        continue
      found = {name: values[name] for name in rule.names}
      if not rule.holds(*found.values()):
        return rule.say.format(at=at, section=cls, **found)
    return ''

  @classmethod
  def all_relations(cls) -> Iterator[Relation]:
    """Yields the relations of the class and its bases, the bases' first."""
    for base in reversed(cls.__mro__):
      yield from base.__dict__.get('relations', ())


def unknown(at: str, name: str, known: Sequence[str]) -> str:
  """Returns the complaint about a key that is not there, with near matches."""
  near = difflib.get_close_matches(name, known, n=3)
  meant = f' Did you mean {" or ".join(near)}?' if near else ''
  return f'{at} has no {name!r}; it has: {", ".join(sorted(known))}.{meant}'


def must(holds: Callable[[Any], Any], words: str) -> Callable[[str, Any], str]:
  """Makes a check: 'KEY=VALUE words' of a value that `holds` does not accept."""
  return lambda key, value: '' if holds(value) else f'{key}={value!r} {words}'


def as_dict(value: Any) -> dict[str, Any]:
  """Returns an option that is a dictionary, or the text of one, as plain values.

  The text is JSON or a Python literal, as a command line has it; '' is {}.
  Raises ValueError, in one line, for anything else.
  """
  if isinstance(value, str):
    value = _parsed(value)
  if hasattr(value, 'to_dict'):
    value = value.to_dict()
  if value is None:
    return {}
  if not isinstance(value, Mapping):
    raise ValueError('no dictionary')
  return dict(value)


def _parsed(text: str) -> Any:
  if not text.strip():
    return {}
  for read in (json.loads, ast.literal_eval):
    try:
      return read(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
      continue
  raise ValueError('neither JSON nor a Python literal')


def shown(value: Any) -> str:
  """Returns a dictionary as an error shows it: on one line and not too long."""
  value = value.to_dict() if hasattr(value, 'to_dict') else value
  text = ' '.join(repr(value).split())
  return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + ' ...'


def is_http(address: Any) -> bool:
  """Returns whether it is a server's address without user name or query."""
  try:
    url = urllib.parse.urlsplit(str(address))
    secret = url.username is not None or url.query
    known = url.scheme in ('http', 'https') and url.hostname
    return bool(known and not secret)
  except ValueError:
    return False


def addresses(key: str, value: Any) -> str:
  """Checks a tuple of addresses of servers, perhaps empty."""
  if isinstance(value, (tuple, list)) and all(map(is_http, value)):
    return ''
  return (
    f'{key}={value!r} must be a tuple of addresses, such as '
    f"('http://127.0.0.1:8000',){_give(key, QUOTED.format('URL'))}."
  )


QUOTED = '"(\'{}\',)"'  # a tuple of one text, as a shell takes it


def _give(key: str, value: str) -> str:
  """Returns the remedy on the command line, where the key is a config's."""
  return f'; give --{key}={value}' if key.startswith('config.') else ''


def _own_check(made: Option, key: str, value: Any) -> str:
  if made.check is None or made.kind is dict:
    return ''
  return made.check(key, value)


def _check_bool(made: Option, key: str, value: Any) -> str:
  if isinstance(value, bool):
    return ''
  return f'{key}={value!r} must be True or False.'


def _check_int(made: Option, key: str, value: Any) -> str:
  least, most = made.bounds['least'], made.bounds.get('most')
  if type(value) is int and value >= least and (most is None or value <= most):
    return ''
  span = f'of {least} or more' if most is None else f'from {least} to {most}'
  return f'{key}={value!r} must be a whole number {span}{_give(key, "N")}.'


def _check_float(made: Option, key: str, value: Any) -> str:
  if is_finite(value):
    if all(_BOUNDS[how][0](value, b) for how, b in made.bounds.items()):
      return ''
  words = [f'{_BOUNDS[how][1]} {b:g}' for how, b in made.bounds.items()]
  inside = f' {" and ".join(words)}' if words else ''
  return f'{key}={value!r} must be a finite number{inside}{_give(key, "X")}.'


def is_finite(value: Any) -> bool:
  """Returns whether it is a number, no bool, that a float can hold."""
  if isinstance(value, bool) or not isinstance(value, (int, float)):
    return False
  try:
    return math.isfinite(value)
  except OverflowError:  # a whole number beyond the range of floats
    return False


def _check_str(made: Option, key: str, value: Any) -> str:
  if made.choices and value not in made.choices:
    return (
      f'{key}={value!r} is not known; choose one of: {", ".join(made.choices)}.'
    )
  if isinstance(value, str) and '\0' not in value:
    return ''
  kind = 'a text without NUL' if isinstance(value, str) else 'a text'
  return f'{key}={value!r} must be {kind}{_give(key, "TEXT")}.'


def _check_tuple(made: Option, key: str, value: Any) -> str:
  return (_check_texts if made.example else _check_names)(made, key, value)


def _check_names(made: Option, key: str, value: Any) -> str:
  if not isinstance(value, (tuple, list)):
    return f"{key}={value!r} must be a tuple such as ('wine',)."
  for i, name in enumerate(value):
    if not isinstance(name, str) or (made.choices and name not in made.choices):
      known = (
        f'; choose from: {", ".join(made.choices)}' if made.choices else ''
      )
      return f'{key}: {name!r} is not a known name{known}.'
    if name in value[:i]:
      return f'{key}: {name!r} is there twice; leave one out.'
  return ''


def _check_texts(made: Option, key: str, value: Any) -> str:
  if isinstance(value, (tuple, list)) and all(
    isinstance(text, str) and text for text in value
  ):
    return ''
  return (
    f'{key}={value!r} must be a tuple of texts, none empty, such as '
    f'({made.example!r},){_give(key, QUOTED.format("TEXT"))}.'
  )


def _check_dict(made: Option, key: str, value: Any) -> str:
  try:
    found = as_dict(value)
    return made.check(key, found) if made.check else ''
  except ValueError as error:
    example = f'--{key}="{made.example}"' if made.example else "{'name': 1}"
    return (
      f'{key}={shown(value)}: {error}; give a dictionary such as {example}, '
      'or {}.'
    )


_CHECKS: dict[type, Callable[[Option, str, Any], str]] = {
  bool: _check_bool,
  int: _check_int,
  float: _check_float,
  str: _check_str,
  tuple: _check_tuple,
  dict: _check_dict,
}
