"""Follows a run's files and logs to a tracker what is new."""

from __future__ import annotations

import fcntl
import json
import math
import os
import pathlib
import time
import uuid
from collections.abc import Iterator
from typing import Any

from jaxagent.files.tail import Tail, object_of
from jaxagent.trackers.adapters import TRACKERS, Tracker

FOLDER = 'trackers'  # of the work directory
METRICS = pathlib.Path('logs', 'metrics.jsonl')
REPORT = 'report.html'
COLUMNS = (
  'policy',
  'task',
  'index',
  'split',
  'score',
  'reward',
  'steps',
  'outcomes',
  'last response',
)
LOCK_S = 60.0
_TEXT_CHARS = 2000  # of a response in the table


class Follower:
  """A run that a tracker follows.

  A step is logged once: the last one is written down, in `trackers/NAME/state.json`,
  before it is logged, and a run that repeats an update after a kill adds none. Nor does
  one that is trained anew; a line says so.
  """

  def __init__(self, work: pathlib.Path, name: str):
    self.folder = work / FOLDER / name
    self.folder.mkdir(parents=True, exist_ok=True)
    # The process of a run that was killed may still write the rest.
    self._lock = (self.folder / 'lock').open('w')
    _lock(self._lock.fileno())
    self._work, self._file = work, self.folder / 'state.json'
    self._state: dict[str, Any] = {'run_id': uuid.uuid4().hex[:12], 'step': -1}
    self._state |= object_of(_read(self._file)) or {}
    self._new: dict[int, dict[str, Any]] = {}
    self._tail = Tail(work / METRICS, self._take, self._new.clear)
    self._told = 0
    self._keep()
    self.tracker: Tracker = TRACKERS[name](
      self.folder,
      work.name,
      self._state['run_id'],
      object_of(_read(work / 'config.json')) or {},
    )

  def look(self) -> list[str]:
    """Logs what is new; returns lines that a person should read, once each."""
    while self._tail.read():
      pass
    again = []
    for step in sorted(self._new):
      record = self._new[step]
      time_s, last = float(record.get('time', 0.0)), self._state['step']
      if step > last:
        self._keep(step=step, time=time_s)
        self.tracker.log(step, time_s, _metrics(record))
      elif step == 0 and time_s > self._state.get('time', math.inf):
        again.append(
          f'update 0 begins anew, and the updates up to {last} were logged before: '
          'they are not logged again. For a training of its own, remove '
          f'{self.folder} and log it with jaxagent track'
        )
    self._new.clear()
    told = self.tracker.told[self._told :]
    self._told += len(told)
    return again + told

  def end(self) -> list[str]:
    """Logs the rest, with the evaluated trajectories and the report, and closes."""
    told = self.look()
    rows = list(evaluated(self._work))
    report = self._work / REPORT
    stamp = [len(rows), _changed(report)]
    if stamp != self._state.get('ended'):
      self._keep(ended=stamp)
      if rows:
        step = max(0, self._state['step'])  # of a run without RL
        self.tracker.table('evaluated', step, COLUMNS, rows)
      if report.is_file():
        self.tracker.artifact('report', report)
    self.tracker.close()
    return told

  def close(self) -> None:
    """Lets another process follow the run."""
    self._lock.close()

  def _take(self, line: dict[str, Any], offset: int, length: int) -> None:
    if isinstance(line.get('step'), int):
      self._new[line['step']] = line

  def _keep(self, **changed: Any) -> None:
    self._state |= changed
    part = self._file.with_suffix('.part')
    part.write_text(json.dumps(self._state))
    os.replace(part, self._file)


def _lock(file: int) -> None:
  """Takes a lock; raises OSError where another process keeps it for LOCK_S."""
  end = time.monotonic() + LOCK_S
  while True:
    try:
      return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      if time.monotonic() > end:
        raise OSError('another process logs this run already') from None
    time.sleep(0.2)


def _metrics(record: dict[str, Any]) -> dict[str, float]:
  """Returns the finite numbers of a record, under their names."""
  return {
    name: float(value)
    for name, value in record.items()
    if name not in ('step', 'time')
    and isinstance(value, int | float)
    and math.isfinite(value)
  }


def evaluated(work: pathlib.Path) -> Iterator[list[Any]]:
  """Yields a row of COLUMNS for each evaluated trajectory; damaged ones are left out."""
  for policy in ('sft', 'rl'):
    try:
      found = json.loads(_read(work / 'eval' / f'{policy}.json'))
    except (ValueError, RecursionError):
      continue
    for one in found if isinstance(found, list) else ():
      try:
        yield _row(policy, one)
      except (
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
      ):
        continue


def _row(policy: str, one: dict[str, Any]) -> list[Any]:
  steps = one.get('steps') or []
  rewards = [s['reward'] for s in steps if s.get('reward') is not None]
  score = one.get('score')
  return [
    policy,
    str(one.get('task', '')),
    int(one.get('index', 0)),
    str(one.get('split', '')),
    None if score is None else float(score),
    sum(rewards) / len(rewards) if rewards else None,
    len(steps),
    ' '.join(str(s.get('outcome', '')) for s in steps),
    _text(str(steps[-1].get('response', ''))) if steps else '',
  ]


def _text(text: str) -> str:
  """Returns a response short, and without lone surrogates."""
  return text[:_TEXT_CHARS].encode('utf-8', 'backslashreplace').decode()


def _read(path: pathlib.Path) -> bytes:
  try:
    return path.read_bytes()
  except OSError:
    return b''


def _changed(path: pathlib.Path) -> int:
  try:
    return path.stat().st_mtime_ns
  except OSError:
    return 0
