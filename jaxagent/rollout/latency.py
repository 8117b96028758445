"""Latencies of groups: how long they took, and how long they might have taken.

A scheduler that stops or drops what is late consumes a group that takes d
seconds with a probability that falls with d. What its inverse is estimated
from is gathered here, on the scheduler's clock: seconds from the beginning of
a group's first interaction to the end of its last.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from jaxagent.rollout.tracked import Group

WINDOW = 16  # batches whose groups are remembered


@dataclasses.dataclass(frozen=True)
class GroupLatency:
  """Durations of groups, as known for one batch.

  of: prompt id -> seconds that its group took; after a resume, seconds of its
    longest interaction's executions.
  ended, cut: seconds of groups that ended, and ages of groups that were
    stopped, in the last WINDOW batches and this one.
  allowed: seconds that groups had before they would have been dropped.
  kept, started: groups of an update, and of a wave.
  """

  of: Mapping[str, float]
  ended: tuple[float, ...]
  cut: tuple[float, ...]
  allowed: tuple[float, ...]
  kept: int
  started: int


class LatencyTracker:
  """Notes when groups begin and end.

  Args:
    bound: updates that a group may wait for; None for no bound.
  """

  def __init__(self, bound: int | None, kept: int, started: int):
    self._bound, self._kept, self._started = bound, kept, started
    self._begun: dict[str, float] = {}
    self._took: dict[str, float] = {}  # of groups that have ended
    self._awaited: collections.deque[tuple[int, float]] = collections.deque()
    self._ended, self._cut, self._allowed = _window(), _window(), _window()

  def begin(self, group_id: str, version: int, now: float) -> None:
    if group_id not in self._begun:
      self._begun[group_id] = now
      self._awaited.append((version, now))

  def end(self, group_id: str, at: float) -> None:
    if group_id in self._begun:
      self._took[group_id] = at - self._begun[group_id]

  def discard(self, group_id: str, now: float) -> None:
    """Records that a group was cancelled or dropped and begins anew."""
    begun = self._begun.pop(group_id, None)
    took = self._took.pop(group_id, None)
    if took is not None:
      self._ended[-1].append(took)
    elif begun is not None:
      self._cut[-1].append(now - begun)

  def batch(
    self, groups: Iterable[Group], version: int, now: float
  ) -> GroupLatency:
    """Records the groups of a batch, after what was discarded for it."""
    of: dict[str, float] = {}
    for group in groups:
      took = self._took.pop(group.group_id, None)
      self._begun.pop(group.group_id, None)
      if took is not None:
        self._ended[-1].append(took)
      seconds = took if took is not None else _executed_s(group)
      of |= {member.prompt_id: seconds for member in group.members}
    self._pass(version, now)
    known = [
      tuple(s for batch in kind for s in batch)
      for kind in (self._ended, self._cut, self._allowed)
    ]
    for kind in (self._ended, self._cut, self._allowed):
      kind.append([])
    ended, cut, allowed = known
    return GroupLatency(of, ended, cut, allowed, self._kept, self._started)

  def _pass(self, version: int, now: float) -> None:
    """Closes groups begun `bound` versions ago: no later batch has them."""
    if self._bound is None:
      return
    while self._awaited and self._awaited[0][0] <= version - self._bound:
      self._allowed[-1].append(now - self._awaited.popleft()[1])

  def state_dict(self) -> dict[str, Any]:
    """JSON-able; without what is under way, whose clock ends with a kill."""
    return {
      'ended': list(self._ended),
      'cut': list(self._cut),
      'allowed': list(self._allowed),
    }

  def load_state_dict(self, state: dict[str, Any]) -> None:
    self._ended.extend(state['ended'])
    self._cut.extend(state['cut'])
    self._allowed.extend(state['allowed'])


def _window() -> collections.deque[list[float]]:
  return collections.deque([[]], maxlen=WINDOW)


def _executed_s(group: Group) -> float:
  totals: dict[str, float] = collections.defaultdict(float)
  for sample in group.samples:
    totals[sample.prompt_id] += sample.exec_s
  return max(totals.values())
