"""Rules for starting rollouts and completing batches: a class for each `rl.rest`."""

from __future__ import annotations

from jaxagent.rollout.buffer import Buffer
from jaxagent.rollout.records import SchedulerConfig
from jaxagent.rollout.tracked import Group


class CarryOver:
  """Refills slots at once; a rollout that is late counts in a later update.

  The bound acts at two places. Admission: never more groups are open than the
  updates left within it consume, so the loop does not run ahead of the learner
  (AReaL, arXiv 2505.24298, equation 3). Consumption: for samples older than the bound,
  'hold' waits, 'drop' discards them and 'keep' trains them.
  """

  def __init__(self, config: SchedulerConfig):
    self._config = config
    # Updates that may still consume what is sampled now: once the present
    # version's batch is handed out, one fewer.
    self._updates_left = (config.max_staleness or 0) + 1
    self._bounded = config.max_staleness is not None
    self._hold = self._bounded and config.on_stale == 'hold'
    # m > 1 leaves room for stragglers, which only 'keep' can afford.
    keep = config.on_stale == 'keep'
    self._per_update = config.wave if keep else config.n_groups

  def begin(self, buffer: Buffer) -> None:
    """A batch is wanted, at the version that samples from now on."""
    self._updates_left = (self._config.max_staleness or 0) + 1

  def may_draw(self, buffer: Buffer) -> bool:
    """Whether one more group may be drawn from the source."""
    if buffer.n_finished >= self._config.finished_limit:
      return False
    limit = self._per_update * self._updates_left
    return not self._bounded or len(buffer.groups) < limit

  def choose(self, buffer: Buffer, version: int) -> list[Group] | None:
    """The groups of the batch, or None while it is not complete."""
    n = self._config.n_groups
    if len(buffer.ready) < n:
      return None
    bound = self._config.max_staleness
    if self._hold and bound is not None:
      if not buffer.meets_bound(version, bound, n):
        return None
    return buffer.oldest(n)

  def handed_out(self) -> None:
    """The batch of the present version is with the learner."""
    self._updates_left = self._config.max_staleness or 0

  def may_begin(self) -> bool:
    """Whether what was drawn, or given up, may be begun."""
    return True

  def leftover(self, buffer: Buffer) -> list[Group]:
    """Returns open groups to be stopped now that the batch is complete."""
    return []


class Wave:
  """ceil(m B) prompts at a time. 'wait': all of them; 'cancel': the first B."""

  def __init__(self, config: SchedulerConfig):
    self._config = config
    self._cancel = config.rest == 'cancel'
    self._open = False

  def begin(self, buffer: Buffer) -> None:
    self._open = True

  def may_draw(self, buffer: Buffer) -> bool:
    return self._open and len(buffer.groups) < self._config.wave

  def choose(self, buffer: Buffer, version: int) -> list[Group] | None:
    n = self._config.n_groups
    if self._cancel:
      chosen = buffer.first(n) if len(buffer.ready) >= n else None
    else:
      full = len(buffer.ready) >= n and len(buffer.ready) == len(buffer.groups)
      order = sorted(buffer.ready.values(), key=lambda g: g.seq)
      chosen = order[:n] if full else None
    return chosen

  def handed_out(self) -> None:
    self._open = False

  def may_begin(self) -> bool:
    # What is cancelled waits for the next wave, to start with it.
    return self._open

  def leftover(self, buffer: Buffer) -> list[Group]:
    return list(buffer.groups.values()) if self._cancel else []


class Everything:
  """Starts everything that the source gives; there are no batches."""

  def begin(self, buffer: Buffer) -> None:
    """No batch is ever wanted."""

  def may_draw(self, buffer: Buffer) -> bool:
    return True

  def choose(self, buffer: Buffer, version: int) -> list[Group] | None:
    return None

  def handed_out(self) -> None:
    """No batch is ever handed out."""

  def may_begin(self) -> bool:
    return True

  def leftover(self, buffer: Buffer) -> list[Group]:
    return []


def make_policy(config: SchedulerConfig) -> CarryOver | Wave:
  """Returns the rules that `config.rest` names."""
  return CarryOver(config) if config.rest == 'carry_over' else Wave(config)
