"""Stops a run that does not move, with a diagnosis, instead of hanging."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jaxagent.rollout.records import StalledError

_SHOWN = 20


class Watchdog:
  """Measures the time since anything last moved, and what is given up in vain.

  Args:
    limit_s: seconds without movement that count as a stall.
    now: present time.
    max_lost: prompts quarantined in a row, none finishing in between.
  """

  def __init__(self, limit_s: float, now: float, max_lost: int):
    self.limit_s = limit_s
    self.max_lost = max_lost
    self._last = now
    self._lost = 0

  def moved(self, now: float) -> None:
    """Records progress: a result, a call issued, or the caller's return."""
    self._last = max(self._last, now)

  def left(self, now: float) -> float:
    """Seconds until the limit, zero or more."""
    return max(0.0, self._last + self.limit_s - now)

  def count(self, event: str) -> None:
    """Counts an event by its name in the log."""
    if event == 'quarantined':
      self._lost += 1
    elif event == 'finished':
      self._lost = 0

  def forgive(self) -> None:
    """Resets the count of losses: their cause may be fixed since the resume."""
    self._lost = 0

  def check_lost(self, reason: Callable[[], str]) -> None:
    """Raises StalledError where more than max_lost are quarantined in a row.

    Args:
      reason: gives why one of them was.
    """
    if self._lost > self.max_lost:
      raise StalledError(
        f'{self._lost} prompts in a row were quarantined and none finished in '
        f'between (max_quarantined={self.max_lost}): {reason()}. '
        'Fix the cause and rerun the same command; it resumes from its '
        'checkpoint.'
      )

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
