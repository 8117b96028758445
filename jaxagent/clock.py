"""Clocks. The scheduler takes one as an argument and never asks the system.

The same scheduling code runs on real time (`RealClock`) and on a virtual
clock (`VirtualClock`), where an hour of executions takes a second to simulate.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Protocol, runtime_checkable


@runtime_checkable
class Clock(Protocol):
  """Seconds since an arbitrary origin; never goes back."""

  def now(self) -> float:
    """Current time in seconds."""
    ...

  def sleep(self, s: float) -> None:
    """Lets `s` seconds pass."""
    ...


class RealClock:
  """The machine's monotonic clock."""

  def now(self) -> float:
    return time.monotonic()

  def sleep(self, s: float) -> None:
    time.sleep(max(0.0, s))


class VirtualClock:
  """Time that passes only when someone sleeps on it. For tests, simulation."""

  def __init__(self, start_s: float = 0.0):
    self._now = float(start_s)

  def now(self) -> float:
    return self._now

  def sleep(self, s: float) -> None:
    if not s >= 0:
      raise ValueError(f'sleep({s!r}): seconds must be zero or more.')
    self._now += s

  def move_to(self, t: float) -> None:
    """Sets the time to `t` if that lies ahead."""
    self._now = max(self._now, float(t))


@dataclasses.dataclass(frozen=True)
class Deadline:
  """A point in time on the monotonic clock; nested ones only shrink."""

  at: float = float('inf')

  @classmethod
  def after(cls, seconds: float) -> Deadline:
    return cls(time.monotonic() + seconds)

  def nested(self, seconds: float) -> Deadline:
    """The earlier of this deadline and `seconds` from now."""
    return Deadline(min(self.at, time.monotonic() + seconds))

  def remaining(self) -> float:
    """Seconds until then; 0 where it has passed, inf where there is none."""
    return max(0.0, self.at - time.monotonic())


NO_DEADLINE = Deadline()
