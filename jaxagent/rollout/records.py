"""Config of the scheduler, the batch that it returns, and its errors."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from jaxagent.interactions import POLICY
from jaxagent.rollout.latency import GroupLatency
from jaxagent.types import Sample

RESTS = ('carry_over', 'cancel', 'wait')
ON_STALE = ('hold', 'drop', 'keep')


class StalledError(RuntimeError):
  """No progress within the watchdog's limit; the message is a diagnosis."""


class SourceExhausted(RuntimeError):
  """The prompt source has ended and no finished sample is left."""


@dataclasses.dataclass(frozen=True)
class CollectedBatch:
  """Rows for one update, with numbers for the log.

  The ledger has each prompt as finished until `mark_trained`.
  """

  samples: tuple[Sample, ...]
  stats: dict[str, float]
  sojourns: GroupLatency

  @property
  def prompt_ids(self) -> tuple[str, ...]:
    """Prompt ids of its interactions, each once, in order."""
    return tuple(dict.fromkeys(s.prompt_id for s in self.samples))


@dataclasses.dataclass(frozen=True)
class SchedulerConfig:
  """Options of collecting batches.

  batch_size: B, samples of one update; a multiple of group_size.
  oversample: m >= 1. `cancel` starts ceil(m * B) prompts for each update.
    `carry_over` refills every free slot at once, within m * B prompts for each
    update that the bound leaves ('keep'; else B); `wait` needs m = 1.
  rest: what happens to the samples that have not finished once B have:
    'carry_over' they keep running and count in a later update; 'cancel' they
    are stopped and their prompts are issued again (paper 003, algorithm 1);
    'wait' there is no rest (synchronous).
  max_staleness: updates that `carry_over` may run ahead of the learner: no
    more prompts are open than that many updates and the next one consume.
    None: no bound.
  on_stale: handling of samples older than the bound: 'keep' trains on them (use
    truncated importance sampling in the loss), 'hold' waits for them before the
    update, 'drop' discards them and issues their prompts again.
  buffer_capacity: no new prompt is issued while as many finished samples
    wait. None: 4 * batch_size.
  max_attempts: infrastructure errors after which a prompt is quarantined.
  max_quarantined: prompts quarantined in a row, none finishing in between;
    one more -> StalledError. None: 4 * batch_size.
  watchdog_s: nothing finishes for so long -> StalledError.
  lease_s: seconds that one attempt may run, from when a slot takes it, before
    it is aborted and retried (an infrastructure error, counted as `expired`, too).
    None: no lease. Must exceed every time-out inside the executor and be below
    watchdog_s.
  drain_s: `close` waits so long for running samples.
  refill: free slots that make it worth calling the sampler.
  max_decoding: completions asked of one role at once. None: no limit.
  max_in_flight: interactions under way at once, those that wait for a permit
    included. None: as many as the executor takes, and max_decoding more.
  roles: those that the sampler serves.
  max_concurrency: role -> its calls that are drawn at once, where it is not
    max_decoding; None for no limit.
  seed: of the calls' own seeds.
  """

  batch_size: int
  oversample: float = 1.0
  rest: str = 'carry_over'
  max_staleness: int | None = 1
  on_stale: str = 'keep'
  buffer_capacity: int | None = None
  max_attempts: int = 3
  max_quarantined: int | None = None
  watchdog_s: float = 3600.0
  drain_s: float = 3.0
  group_size: int = 1
  lease_s: float | None = None
  refill: int = 1
  max_decoding: int | None = None
  max_in_flight: int | None = None
  roles: tuple[str, ...] = (POLICY,)
  max_concurrency: Mapping[str, int | None] = dataclasses.field(
    default_factory=dict
  )
  seed: int = 0

  def __post_init__(self):
    _choice('rest', self.rest, RESTS)
    _choice('on_stale', self.on_stale, ON_STALE)
    for name in ('batch_size', 'group_size', 'max_attempts', 'refill'):
      value = getattr(self, name)
      if not isinstance(value, int) or value < 1:
        raise ValueError(f'{name}={value!r} must be an integer of 1 or more.')
    if self.batch_size % self.group_size:
      raise ValueError(
        f'batch_size={self.batch_size} must be a multiple of '
        f'group_size={self.group_size}: whole groups are counted.'
      )
    if not (math.isfinite(self.oversample) and self.oversample >= 1):
      raise ValueError(
        f'oversample={self.oversample!r}: m must be 1 or more, else an update '
        'of B samples never fills.'
      )
    if self.rest == 'wait' and self.oversample != 1:
      raise ValueError(
        f"rest='wait' waits for every sample, so oversample="
        f'{self.oversample} has no meaning: set it to 1, or use '
        "rest='carry_over' or 'cancel'."
      )
    self._check_bounds()

  def _check_bounds(self) -> None:
    s = self.max_staleness
    if s is not None and (not isinstance(s, int) or s < 0):
      raise ValueError(
        f'max_staleness={s!r} can never be met: a sample is at least 0 '
        'updates old. Use 0 or more, or None for no bound.'
      )
    capacity = self.buffer_capacity
    if capacity is not None and capacity < self.batch_size:
      raise ValueError(
        f'buffer_capacity={capacity} is below batch_size={self.batch_size}: '
        'no batch would ever fill.'
      )
    for name in ('max_decoding', 'max_in_flight', 'max_quarantined'):
      value = getattr(self, name)
      if value is not None and (not isinstance(value, int) or value < 1):
        raise ValueError(f'{name}={value!r} must be 1 or more, or None.')
    for name in ('watchdog_s', 'drain_s'):
      value = getattr(self, name)
      if not value >= 0 or (name == 'watchdog_s' and value == 0):
        raise ValueError(f'{name}={value!r} must be positive.')
    if self.lease_s is not None and not 0 < self.lease_s < self.watchdog_s:
      raise ValueError(
        f'time-outs are not nested: lease_s={self.lease_s} must be above 0 '
        f'and below watchdog_s={self.watchdog_s}.'
      )

  @property
  def n_groups(self) -> int:
    """Groups of one update."""
    return self.batch_size // self.group_size

  @property
  def wave(self) -> int:
    """Groups started for one update under `cancel` and `wait`."""
    return math.ceil(self.oversample * self.n_groups - 1e-9)

  @property
  def lost_limit(self) -> int:
    """Prompts that may be quarantined in a row."""
    if self.max_quarantined is not None:
      return self.max_quarantined
    return 4 * self.batch_size

  @property
  def finished_limit(self) -> int:
    """Finished samples at which no new prompt is issued."""
    if self.buffer_capacity is not None:
      return self.buffer_capacity
    return 4 * self.batch_size


def _choice(name: str, value: str, choices: tuple[str, ...]) -> None:
  if value not in choices:
    raise ValueError(f'{name}={value!r} is none of {list(choices)}.')
