"""Derives every reward of a run again from its traces.

  python -m jaxagent.audit RUN [--json] [--record MODULE:CLASS ...] [--tasks_dir DIR]

RUN is a work directory (its `rl/traces/`, `rl/validation/`, `traces/`, `eval/` and
`collect/`), a folder of traces, or one file. Each record holds what its reward is derived from
(`DERIVED_FROM` of its class in `jaxagent/records/`, or of a recipe's own class, which
`records.json` of the work directory or --record names), and the reward that was given: for equation 6 of paper 000 outcome,
valid_action, is_edit, score_before, score_after and alpha; for whole solutions (paper
003, section 3.2) outcome, score_after, higher_is_better, milestones and scale. The score
of a program must follow from the seconds recorded with it, and have some: which tasks
these are says DIR, by default the `tasks_dir` of the run's config. A trajectory's score
on the whole hidden test must be that of the step it counts with, and what `summary.json`
says of them (mean, best, medals by its thresholds) is derived again. Where
records carry `prev_hash`, `hash` and `of` (see `seal`), the chain is checked, so that any changed
byte is found, and any record that is gone, not only those that change a reward; a work
directory has a file for each update up to its last checkpoint, and for each validation. Of an expert's
trajectories, each sealed by itself as it is made, the changed ones are found. Exits
0 where nothing differs, 1 where something does, 2 where there is nothing to read.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import math
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from jaxagent import records
from jaxagent.envs import programs, tasks
from jaxagent.graders import report, speed
from jaxagent.rewards import ml_agent
from jaxagent.types import NoReward, Record

_TOLERANCE = 1e-9
_VALIDATION = 'validation'  # folder of what RL's validations drew


def record_hash(prev_hash: str, record: Mapping[str, Any]) -> str:
  """SHA-256 over the previous hash and the record without its own hash."""
  body = {k: v for k, v in record.items() if k != 'hash'}
  body['prev_hash'] = prev_hash
  text = json.dumps(body, sort_keys=True, separators=(',', ':'))
  return hashlib.sha256(text.encode()).hexdigest()


def seal(records: Sequence[Mapping[str, Any]], start: str) -> Iterator[dict]:
  """Adds `prev_hash`, `hash` and `of`, how many they are, to each.

  start: the file's name, without what follows its point.
  """
  prev = start
  for record in records:
    sealed = dict(record) | {'prev_hash': prev, 'of': len(records)}
    sealed['hash'] = prev = record_hash(prev, sealed)
    yield sealed


def audit(
  run: str | pathlib.Path,
  options: Mapping[str, bool] | None = None,
  tasks_dir: str | pathlib.Path | None = None,
) -> dict[str, Any]:
  """Checks every record; returns {records, sealed, differences}.

  options: ablation switches of the reward that RL was trained on (binary,
    format_term, corner_term); by default those of the run's `config.json`.
    Stored trajectories, the experts' and the evaluated, have equation 6 whole.
  tasks_dir: folder that says which tasks hand over a program; by default that of
    the run's `config.json`, or `tasks.default_folder`. Of a task that is not in
    it, a score without a measurement is let pass.
  Each difference is {where, prompt_id, problem}. Raises FileNotFoundError
  where there is no trace.
  """
  run = pathlib.Path(run)
  files = _files(run)
  if not files:
    raise FileNotFoundError(
      f'no traces in {run}; give a work directory, a folder with *.jsonl '
      'traces, or one such file.'
    )
  options = _options(run) if options is None else dict(options)
  is_program = _programs(run, tasks_dir)
  found: dict[str, Any] = {'records': 0, 'sealed': 0, 'differences': []}
  found['differences'] += [_difference(*gone) for gone in _gone(run, files)]
  found['differences'] += [_difference(*wrong) for wrong in _whole_test(run)]
  for path in files:
    chain = _Chain(path)
    for where, record in _read(path, found['differences']):
      steps = record.get('steps', [record])
      if not isinstance(steps, list) or not all(
        isinstance(s, dict) for s in steps
      ):
        found['differences'].append(
          _difference(where, 'its steps are no records')
        )
        continue
      if problem := _whole_problem(record, steps):
        found['differences'].append(_difference(where, problem))
      found['records'] += len(steps)
      found['sealed'] += len(steps) if 'hash' in record else 0
      problems = chain.problems(record)
      found['differences'] += [
        _difference(where, p, record.get('prompt_id', '')) for p in problems
      ]
      for number, step in enumerate(steps):
        place = f'{where}, step {number}' if 'steps' in record else where
        found['differences'] += [
          _difference(place, p, step.get('prompt_id', ''))
          for p in _problems(
            step, {} if 'steps' in record else options, is_program
          )
        ]
    found['differences'] += [
      _difference(str(path), p) for p in chain.at_the_end()
    ]
  return found


def _difference(where: str, problem: str, prompt: str = '') -> dict[str, str]:
  return {'where': where, 'prompt_id': prompt, 'problem': problem}


class _Chain:
  """The seals of one file, in order; an expert's trajectory is one of its own."""

  def __init__(self, path: pathlib.Path):
    self._own = path == _experts(path.parent.parent)
    self._prev, self._seen, self._of = path.stem, 0, 0

  def problems(self, record: Mapping) -> list[str]:
    if 'hash' not in record:
      sealed = 'prev_hash' in record or 'of' in record
      return ['its hash is gone'] if sealed else []
    prev = self._prev
    if self._own:
      prev = name_of(record)
    self._prev, self._seen = record['hash'], self._seen + 1
    self._of = record.get('of', 0)
    return _chain_problems(record, prev)

  def at_the_end(self) -> Iterator[str]:
    if self._of and not self._own and self._seen != self._of:
      yield f'{self._seen} of {self._of} records are there'


