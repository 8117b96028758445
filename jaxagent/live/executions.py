"""The executions of a run in their slots, as `logs/executions.jsonl` grows."""

from __future__ import annotations

import dataclasses
import sys
from collections import deque
from typing import Any

from jaxagent.live import values

MOST = 20_000  # that are kept, the newest


@dataclasses.dataclass(slots=True)
class Span:
  """An execution: seconds since 1970 when it ended, and how long each part took.

  rest_s: clearing up and grading.
  """

  end: float
  queue_s: float
  startup_s: float
  exec_s: float
  rest_s: float
  slot: int | None
  outcome: str
  task: str
  job: str

  @property
  def begin(self) -> float:
    """When it was queued."""
    return self.end - self.rest_s - self.exec_s - self.startup_s - self.queue_s

  def to_json(self) -> dict[str, Any]:
    """Returns its fields, and when it began; times to the millisecond."""
    # Not dataclasses.asdict, which copies deeply: most of what lanes would cost.
    return {
      'begin': round(self.begin, 3),
      'end': round(self.end, 3),
      'queue_s': round(self.queue_s, 3),
      'startup_s': round(self.startup_s, 3),
      'exec_s': round(self.exec_s, 3),
      'rest_s': round(self.rest_s, 3),
      'slot': self.slot,
      'outcome': self.outcome,
      'task': self.task,
      'job': self.job,
    }


class Executions:
  """The newest executions. Not thread-safe.

  untimed: lines of an older version, which wrote no times.
  """

  def __init__(self) -> None:
    self.changes = 0
    self.clear()

  def clear(self) -> None:
    """Forgets all executions."""
    self.spans: deque[Span] = deque(maxlen=MOST)
    self.untimed = 0
    self.changes += 1

  def take(self, line: dict[str, Any], offset: int, length: int) -> None:
    """Takes in a line of logs/executions.jsonl."""
    self.changes += 1
    end = values.number(line.get('timestamp'))
    if end is None:
      self.untimed += 1
      return
    queue_s, startup_s, exec_s, total_s = (
      max(0.0, values.number(line.get(name)) or 0.0)
      for name in ('queue_s', 'startup_s', 'exec_s', 'total_s')
    )
    self.spans.append(
      Span(
        end=end,
        queue_s=queue_s,
        startup_s=startup_s,
        exec_s=exec_s,
        rest_s=max(0.0, total_s - queue_s - startup_s - exec_s),
        slot=values.whole(line.get('slot')),
        outcome=sys.intern(values.name(line.get('outcome'))),
        task=sys.intern(values.name(line.get('task'))),
        job=values.name(line.get('job_id')),
      )
    )

  def between(self, begin: float, end: float, most: int) -> list[Span]:
    """Returns the newest that overlap a time, at most so many, oldest first."""
    found: list[Span] = []
    for span in reversed(self.spans):
      if span.end < begin - 3600 or len(found) >= most:
        break  # they are written as they end
      if span.begin < end and span.end > begin:
        found.append(span)
    return found[::-1]
