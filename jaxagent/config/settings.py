"""Checks of a config before any work, and of the work directory it names."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import shutil
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ml_collections import ConfigDict

from jaxagent import options
from jaxagent.config import checks, renamed, rules, sections
from jaxagent.errors import UserError
from jaxagent.files import disk

# Where results go, not what they are: left out of the config's hash.
_PLACE = (
  'work_dir',
  'compile_cache',
  'dry_run',
  'recipe',
  'stage',
  'name',
  'trackers',
)


def prepare(config: ConfigDict, given: Collection[str] = ()) -> None:
  """Replaces former keys, and a leading `~` in each path of the config, in place.

  given: keys that the command line sets.

  Raises UserError for a former value that is not known, or for the home of a user
  that is not there.
  """
  try:
    renamed.upgrade(config, given)
  except ValueError as error:
    raise UserError(str(error)) from error
  with config.unlocked():
    for key in sections.paths(config):
      if not checks.has(config, key):
        continue
      *parents, last = key.split('.')
      node = checks.get(config, '.'.join(parents)) if parents else config
      if isinstance(node[last], str) and node[last].startswith('~'):
        try:
          node[last] = str(disk.user_path(node[last]))
        except ValueError as error:
          raise UserError(f'config.{key}={error}') from error


def validate(config: ConfigDict) -> None:
  """Raises UserError with the first complaint of the table of rules."""
  stages = ('config',) if config.dry_run else ('config', 'run')
  _refuse(rules.complaint(config, stages))


def validate_devices(config: ConfigDict) -> None:
  """Checks the config against the devices, once they can be counted. Starts jax."""
  _refuse(rules.complaint(config, ('devices',)))


def _refuse(complaint: str) -> None:
  if complaint:
    raise UserError(complaint)


def config_record(config: ConfigDict) -> dict:
  """Returns the config without paths and names, i.e. what determines the results.

  Retired keys stand there with the one value they had, so that a run begun by an
  older version resumes.
  """
  record = json.loads(config.to_json_best_effort())
  for name in checks.open_keys(config):
    if checks.has(config, name):  # the same whether it was given as text or not
      _put(record, name, options.as_dict(checks.get(config, name)))
  for name, key in sections.RETIRED.items():
    _put(record, name, key.value)
  _leave_out_free(record, config)
  return {k: v for k, v in record.items() if k not in _PLACE}


def _leave_out_free(record: dict, config: ConfigDict) -> None:
  """Takes out, in place, what a resumed run may change, such as calls in flight."""
  for name, section in sections.known(config).items():
    for option in section.free:
      record.get(name, {}).pop(option, None)


def _put(record: dict, name: str, value: object) -> None:
  *parents, last = name.split('.')
  for parent in parents:
    record = record[parent]
  record[last] = value


# Options that came after figures were published beside hashes -> the value at which
# they change nothing. Of adapters it is the rank that says whether there are any.
_LATER: Mapping[tuple[str, str], object] = {
  ('tasks', 'data'): 'standin',
  ('tasks', 'data_dir'): '',
  ('tasks', 'as_published'): False,
  ('tasks', 'description'): 'own',
  ('tasks', 'mlebench_repo'): '',
  ('sandbox', 'gpus'): [],
  ('sandbox', 'recorded'): '',
  ('sandbox', 'reuse'): 'off',
  ('rl', 'best_of'): 8,
  ('rl', 'ties'): 0.0,
  ('rl', 'groups'): 'drawn',
  ('rl', 'window'): 0,
  ('rl', 'row_layout'): 'auto',
  ('rl', 'share_prompts'): False,
  ('rl', 'product_dtype'): 'float32',
  ('solution', 'failure'): -10.0,
  ('solution', 'parents'): 'uniform',
  ('solution', 'operators'): {},
  ('search', 'seconds'): 0.0,
  ('search', 'parents'): 'best',
}


def config_sha(config: ConfigDict) -> str:
  """Returns the first 16 hex digits of the SHA-256 of `config_record`.

  Options that were added later do not count where they change nothing.
  """
  record = config_record(config)
  if not record.get('model', {}).get('lora', {}).get('rank'):
    record.get('model', {}).pop('lora', None)
    servers = record.get('rollout', {}).get('vllm', {})
    for name in ('adapters', 'max_loras'):
      servers.pop(name, None)
  for (part, name), value in _LATER.items():
    if record.get(part, {}).get(name) == value:
      del record[part][name]
  text = json.dumps(record, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()[:16]


def open_work_dir(
  config: ConfigDict,
  min_free_mb: int = 500,
  claim: Callable[[pathlib.Path], object] = lambda path: None,
) -> pathlib.Path:
  """Makes or reopens the work directory; refuses that of another config.

  claim: takes it for this run, before its config is read or written.
  """
  path = pathlib.Path(config.work_dir).resolve()
  if pattern := disk.pattern_in(path):
    raise UserError(
      f'config.work_dir={config.work_dir!r} lies at {str(path)!r}, whose '
      f'{pattern!r} Orbax takes for a pattern: no checkpoint there could be read '
      'again. Choose another --work_dir without any of * ? [ \\ and gs:.'
    )
  try:
    path.mkdir(parents=True, exist_ok=True)
    probe = path / f'.write_probe-{os.getpid()}'
    probe.write_text('x')
    probe.unlink()
  except OSError as error:
    raise UserError(
      f'config.work_dir={config.work_dir!r} cannot be written: '
      f'{error.strerror}; choose another with --work_dir.'
    ) from error
  free_mb = shutil.disk_usage(path).free // 2**20
  if free_mb < min_free_mb:
    raise UserError(
      f'config.work_dir={config.work_dir!r} has {free_mb} MiB free; a run '
      f'needs {min_free_mb} MiB. Free space or choose another --work_dir.'
    )
  claim(path)
  _check_same_config(config, path / 'config.json')
  return path


def recorded(work: pathlib.Path) -> ConfigDict:
  """Returns the config of the run in a work directory, without paths and names."""
  file = work / 'config.json'
  if not file.is_file():
    raise UserError(
      f'{work} is not a work directory: it has no config.json. Give the --work_dir of '
      'a run.'
    )
  return ConfigDict(_read(file))


def _read(file: pathlib.Path) -> dict:
  try:
    return json.loads(file.read_text())
  except ValueError as error:
    raise UserError(
      f'{file} is damaged ({error}); restore it or choose another --work_dir.'
    ) from error


def _check_same_config(config: ConfigDict, file: pathlib.Path) -> None:
  record = config_record(config)
  if not file.exists():
    temporary = file.with_suffix('.tmp')
    temporary.write_text(json.dumps(record, indent=1, sort_keys=True))
    os.replace(temporary, file)
    return
  before = _completed(_read(file), record, config)
  _leave_out_free(before, config)  # an older version may have them
  changed = _differences(before, record)
  if changed:
    shown = '; '.join(f'{k}: {a!r} -> {b!r}' for k, a, b in changed[:5])
    shown += '; ...' if len(changed) > 5 else ''
    free = {*checks.open_keys(config)}
    free |= {n for n, s in sections.known(config).items() if s.is_open}
    if any(
      not (_has(before, key) and _has(record, key))
      for key, _, _ in changed
      if not any(key.startswith(f'{one}.') for one in free)
    ):
      raise UserError(
        f'work directory {file.parent} was made by another version of jaxagent or of '
        f'its recipe, or by another recipe, whose options are others ({shown}). Resume '
        'it with the version that made it, or give --work_dir=NEW.'
      )
    raise UserError(
      f'work directory {file.parent} was made by another config ({shown}). Give '
      '--work_dir=NEW, or run with the former config.'
    )


def _completed(before: dict, after: dict, config: ConfigDict) -> dict:
  """Adds the options that the version that began a run did not know, as by default.

  before, after: the run's record, and that of `config`. So the run resumes where what
  was added since has its default.
  """
  found = json.loads(json.dumps(before))
  for name, made in sections.all_options(config):
    if checks.has(found, name) or not checks.has(after, name):
      continue
    *parents, last = name.split('.')
    node = found
    for parent in parents:
      node = node.setdefault(parent, {})
      if not isinstance(node, dict):
        break
    else:
      node[last] = made.default
  return found


def _has(record: Any, key: str) -> bool:
  """Returns whether a config's record has a dotted key, whatever its value."""
  for part in key.split('.'):
    if not isinstance(record, dict) or part not in record:
      return False
    record = record[part]
  return True


def _differences(before: Any, after: Any, prefix: str = '') -> list[tuple]:
  if isinstance(before, dict) and isinstance(after, dict):
    rows = []
    for key in sorted(before.keys() | after.keys()):
      rows += _differences(before.get(key), after.get(key), f'{prefix}{key}.')
    return rows
  if json.dumps(before) != json.dumps(after):
    return [(prefix.rstrip('.'), before, after)]
  return []
