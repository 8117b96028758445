"""`task.yaml`: what a task says of itself, every key and value checked."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from jaxagent.graders import METRICS
from jaxagent.types import Limits

VERSIONS = (1, 2)
MODALITIES = ('image', 'tabular', 'text', 'timeseries')
KINDS = ('classification', 'regression', 'restoration')
# Those of version 2, too.
ALL_MODALITIES = (*MODALITIES, 'graph', 'audio', 'video', 'pairs', 'code')
ALL_KINDS = (
  *KINDS,
  'ranking',
  'span',
  'segmentation',
  'sequence',
  'density',
  'speed',
)
SPLITS = ('heldin', 'heldout')
REQUIRED_KEYS = (
  'modality',
  'kind',
  'metric',
  'higher_is_better',
  'split',
  'm_init',
  'm_best',
  'm_best_source',
  'limits',
)
OPTIONAL_KEYS = (
  'version',
  'm_init_private',
  'm_best_private',
  'agreement',
  'submission',
  'hides',
  'exposed',
)


def choice(where: str, key: str, value: Any, choices: Sequence[str]) -> Any:
  if value not in choices:
    raise ValueError(
      f'{where}: {key}={value!r} is unknown; choose one of '
      f'{", ".join(map(str, choices))}.'
    )
  return value


def number(where: str, key: str, value: Any) -> float | None:
  """A finite number or None (not measured yet)."""
  if value is None:
    return None
  if isinstance(value, bool) or not isinstance(value, (int, float)):
    raise ValueError(f'{where}: {key}={value!r} must be a number or null.')
  try:
    found = float(value)
  except OverflowError:  # a whole number of hundreds of digits
    found = math.inf
  if not math.isfinite(found):
    raise ValueError(f'{where}: {key}={value!r} must be finite.')
  return found


def limits(where: str, value: Any, base: Limits = Limits()) -> Limits:
  """`base` with what `value` names of it changed."""
  if not isinstance(value, dict):
    raise ValueError(f'{where}: limits={value!r} must be a mapping.')
  known = {field.name: field.type for field in dataclasses.fields(Limits)}
  for key, given in value.items():
    choice(where, 'limits key', key, tuple(known))
    if isinstance(given, bool) or not isinstance(given, (int, float)):
      raise ValueError(f'{where}: limits.{key}={given!r} must be a number.')
    if known[key] == 'int' and not isinstance(given, int):
      raise ValueError(
        f'{where}: limits.{key}={given!r} must be a whole number.'
      )
  try:
    return dataclasses.replace(base, **value)
  except ValueError as error:
    raise ValueError(f'{where}: {error}') from error


def hides(where: str, value: Any) -> tuple[str, ...]:
  """Folders below a folder of packages, such as 'sklearn/datasets/data'."""
  if not isinstance(value, list):
    raise ValueError(f'{where}: hides={value!r} must be a list of folders.')
  for path in value:
    parts = path.split('/') if isinstance(path, str) else ['']
    if len(parts) < 2 or any(p in ('', '.', '..') for p in parts):
      raise ValueError(
        f'{where}: hides={path!r} must be a folder inside a package, such as '
        'sklearn/datasets/data.'
      )
  return tuple(value)


def mapping(path: pathlib.Path) -> dict[str, Any]:
  """Reads a file's mapping, its keys unchecked. Raises ValueError naming it."""
  try:
    record = copy.deepcopy(_parsed(path.read_text(encoding='utf-8')))
  except (yaml.YAMLError, ValueError, RecursionError) as error:
    words = ' '.join(str(error).split())
    raise ValueError(f'{path}: not readable as YAML: {words}') from error
  if not isinstance(record, dict):
    raise ValueError(f'{path}: must be a mapping with {REQUIRED_KEYS}.')
  return record


@functools.lru_cache(maxsize=512)
def _parsed(text: str) -> Any:
  """Reads a text as YAML, each text once: a start reads every task several times."""
  return yaml.safe_load(text)


def version_of(where: str, record: Mapping[str, Any]) -> int:
  """Returns 1 or 2. Raises ValueError for a version that cannot be read."""
  version = record.get('version', 1)
  if isinstance(version, bool) or version not in VERSIONS:
    raise ValueError(
      f'{where}: version={version!r} cannot be read here; this jaxagent reads '
      'versions 1 and 2: update jaxagent, or write the file in version 2 '
      '(docs/tasks.md).'
    )
  return int(version)


def check_keys(
  where: str,
  record: Mapping[str, Any],
  required: Sequence[str],
  known: Sequence[str],
  remedy: str = '`python -m jaxagent.tasks new NAME` writes a filled template.',
) -> None:
  """Raises ValueError for a missing or an unknown key; remedy: of a missing one."""
  missing = [key for key in required if key not in record]
  if missing:
    raise ValueError(f'{where}: missing {", ".join(missing)}; {remedy}')
  for key in record:
    choice(where, 'key', key, known)


def read_yaml(
  path: pathlib.Path,
  required: tuple[str, ...] = REQUIRED_KEYS,
  more: tuple[str, ...] = (),
) -> dict[str, Any]:
  """The mapping with every key checked. Raises ValueError naming the file.

  more: keys that may be there, too.
  """
  record = mapping(path)
  version_of(str(path), record)
  known = (*REQUIRED_KEYS, *OPTIONAL_KEYS, *more)
  check_keys(str(path), record, required, known)
  return record


def check_direction(where: str, record: Mapping[str, Any]) -> None:
  """The three places that tell the direction must agree."""
  metric = choice(where, 'metric', record['metric'], tuple(METRICS))
  check_higher(where, record, METRICS[metric])
  check_scale(where, record)


def check_higher(where: str, record: Mapping[str, Any], want: bool) -> None:
  """Raises ValueError where `higher_is_better` is not the metric's."""
  metric, higher = record['metric'], record['higher_is_better']
  if higher is not want:
    raise ValueError(
      f'{where}: higher_is_better={higher!r}, but {metric} is better when '
      f'{"higher" if want else "lower"}; write '
      f'higher_is_better: {str(want).lower()}.'
    )


def agreement(where: str, record: Mapping[str, Any]) -> float | None:
  """Returns a rank correlation, None where there is none; raises ValueError."""
  found = number(where, 'agreement', record.get('agreement'))
  if found is not None and not -1 <= found <= 1:
    raise ValueError(
      f'{where}: agreement={found} is no rank correlation, which is from -1 to 1; '
      'measure it with `python -m jaxagent.tasks measure NAME --programs`, or take it '
      'out.'
    )
  return found


def check_scale(where: str, record: Mapping[str, Any]) -> None:
  """The best known score must be better than the starter's."""
  metric, higher = record['metric'], record['higher_is_better']
  for suffix in ('', '_private'):
    names = f'm_init{suffix}', f'm_best{suffix}'
    init, best = (number(where, n, record.get(n)) for n in names)
    if init is None or best is None or init == best:
      continue
    if (best > init) is not higher:
      raise ValueError(
        f'{where}: {names[1]}={best} is worse than {names[0]}={init} for '
        f'{metric}; measure both again with `python -m jaxagent.tasks measure`.'
      )
