"""Finds the runs below a folder."""

from __future__ import annotations

import os
import pathlib
import threading
import time
from collections.abc import Iterator
from typing import Any

from jaxagent.live import values
from jaxagent.live.run import METRICS, Run, status
from jaxagent.rollout import finished_log, rollout_log

EVERY_S = 1.0  # between two looks
DEPTH = 5
MOST_FOLDERS = 20_000  # that are looked into
MOST_RUNS = 2_000
_MARKS = (
  pathlib.Path('records.json'),
  pathlib.Path('config.json'),
  METRICS,
  rollout_log.LOG,
  finished_log.LOG,
)
# What a run, and nothing else, has beside its config.json.
_PARTS = ('rl', 'logs', 'sft', 'collect', 'tasks', 'eval', 'tokenizer')


class Runs:
  """Runs below a folder, which need not be there yet. Thread-safe.

  A run is known by its path below the folder; '.' is the folder itself.
  """

  def __init__(self, root: pathlib.Path):
    self.root = root
    self._lock = threading.Lock()
    self._again = 0.0  # when to look next
    self._names: dict[str, pathlib.Path] = {}
    self._open: dict[str, Run] = {}
    self.problem = ''
    self.more = False
    self.unreadable: list[str] = []

  def get(self, name: str) -> Run | None:
    """Returns a run, its files refreshed; None where there is none of the name."""
    self._look()
    with self._lock:
      folder = self._names.get(name)
      if folder is None:
        self._open.pop(name, None)
        return None
      run = self._open.get(name)
      if run is None:
        run = self._open[name] = Run(name, folder)
    run.refresh()
    return run

  def listed(self) -> dict[str, Any]:
    """Returns the folder, what is wrong with it, and its runs, the newest first."""
    self._look()
    with self._lock:
      names = dict(self._names)
      problem = self.problem
    runs: list[dict[str, Any]] = [
      {'name': name, 'status': status(folder), 'changed': _changed(folder)}
      for name, folder in names.items()
    ]
    runs.sort(key=lambda run: (-run['changed'], run['name']))
    return {
      'root': values.text(str(self.root)),
      'problem': problem,
      'more': self.more,
      'unreadable': self.unreadable[:5],
      'runs': runs,
    }

  def _look(self) -> None:
    with self._lock:
      began = time.monotonic()
      if began < self._again:
        return
      found: dict[str, pathlib.Path] = {}
      self.problem = _problem(self.root)
      self.more = False
      unreadable: list[str] = []
      if not self.problem:
        for folder in _runs(self.root, unreadable):
          if len(found) >= MOST_RUNS:
            self.more = True
            break
          found[_name(folder, self.root)] = folder
      self._names, self.unreadable = found, unreadable
      now = time.monotonic()
      # Of a whole disk a look takes seconds: twenty times as long is waited then.
      self._again = now + max(EVERY_S, 20 * (now - began))


def _name(folder: pathlib.Path, root: pathlib.Path) -> str:
  """Returns the path below the root, as text that JSON can hold."""
  return values.text(str(folder.relative_to(root)))


def _problem(root: pathlib.Path) -> str:
  try:
    with os.scandir(root):
      return ''
  except FileNotFoundError:
    return 'is not there yet'
  except NotADirectoryError:
    return 'is no folder'
  except PermissionError:
    return 'cannot be read: no permission'
  except OSError as error:
    return f'cannot be read: {error.strerror}'


def _runs(root: pathlib.Path, unreadable: list[str]) -> Iterator[pathlib.Path]:
  """Yields folders of runs, by breadth; symbolic links are not followed.

  unreadable: gets the names of folders without permission.
  """
  waiting, looked = [root], 0
  for _ in range(DEPTH + 1):
    below: list[pathlib.Path] = []
    for folder in waiting:
      looked += 1
      if looked > MOST_FOLDERS:
        return
      if _is_run(folder):
        yield folder
        continue
      try:
        below += _folders(folder)
      except PermissionError:
        unreadable.append(_name(folder, root))
      except OSError:  # gone meanwhile
        continue
    waiting = below


def _is_run(folder: pathlib.Path) -> bool:
  # Not Path.exists, which raises where there is no permission.
  there = [mark for mark in _MARKS if os.path.exists(folder / mark)]
  if there == [pathlib.Path('config.json')]:  # a model's folder has one, too
    return any(os.path.isdir(folder / part) for part in _PARTS)
  return bool(there) or os.path.isdir(folder / 'rl' / 'traces')


def _folders(folder: pathlib.Path) -> list[pathlib.Path]:
  """Returns the folders in one, but for hidden ones; raises OSError."""
  with os.scandir(folder) as entries:
    return sorted(
      pathlib.Path(entry.path)
      for entry in entries
      if not entry.name.startswith('.') and entry.is_dir(follow_symlinks=False)
    )


def _changed(folder: pathlib.Path) -> float:
  """Returns when one of the run's files changed last; 0 where none is there."""
  latest = 0.0
  for mark in _MARKS:
    try:
      latest = max(latest, (folder / mark).stat().st_mtime)
    except OSError:
      continue
  return latest
