"""Charts of a task's solutions over seconds of execution and over time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jaxagent.report import charts
from jaxagent.types import Record

Points = list[tuple[float, float]]


def best_over_time(records: Iterable[Record], higher: bool = True) -> Points:
  """(seconds of execution until then, best score), at each gain.

  records: in the order in which they were trained or evaluated. higher: whether a
    higher `score_after` is better.
  """
  found: Points = []
  seconds = 0.0
  for record in records:
    seconds += record.exec_s
    score = record.score_after
    if score is None:
      continue
    best = found[-1][1] if found else None
    if best is None or (score > best if higher else score < best):
      found.append((round(seconds, 2), score))
  return found


def panels(
  task: str,
  records: Sequence[Record],
  metrics: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
  """Returns a task's plots: best score by seconds executed, score by minutes.

  records: the task's trained solutions, in order. metrics: of each update, with
    `time` (seconds) and `solution/score/TASK`.
  """
  out = []
  higher = all(getattr(record, 'higher_is_better', True) for record in records)
  best = best_over_time(records, higher)
  if best:
    end = sum(record.exec_s for record in records)
    out.append(
      _panel('Best score', 'by seconds of execution in RL', _steps(best, end))
    )
  name = f'solution/score/{task}'
  found = [m for m in metrics if m.get(name) is not None]
  if found:
    begin = metrics[0]['time']
    line = [((m['time'] - begin) / 60, m[name]) for m in found]
    out.append(
      _panel(
        'Score of valid solutions', 'by minutes since the first update', line
      )
    )
  return out


def _steps(points: Points, end: float) -> Points:
  """A line that holds each value until the next."""
  out: Points = []
  for x, y in points:
    if out:
      out.append((x, out[-1][1]))
    out.append((x, y))
  return [*out, (end, out[-1][1])]


def _panel(title: str, note: str, points: Points) -> dict[str, Any]:
  return dict(
    title=title,
    note=note,
    legend=[('', 's0', points[-1][1])],
    svg=charts.line_chart(title, [('', 's0', points)], note),
  )