def name_of(record: Mapping) -> str:
  """Returns the start of the hash chain of an expert's trajectory.

  Each of these trajectories is sealed by itself.
  """
  return f'{record.get("task")}-{record.get("index")}'


def _experts(run: pathlib.Path) -> pathlib.Path:
  return run / 'collect' / 'trajectories.jsonl'


def _chain_problems(record: Mapping, prev: str) -> list[str]:
  if record.get('prev_hash') != prev:
    return ['the record before it is missing, moved or changed']
  if record_hash(prev, record) != record['hash']:
    return ['the record was changed after it was written (hash differs)']
  return []


def _programs(
  run: pathlib.Path, tasks_dir: str | pathlib.Path | None
) -> Callable[[str], bool]:
  """Returns what says of a task's name whether a program is handed over there."""
  own = _config(run).get('tasks_dir')
  if tasks_dir is None:
    found = isinstance(own, str) and pathlib.Path(own).is_dir()
    tasks_dir = str(own) if found else tasks.default_folder()
  folder = pathlib.Path(tasks_dir)

  @functools.cache
  def is_program(task: str) -> bool:
    try:
      return programs.is_one(tasks.load_task(task, folder))
    except (ValueError, OSError):  # not there, or broken
      return False

  return is_program


def _problems(
  step: Mapping,
  options: Mapping[str, bool],
  is_program: Callable[[str], bool],
) -> Iterator[str]:
  """Yields the problems of one step as it stands in the file."""
  if 'reward' not in step:
    yield 'fields are missing: reward'
    return
  try:
    record = records.from_json(step, whole=True)
    derived = record.derive(options)
  except (records.UnknownRecord, records.DamagedRecord) as error:
    yield str(error)
    return
  except Exception as error:  # noqa: BLE001 - a recipe's own reward may raise
    yield f'no reward can be derived: {type(error).__name__}: {error}'
    return
  if problem := _measured_problem(record, is_program):
    yield problem
  given = step['reward']
  if isinstance(derived, NoReward):
    same, what = given is None, f'no reward ({derived.value})'
  elif not _is_number(derived):
    yield f'no reward can be derived: {type(record).__name__} gives {derived!r}'
    return
  else:
    what = repr(derived)
    same = _is_number(given) and abs(derived - given) <= _TOLERANCE
  if not same:
    yield f'reward given {given!r}, derived {what}'


def _measured_problem(record: Record, is_program: Callable[[str], bool]) -> str:
  """Returns how a score differs from the seconds recorded with it; '' if it follows."""
  if record.score_after is None:
    return ''
  if not record.measured:
    if is_program(record.task):
      return f'score {record.score_after!r} of a program, without measurement'
    return ''
  try:
    derived = speed.measured_score(record.measured)
  except ValueError as error:
    return f'no score can be derived from its measurement: {error}'
  if abs(derived - record.score_after) <= _TOLERANCE:
    return ''
  return f'score given {record.score_after!r}, measured {derived!r}'


