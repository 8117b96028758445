"""Steps of trajectories under way, on disk as they are made.

A killed evaluation goes on where each trajectory was. Between two runs a person
may change what one goes on from (`jaxagent.pause`): the change is a line of
its own, so that the record says what was whose.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from jaxagent import types
from jaxagent.data.records import TrajectoryStore
from jaxagent.envs.snapshots import Snapshots
from jaxagent.loops import kept
from jaxagent.records import TakenStep, codec

EDITED = 'edited'  # of a line that holds no step but a state to go on from


def path_of(work: pathlib.Path, label: str) -> pathlib.Path:
  """Where the steps of `label`'s trajectories are while they are under way."""
  return work / 'eval' / f'{label}.steps.jsonl'


class StepLog:
  """Appended to from several threads; a line is whole or not there."""

  def __init__(self, path: pathlib.Path):
    kept.mend_lines(path, _checked)
    self._lines = TrajectoryStore(path)
    self.path = path

  def append(self, task: str, index: int, line: Mapping[str, Any]) -> None:
    self._lines.append({'task': task, 'index': index, **line})

  def read(self) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """(task, index) -> its lines, in order."""
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for line in self._lines.read():
      found.setdefault((line['task'], line['index']), []).append(line)
    return found

  def close(self) -> None:
    """The whole records are elsewhere: it is not needed any more."""
    self.path.unlink(missing_ok=True)


def _checked(line: Any) -> None:
  """Raises where a line is not whole."""
  codec.need_object(line, 'line')
  _ = line['task'], line['index']
  if EDITED not in line:
    TakenStep.from_json(line['record'])


def states(
  lines: Sequence[Mapping[str, Any]], start: types.State, store: Snapshots
) -> tuple[types.State, list[types.State | None]]:
  """(where it started, where each step led), edits of a person in their place.

  Raises KeyError where the store lacks one.
  """
  after: list[types.State | None] = []
  for line in lines:
    if EDITED in line:
      changed = store.get(line[EDITED])
      if after:
        after[-1] = changed
      else:
        start = changed
    else:
      after.append(None if line['done'] else store.get(line['workspace_id']))
  return start, after


def steps(lines: Sequence[Mapping[str, Any]]) -> list[TakenStep]:
  """The records of its steps; one that a person's change follows says so."""
  found: list[TakenStep] = []
  for line in lines:
    if EDITED not in line:
      found.append(TakenStep.from_json(line['record']))
    elif found:
      found[-1] = dataclasses.replace(found[-1], edited=line[EDITED])
  return found
