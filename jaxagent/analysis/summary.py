"""`summary.json`: what a run came to, in one stable file (docs/summary.md).

`Summary` gathers the parts as stages finish and writes the whole atomically;
`check` holds any such object to the schema and names the place that breaks it.
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import pathlib
import platform
from collections.abc import Mapping, Sequence
from typing import Any

from jaxagent.analysis import behaviour
from jaxagent.types import Outcome

SCHEMA = 2
POLICIES = ('starter', 'sft', 'rl')
SPLITS = ('heldin', 'heldout')
INTERVALS = (
  'mean_reward',
  'avg_at_k',
  'best_at_k',
  'relative_gain',
  'valid_action_rate',
)
# Whose responses, and which of them (jaxagent/analysis/behaviour.py).
BEHAVIOUR = {
  'train': ('first_quarter', 'last_quarter'),
  'sft': SPLITS,
  'rl': SPLITS,
}
EVALUATION = (
  'start',
  'seed',
  'temperature',
  'k',
  'trajectories_per_task',
  'max_steps',
)
TIERS = ('T3', 'T2', 'T1', 'T0')
_PACKAGES = (
  'jaxagent',
  'jax',
  'jaxlib',
  'flax',
  'optax',
  'orbax-checkpoint',
  'numpy',
  'scikit-learn',
  'tokenizers',
  'transformers',
)


def package_versions(packages: Sequence[str] = _PACKAGES) -> dict[str, str]:
  """Installed versions, and Python's; what is not installed is left out."""
  versions = {'python': platform.python_version()}
  for name in packages:
    try:
      versions[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
      continue
  return versions


class Summary:
  """Builder of `summary.json`.

  config_sha: of what decides the results, a hex digest.
  isolation_tier: of the sandbox of the process that writes.
  stand_ins: names of the scripted doubles used in place of language models,
    such as ('expert', 'editor'); empty where there were none.
  """

  def __init__(
    self,
    *,
    config_sha: str,
    isolation_tier: str,
    stand_ins: Sequence[str] = (),
    versions: Mapping[str, str] | None = None,
  ):
    self._data: dict[str, Any] = {
      'schema': SCHEMA,
      'wall_s': {},
      'executions': 0,
      'outcomes': {},
      'behaviour': {},
      'evaluation': {},
      'isolation_tier': isolation_tier,
      'versions': dict(versions or package_versions()),
      'config_sha': config_sha,
      'stand_ins': list(stand_ins),
      'untrusted': {},
      'extra': {},
    }

  def set_section(
    self, policy: str, split: str, section: Mapping[str, Any]
  ) -> None:
    """Takes the five intervals of a policy on a split."""
    _choice('policy', policy, POLICIES)
    _choice('split', split, SPLITS)
    self._data.setdefault(policy, {})[split] = dict(section)

  def set_behaviour(
    self, who: str, part: str, figures: Mapping[str, Any]
  ) -> None:
    """Takes `behaviour.figures` of the training's or a policy's responses."""
    _choice('behaviour', who, tuple(BEHAVIOUR))
    _choice(f'behaviour.{who}', part, BEHAVIOUR[who])
    self._data['behaviour'].setdefault(who, {})[part] = dict(figures)

  def set_evaluation(self, **how: Any) -> None:
    """Takes how the policies were evaluated: each name of EVALUATION."""
    self._data['evaluation'] = how

  def set_untrusted(self, task: str, reason: str) -> None:
    """Says why the rewards of a task may have been cheated."""
    self._data['untrusted'][task] = reason

  def set_wall(self, stage: str, seconds: float) -> None:
    """Wall seconds of a stage, over every attempt at it."""
    self._data['wall_s'][stage] = float(seconds)

  def add_outcomes(self, outcomes: Mapping[str, int]) -> None:
    """Adds executions, counted by outcome."""
    held = self._data['outcomes']
    for name, count in outcomes.items():
      key = name.value if isinstance(name, Outcome) else str(name)
      held[key] = held.get(key, 0) + int(count)
    self._data['executions'] = sum(held.values())

  def set_extra(self, name: str, value: Any) -> None:
    """Keeps any other value, which is no part of the stable schema."""
    self._data['extra'][name] = value

  def build(self, *, complete: bool = True) -> dict[str, Any]:
    """The checked object; `complete` demands every policy and split."""
    data = json.loads(json.dumps(self._data))
    check(data, complete=complete)
    return data

  def write(
    self, path: str | os.PathLike, *, complete: bool = True
  ) -> pathlib.Path:
    """Checks and writes atomically: a reader sees the old or the new."""
    data = self.build(complete=complete)
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + '.part')
    with part.open('w', encoding='utf-8') as file:
      json.dump(data, file, indent=2, allow_nan=False)
      file.write('\n')
      file.flush()
      os.fsync(file.fileno())
    os.replace(part, path)
    return path


def load(path: str | os.PathLike) -> dict[str, Any]:
  """Reads and checks a `summary.json`."""
  path = pathlib.Path(path)
  try:
    data = json.loads(path.read_text(encoding='utf-8'))
  except ValueError as error:
    raise ValueError(
      f'{path} is not JSON ({error}); run the command again to write it anew.'
    ) from error
  check(data, complete=False)
  return data


