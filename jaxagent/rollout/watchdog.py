"""Stops a run that does not move, with a diagnosis, instead of hanging."""

from __future__ import annotations

from collections.abc import Sequence

from jaxagent.rollout.records import StalledError

_SHOWN = 20


class Watchdog:
  """Measures the time since anything last moved.

  Args:
    limit_s: seconds without movement that count as a stall.
    now: present time.
  """

  def __init__(self, limit_s: float, now: float):
    self.limit_s = limit_s
    self._last = now

  def moved(self, now: float) -> None:
    """Something finished, was issued, or the caller came back."""
    self._last = max(self._last, now)

  def left(self, now: float) -> float:
    """Seconds until the limit, zero or more."""
    return max(0.0, self._last + self.limit_s - now)

  def check(self, now: float, stages: Sequence[tuple[str, str, float]]) -> None:
    """Raises StalledError past the limit.

    Args:
      now: present time.
      stages: (prompt id, stage, age in seconds), called stages of the work.
    """
    if self.left(now) <= 0:
      raise StalledError(
        f'nothing has moved for {now - self._last:.1f} s (watchdog_s='
        f'{self.limit_s:g}). {describe(stages)} Look at the executor: dead '
        'workers, or a time-out inside it above watchdog_s.'
      )


def describe(stages: Sequence[tuple[str, str, float]]) -> str:
  """One line: how many prompts stand where, and the oldest of them."""
  if not stages:
    return 'No prompt is running or pending.'
  counts: dict[str, int] = {}
  for _, stage, _ in stages:
    counts[stage] = counts.get(stage, 0) + 1
  oldest = sorted(stages, key=lambda s: -s[2])[:_SHOWN]
  shown = ', '.join(f'{i} {stage} for {age:.1f} s' for i, stage, age in oldest)
  more = len(stages) - len(oldest)
  total = ', '.join(f'{n} {stage}' for stage, n in sorted(counts.items()))
  return f'{total}: {shown}' + (f' and {more} more.' if more > 0 else '.')
