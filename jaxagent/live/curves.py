"""The metrics of a run as columns, as `metrics.jsonl` grows."""

from __future__ import annotations

import array
import math
from collections.abc import Sequence
from typing import Any

from jaxagent.live import values

MOST_NAMES = 1000
_PHASES = (
  # The order in which an update does them (training/rl.py).
  ('save_checkpoint', 'checkpoint'),
  ('gen', 'wait'),
  ('old_log_prob', 'log-probs'),
  ('ref', 'log-probs'),
  ('values', 'log-probs'),
  ('adv', 'update'),
  ('update_actor', 'update'),
  ('update_critic', 'update'),
  ('update_weights', 'hand-over'),
  ('testing', 'validation'),
)


class Curves:
  """Columns of a metrics file. Not thread-safe.

  steps, times: of the records, in their order; NaN where a record has none.
  columns: name -> values, NaN where a record has none or no number.
  """

  def __init__(self) -> None:
    self.changes = 0
    self.clear()

  def clear(self) -> None:
    """Forgets all records."""
    self.steps = array.array('d')
    self.times = array.array('d')
    self.columns: dict[str, array.array[float]] = {}
    self.changes += 1

  def take(self, line: dict[str, Any], offset: int, length: int) -> None:
    """Takes in a line of a metrics.jsonl."""
    step = values.number(line.get('step'))
    if step is None:
      return
    self.changes += 1
    for key, value in line.items():
      name = values.name(key)
      if name in ('step', 'time') or not name:
        continue
      column = self.columns.get(name)
      if column is None:
        if len(self.columns) >= MOST_NAMES:
          continue
        column = self.columns[name] = array.array('d')
      missing = len(self.steps) - len(column)
      column.extend([math.nan] * missing)
      found = values.number(value)
      column.append(math.nan if found is None else found)
    self.steps.append(step)
    time = values.number(line.get('time'))
    self.times.append(math.nan if time is None else time)

  def drawn(self, names: Sequence[str], most: int) -> dict[str, Any]:
    """Returns {'steps': [...], 'columns': {name: [...]}} of at most `most` records.

    Evenly spaced, the last one always; null where there is no number.
    """
    n = len(self.steps)
    stride = max(1, -(-n // most))
    chosen = list(range((n - 1) % stride, n, stride)) if n else []
    columns = {}
    for name in names:
      column = self.columns.get(name)
      if column is not None:
        columns[name] = [
          _finite(column[i]) if i < len(column) else None for i in chosen
        ]
    return {'steps': [self.steps[i] for i in chosen], 'columns': columns}

  def last(self, name: str) -> float | None:
    """Returns a metric's value in the last record."""
    column = self.columns.get(name)
    if column is None or len(column) < len(self.steps):
      return None
    return _finite(column[-1])

  def phases(self, begin: float, end: float) -> list[dict[str, Any]]:
    """Returns the learner's phases between two times, oldest first.

    A record has the time at which its update was over and the seconds of each phase;
    phases are laid before that time in their order.
    """
    found: list[dict[str, Any]] = []
    for i in range(len(self.steps) - 1, -1, -1):
      at = self.times[i]
      if not math.isfinite(at) or at < begin:
        break
      update = int(self.steps[i])
      for phase, what in reversed(_PHASES):
        column = self.columns.get(f'timing_s/{phase}', ())
        seconds = column[i] if i < len(column) else math.nan
        if not (math.isfinite(seconds) and seconds > 0):
          continue
        if what != 'wait' and at - seconds < end:
          found.append(
            {
              'begin': at - seconds,
              'end': at,
              'what': what,
              'phase': phase,
              'update': update,
            }
          )
        at -= seconds
    return found[::-1]


def _finite(value: float) -> float | None:
  return value if math.isfinite(value) else None