def check(data: Any, *, complete: bool = True) -> None:
  """Raises ValueError, naming the place, where `data` breaks the schema."""
  _need(isinstance(data, dict), 'summary', data, 'an object')
  _need(data.get('schema') == SCHEMA, 'schema', data.get('schema'), f'{SCHEMA}')
  for policy in POLICIES:
    _check_policy(data, policy, complete)
  for stage, seconds in _mapping(data, 'wall_s').items():
    ok = _is_number(seconds) and seconds >= 0
    _need(ok, f'wall_s.{stage}', seconds, 'seconds, 0 or more')
  _check_behaviour(data, complete)
  how = _mapping(data, 'evaluation')
  ok = set(how) == set(EVALUATION) or (not how and not complete)
  _need(ok, 'evaluation', how, f'{{{", ".join(EVALUATION)}}}')
  names = [o.value for o in Outcome]
  for name, count in _mapping(data, 'outcomes').items():
    _choice('outcomes', name, names)
    ok = isinstance(count, int) and count >= 0
    _need(ok, f'outcomes.{name}', count, 'a count')
  total = sum(data['outcomes'].values())
  _need(
    data.get('executions') == total,
    'executions',
    data.get('executions'),
    f'the sum of the outcomes, {total}',
  )
  _choice('isolation_tier', data.get('isolation_tier'), TIERS)
  _mapping(data, 'versions')
  sha = data.get('config_sha')
  _need(isinstance(sha, str) and sha, 'config_sha', sha, 'a hex digest')
  stand_ins = data.get('stand_ins')
  ok = isinstance(stand_ins, list) and all(
    isinstance(s, str) for s in stand_ins
  )
  _need(ok, 'stand_ins', stand_ins, 'a list of names')
  if 'untrusted' in data:  # summaries before it have none
    for task, reason in _mapping(data, 'untrusted').items():
      ok = isinstance(reason, str) and reason
      _need(ok, f'untrusted.{task}', reason, 'a reason')


def _check_policy(data: Mapping, policy: str, complete: bool) -> None:
  if policy not in data and not complete:
    return
  held = _mapping(data, policy)
  for split in SPLITS:
    if split not in held and not complete:
      continue
    where = f'{policy}.{split}'
    part = held.get(split)
    if not isinstance(part, dict):
      raise _wrong(where, part, 'an object')
    for name in INTERVALS:
      _check_interval(f'{where}.{name}', part.get(name))


def _check_behaviour(data: Mapping, complete: bool) -> None:
  if 'behaviour' not in data and not complete:
    return
  held = _mapping(data, 'behaviour')
  for who, parts in BEHAVIOUR.items():
    for part in parts:
      where = f'behaviour.{who}.{part}'
      inside = held.get(who, {})
      _need(isinstance(inside, dict), f'behaviour.{who}', inside, 'an object')
      value = inside.get(part)
      if value is None and not complete:
        continue
      ok = isinstance(value, dict) and set(value) == set(behaviour.FIGURES)
      _need(ok, where, value, f'{{{", ".join(behaviour.FIGURES)}}}')
      for name, number in value.items():
        _check_figure(f'{where}.{name}', name, number)


def _check_figure(where: str, name: str, value: Any) -> None:
  if name in behaviour.COUNTS:
    _need(isinstance(value, int) and value >= 0, where, value, 'a count')
    return
  ok = value is None or (_is_number(value) and value >= 0)
  _need(ok, where, value, 'a number, 0 or more, or null')
  if name in behaviour.RATES:
    _need(value is None or value <= 1, where, value, 'a share, 0 to 1')


def _check_interval(where: str, value: Any) -> None:
  keys = {'mean', 'low', 'high', 'n'}
  ok = isinstance(value, dict) and set(value) - {'needs'} == keys
  _need(
    ok, where, value, '{mean, low, high, n}, and needs where n is too small'
  )
  needs = value.get('needs')
  ok = needs is None or (isinstance(needs, int) and needs > 0)
  _need(ok, f'{where}.needs', needs, 'a count, or null for more')
  n = value['n']
  _need(isinstance(n, int) and n >= 0, f'{where}.n', n, 'a count')
  numbers = [value[key] for key in ('mean', 'low', 'high')]
  if n == 0:
    _need(numbers == [None] * 3, where, value, 'nulls where n is 0')
    return
  ok = all(_is_number(x) for x in numbers)
  _need(ok, where, value, 'finite numbers')
  slack = 1e-9 * (1 + abs(value['mean']))
  ok = value['low'] - slack <= value['high'] + slack
  _need(ok, where, value, 'low <= high')


def _is_number(value: Any) -> bool:
  return (
    isinstance(value, (int, float))
    and not isinstance(value, bool)
    and math.isfinite(value)
  )


def _mapping(data: Mapping, key: str) -> Mapping:
  value = data.get(key)
  if not isinstance(value, dict):
    raise _wrong(key, value, 'an object')
  return value


def _need(ok: Any, where: str, value: Any, wanted: str) -> None:
  if not ok:
    raise _wrong(where, value, wanted)


def _wrong(where: str, value: Any, wanted: str) -> ValueError:
  return ValueError(
    f'summary.json: {where} is {str(value)[:120]!r}; it must be {wanted} '
    '(docs/summary.md).'
  )


def _choice(what: str, value: Any, choices: Sequence[str]) -> None:
  if value not in choices:
    raise ValueError(
      f'summary.json: {what} {value!r} is unknown; '
      f'choose one of: {", ".join(choices)}.'
    )
