"""What each operator is good for: figures of an update, and of a whole run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxagent.envs.operators import OPERATORS
from jaxagent.records import SolutionRecord, TrainedTurn


def figures(
  records: Sequence[SolutionRecord], best: Mapping[str, float | None]
) -> dict[str, float]:
  """Returns the metrics of an update by operator; a mean over nothing is left out.

  best: the highest merit of each task before the update, None where there was none.
  """
  found: dict[str, float] = {}
  for operator in OPERATORS:
    own = [record for record in records if record.kind == operator]
    if records:
      found[f'solution/share/{operator}'] = len(own) / len(records)
    better = [_is_better(record, best[record.task]) for record in own]
    for name, value in _means(own, better).items():
      if value is not None:
        found[f'solution/{name}/{operator}'] = value
  return found


def table(turns: Sequence[TrainedTurn]) -> dict[str, Any]:
  """Returns {task: {operator: {n, share, valid, gain, new_best}}} of all that RL trained on.

  turns: in the order of updates. n programs, their share of the task's, and of them the
  share that was valid, the mean gain over the better parent in units of the reward, and
  the share that scored better than whatever was trained on in the updates before.
  """
  records: dict[str, list[tuple[int, SolutionRecord]]] = {}
  for turn in turns:
    if isinstance(turn.record, SolutionRecord):
      of_task = records.setdefault(turn.record.task, [])
      of_task.append((turn.update, turn.record))
  return {task: _of_task(records[task]) for task in sorted(records)}


def _of_task(records: Sequence[tuple[int, SolutionRecord]]) -> dict[str, Any]:
  rows: dict[str, list[tuple[SolutionRecord, bool | None]]] = {}
  best: float | None = None
  for update in sorted({update for update, _ in records}):
    of_update = [record for of, record in records if of == update]
    for record in of_update:
      row = (record, _is_better(record, best))
      rows.setdefault(record.kind, []).append(row)
    merits = [r.merit for r in of_update if r.merit is not None]
    best = max([*merits, *([] if best is None else [best])], default=None)
  return {
    operator: {'n': len(own), 'share': len(own) / len(records)}
    | _means([r for r, _ in own], [better for _, better in own])
    for operator in OPERATORS
    if (own := rows.get(operator, []))
  }


def _is_better(record: SolutionRecord, best: float | None) -> bool | None:
  """Whether a record is a new best of its task; None where there was none before."""
  if best is None:
    return None
  return record.merit is not None and record.merit > best


def _means(
  records: Sequence[SolutionRecord], better: Sequence[bool | None]
) -> dict[str, float | None]:
  columns: dict[str, list[Any]] = {
    'valid': [record.score_after is not None for record in records],
    'gain': [record.gain() for record in records],
    'new_best': list(better),
  }
  known = {k: [v for v in vs if v is not None] for k, vs in columns.items()}
  return {k: float(np.mean(vs)) if vs else None for k, vs in known.items()}