def _whole_problem(
  record: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]
) -> str:
  """Returns how a trajectory's score on the whole hidden test is not its steps', or ''."""
  counted = [s for s in steps if s.get('private') is not None]
  if 'steps' not in record or record.get('missing') or not counted:
    return ''
  given, derived = record.get('whole'), counted[-1].get('whole')
  if given == derived:
    return ''
  return f'whole test: score given {given!r}, of its last step that counts {derived!r}'


def _whole_test(run: pathlib.Path) -> Iterator[tuple[str, str]]:
  """Yields (place, difference) of what summary.json says of the whole hidden test."""
  path = run / 'summary.json'
  try:
    for task, one in (
      _object(path).get('extra', {}).get('whole_test', {}).items()
    ):
      for policy, given in one['policies'].items():
        for problem in _whole_differences(run, task, one, policy, given):
          yield str(path), f'whole test: {task}, {policy}: {problem}'
  except (AttributeError, KeyError, TypeError, ValueError) as error:
    yield (
      str(path),
      f'whole test: not readable: {type(error).__name__}: {error}',
    )


def _whole_differences(
  run: pathlib.Path,
  task: str,
  one: Mapping[str, Any],
  policy: str,
  given: Mapping[str, Any],
) -> Iterator[str]:
  """Yields what differs of the figures of a policy on a task."""
  scores = _whole_scores(run, policy, task)
  if scores is None:
    return  # of a file that is gone, which is said elsewhere
  derived: dict[str, Any] = {'n': len(scores)}
  if scores:
    pick = max if one['higher_is_better'] else min
    derived |= {'mean': math.fsum(scores) / len(scores), 'best': pick(scores)}
  if one['board']:
    derived |= report.Thresholds(**one['board']).counts(scores)
  for name, value in derived.items():
    near = _TOLERANCE * max(1, abs(value))
    if abs(given.get(name, math.inf) - value) > near:
      yield f'{name} given {given.get(name)!r}, derived {value!r}'


def _whole_scores(
  run: pathlib.Path, policy: str, task: str
) -> list[float] | None:
  """Returns a policy's scores on a task's whole hidden test; None without its file."""
  if policy == 'starter':
    found = [_object(run / 'eval' / 'starts.json').get(task, {}).get('whole')]
    return [score for score in found if _is_number(score)] or None
  path = run / 'eval' / f'{policy}.json'
  if not path.is_file():
    return None
  scores: list[Any] = [
    record.get('whole')
    for _, record in _read(path, [])
    if record.get('task') == task and not record.get('missing')
  ]
  return [score for score in scores if _is_number(score)]


def _object(path: pathlib.Path) -> dict[str, Any]:
  """Returns the JSON object of a file; {} where there is none."""
  try:
    found = json.loads(path.read_text(encoding='utf-8'))
  except (OSError, ValueError):
    return {}
  return found if isinstance(found, dict) else {}


def _is_number(value: Any) -> bool:
  return isinstance(value, (int, float)) and math.isfinite(value)


def _files(run: pathlib.Path) -> list[pathlib.Path]:
  if run.is_file():
    return [run]
  beside = sorted((run / 'eval').glob('*.json'))
  beside += sorted((run / 'rl' / _VALIDATION).glob('update_*.json'))
  if _experts(run).is_file():
    beside.append(_experts(run))
  for folder in (run / 'rl' / 'traces', run / 'traces', run):
    files = sorted(folder.glob('*.jsonl'))
    if files and folder.name != 'logs':
      return files + beside
  return beside


def _gone(run: pathlib.Path, files: Any) -> Iterator[tuple[str, str]]:
  """(place, what is gone): files without a record, updates without a file."""
  for path in files:
    if path.read_bytes().strip() in (b'', b'[]'):
      yield str(path), 'its records are gone'
  if not (run / 'rl').is_dir():
    return  # some files, not a whole run
  drawn = [path for path in files if path.parent.name == _VALIDATION]
  updates = _numbers((p.stem for p in files if p not in drawn), 'update_')
  saved = _numbers(
    (p.name for p in (run / 'rl' / 'checkpoints').glob('*')), 'step_'
  )
  for update in range(max({u + 1 for u in updates} | saved, default=0)):
    if update not in updates:
      yield str(run / 'rl' / 'traces'), f'the file of update {update} is gone'
  there = _numbers((path.stem for path in drawn), 'update_')
  for step in sorted(_validated(run, max(saved, default=0)) - there):
    where = str(run / 'rl' / _VALIDATION)
    yield where, f'the file of the validation after update {step} is gone'


