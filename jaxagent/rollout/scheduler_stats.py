"""Counters and distributions of the scheduler, gathered between batches."""

from __future__ import annotations

import collections
from collections.abc import Iterable

import numpy as np

from jaxagent.types import Sample

# Upper edges in seconds of the buckets in which drops are counted, so that
# starvation of slow actions is seen.
BUCKETS_S = (1.0, 10.0, 60.0, 300.0, 1800.0)


def bucket(duration_s: float) -> str:
  """Name of the bucket of a duration, such as 'lt_60s'."""
  for edge in BUCKETS_S:
    if duration_s < edge:
      return f'lt_{edge:g}s'
  return f'ge_{BUCKETS_S[-1]:g}s'


def distribution(values: Iterable[float]) -> dict[str, float]:
  """mean, p50, p95 and max; zeros where there is nothing."""
  x = np.fromiter(values, np.float64)
  if not x.size:
    return {'mean': 0.0, 'p50': 0.0, 'p95': 0.0, 'max': 0.0}
  return {
    'mean': float(x.mean()),
    'p50': float(np.percentile(x, 50)),
    'p95': float(np.percentile(x, 95)),
    'max': float(x.max()),
  }


class Stats:
  """Counts since the last batch, and totals of the run."""

  def __init__(self, now: float, slots: int):
    self._slots = slots
    self._at = now
    self._running = 0
    self.total: collections.Counter[str] = collections.Counter()
    self._begin(now)

  def _begin(self, now: float) -> None:
    self._since = now
    self._busy = 0.0
    self.dispatched: list[float] = []
    self.finished: list[float] = []
    self.dropped: collections.Counter[str] = collections.Counter()
    self.count: collections.Counter[str] = collections.Counter()

  def running(self, now: float, n: int) -> None:
    """n works are running or queued from `now` on."""
    if now > self._at:
      self._busy += min(self._running, self._slots) * (now - self._at)
      self._at = now
    self._running = n

  def add(self, name: str, n: int = 1) -> None:
    """Counts an event for this batch and for the run."""
    self.count[name] += n
    self.total[name] += n

  def drop(self, duration_s: float) -> None:
    self.add('dropped')
    self.dropped[bucket(duration_s)] += 1

  def snapshot(
    self,
    now: float,
    samples: Iterable[Sample],
    version: int,
    idle_s: float,
    bound: int | None,
  ) -> dict[str, float]:
    """Numbers for the log; starts the next interval."""
    samples = list(samples)
    self.running(now, self._running)
    elapsed = now - self._since
    stats: dict[str, float] = {}
    for name, values in (
      ('dispatched', self.dispatched),
      ('finished', self.finished),
      ('trained', [s.exec_s for s in samples]),
    ):
      for key, value in distribution(values).items():
        stats[f'duration/{name}/{key}'] = value
    ages = [version - s.version for s in samples]
    stats['staleness/mean'] = float(np.mean(ages)) if ages else 0.0
    stats['staleness/max'] = float(max(ages, default=0))
    over = sum(a > bound for a in ages) if bound is not None else 0
    stats['staleness/over_bound'] = float(over)
    stats['staleness/dropped'] = float(self.count['dropped'])
    names = [bucket(e - 1e-9) for e in BUCKETS_S] + [bucket(BUCKETS_S[-1])]
    for name in names:
      stats[f'staleness/dropped_{name}'] = float(self.dropped[name])
    for name in (
      'cancelled',
      'infrastructure',
      'expired',
      'rejected',
      'ignored',
      'quarantined',
    ):
      stats[f'buffer/{name}'] = float(self.count[name])
    full = self._slots * elapsed
    stats['scheduler/worker_use'] = self._busy / full if full > 0 else 0.0
    stats['scheduler/learner_idle_s'] = idle_s
    stats['scheduler/interval_s'] = elapsed
    self._begin(now)
    return stats
