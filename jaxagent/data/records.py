"""Trajectory records on disk: append-only JSON lines, one a trajectory."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import pathlib
from collections.abc import Callable
from typing import Any

from jaxagent import types
from jaxagent.records import TakenStep

_log = logging.getLogger(__name__)


def state_to_json(state: types.State) -> dict[str, Any]:
  """A State as plain JSON values."""
  return dataclasses.asdict(state)


def state_from_json(record: dict[str, Any]) -> types.State:
  """The State that `state_to_json` wrote.

  Older records hold a past step as the pair (action, result).
  """
  record = dict(record)
  record['history'] = tuple(
    types.PastStep(**h) if isinstance(h, dict) else types.PastStep(*h)
    for h in record['history']
  )
  record['ideas'] = tuple(record['ideas'])
  record['files'] = {
    name: types.Blob(**value) if isinstance(value, dict) else value
    for name, value in record['files'].items()
  }
  return types.State(**record)


def state_of(step: TakenStep, get: Callable[[str], types.State]) -> types.State:
  """The state that a stored step was taken in.

  get: the state of a key (`envs.snapshots`). Older records hold it whole.
  """
  state = step.state
  return get(state) if isinstance(state, str) else state_from_json(state)


class TrajectoryStore:
  """Whole trajectories, appended one by one; a torn last line is dropped."""

  def __init__(self, path: pathlib.Path):
    self.path = pathlib.Path(path)
    self.path.parent.mkdir(parents=True, exist_ok=True)
    self._repair()

  def append(self, record: dict[str, Any]) -> None:
    """One line, in the file before this returns."""
    with self.path.open('a', encoding='utf-8') as file:
      file.write(json.dumps(record) + '\n')
      file.flush()
      os.fsync(file.fileno())

  def read(self) -> list[dict[str, Any]]:
    """All records, in the order they were written.

    Raises ValueError, naming the line, where one is damaged.
    """
    if not self.path.exists():
      return []
    rows = []
    with self.path.open(encoding='utf-8') as file:
      for number, line in enumerate(file, 1):
        try:
          rows.append(json.loads(line))
        except ValueError as error:
          raise ValueError(
            f'{self.path}:{number} is damaged ({error}); delete that line: '
            'the trajectory is then made again.'
          ) from error
    return rows

  def _repair(self) -> None:
    """Cuts off a last line that a kill left unfinished."""
    if not self.path.exists():
      return
    data = self.path.read_bytes()
    if not data or data.endswith(b'\n'):
      return
    keep = data.rfind(b'\n') + 1
    _log.warning(
      '%s: an unfinished last line of %d bytes is dropped; that trajectory '
      'is made again.',
      self.path,
      len(data) - keep,
    )
    with self.path.open('r+b') as file:
      file.truncate(keep)