def _validated(run: pathlib.Path, saved: int) -> set[int]:
  """Returns after how many updates a run has validated, up to its last checkpoint."""
  rl = _config(run).get('rl')
  if not isinstance(rl, dict):
    return set()
  every = rl.get('validate_every')
  if not isinstance(every, int) or every < 1:
    return set()
  found = set(range(every, saved + 1, every))
  return found | {saved} if saved and saved == rl.get('updates') else found


def _numbers(names: Iterable[str], prefix: str) -> set[int]:
  own = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
  return {int(number) for number in own if number.isdecimal()}


def _options(run: pathlib.Path) -> dict[str, bool]:
  """The reward's switches as the config of the run has them, which `run` is part of."""
  config = _config(run)
  flat = {k[7:]: v for k, v in config.items() if k.startswith('reward.')}
  reward = config.get('reward', flat)
  return {n: bool(reward[n]) for n in ml_agent.SWITCHES if n in reward}


def _config(run: pathlib.Path) -> dict[str, Any]:
  """Returns the config of the run that `run` is part of; {} where there is none."""
  run = run.resolve()
  for folder in (run, *run.parents):
    if (folder / 'config.json').is_file():
      break
  return _object(folder / 'config.json')


def _read(path: pathlib.Path, differences: list) -> Iterator[tuple[str, dict]]:
  """(place, record) of a trace file, of trajectories, or of a validation's turns."""
  text = path.read_text(encoding='utf-8', errors='replace')
  if path.suffix == '.json':
    try:
      trajectories = json.loads(text)
    except (ValueError, RecursionError) as error:
      differences.append(_damage(str(path), error))
      return
    if not isinstance(trajectories, list):
      return
    one = 'turn' if path.parent.name == _VALIDATION else 'trajectory'
    for i, trajectory in enumerate(trajectories):
      if not isinstance(trajectory, dict):
        continue
      if one == 'turn' or 'steps' in trajectory:
        yield f'{path}: {one} {i}', trajectory
    return
  for number, line in enumerate(text.split('\n'), 1):
    if not line:
      continue
    try:
      record = json.loads(line)
      if not isinstance(record, dict):
        raise ValueError('not an object')
    except (ValueError, RecursionError) as error:
      differences.append(_damage(f'{path}:{number}', error))
      continue
    yield f'{path}:{number}', record


def _damage(where: str, error: Exception) -> dict[str, str]:
  return _difference(where, f'not JSON: {error}')


def main(argv: list[str] | None = None) -> int:
  """Command line; returns the exit status."""
  parser = argparse.ArgumentParser(
    prog='python -m jaxagent.audit', description=__doc__.split('\n')[0]
  )
  parser.add_argument('run', help='work directory, trace folder or file')
  parser.add_argument('--json', action='store_true', help='one JSON object')
  parser.add_argument(
    '--record', action='append', default=[], metavar='MODULE:CLASS',
    help="a recipe's own kind of record, in place of what records.json of the run "
    'names; may be given again',
  )  # fmt: skip
  parser.add_argument(
    '--tasks_dir', metavar='DIR',
    help="the tasks, in place of those that the run's config.json names",
  )  # fmt: skip
  arguments = parser.parse_args(argv)
  try:
    for place in arguments.record:
      records.load(place)
    if not arguments.record:
      records.load_noted(pathlib.Path(arguments.run))
    found = audit(arguments.run, tasks_dir=arguments.tasks_dir)
  except (OSError, ValueError) as error:
    print(f'error: {error}', file=sys.stderr)
    return 2
  if arguments.json:
    print(json.dumps(found))
  else:
    for item in found['differences']:
      prompt = f' (prompt {item["prompt_id"]})' if item['prompt_id'] else ''
      print(f'{item["where"]}{prompt}: {item["problem"]}')
    print(
      f'{found["records"]} rewards derived again, {found["sealed"]} of them '
      f'sealed, {len(found["differences"])} differences'
    )
  return 1 if found['differences'] else 0


if __name__ == '__main__':
  sys.exit(main())
