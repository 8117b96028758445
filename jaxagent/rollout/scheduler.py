"""Generation, execution and learning overlapped, interaction by interaction.

  scheduler = Scheduler(source, interaction, workers, config)
  batch = scheduler.next_batch(version)
  ...one update...
  scheduler.mark_trained(batch.prompt_ids, update=version)

The scheduler owns no thread and never asks the system for the time: the same
code runs on a virtual clock. It is thread-safe, so that a `BackgroundPoller` can keep
samplers and executors busy while the learner computes.

Without a learner (`deliver`) there are no batches: `run_out` carries out whatever the
source gives and hands each rollout over as it ends. So policies are evaluated and
expert trajectories are collected.

Everything that happens is journalled before it is acted upon. After a kill,
`resume` folds the journal onto the last checkpoint: completions that were
drawn and executions that had finished are there again, and the batches that
had been handed out since are handed out again as they were.
"""

from __future__ import annotations

import collections
import itertools
import threading
from collections.abc import Callable, Iterable
from typing import Any

from jaxagent.data.ledger import Ledger
from jaxagent.data.prompts import Feed, Source
from jaxagent.interactions import Execute, Generate, Interaction
from jaxagent.rollout import events
from jaxagent.rollout.admission import Everything, make_policy
from jaxagent.rollout.journal import Journal
from jaxagent.rollout.latency import LatencyTracker
from jaxagent.rollout.records import (
  CollectedBatch,
  SchedulerConfig,
  SourceExhausted,
  StalledError,
)
from jaxagent.rollout.requests import (
  ExecutionRequest,
  ExecutionResult,
  GenerationRequest,
  GenerationResult,
  Key,
  Workers,
)
from jaxagent.rollout.rollout_log import Fate, RolloutLog
from jaxagent.rollout.scheduler_stats import Stats
from jaxagent.rollout.tracked import Group
from jaxagent.rollout.tracker import Deliver, HandedOut, Hooks, RolloutTracker
from jaxagent.rollout.watchdog import Watchdog

_LONGEST_WAIT_S = 60.0
_TICK_S = 1.0


class Scheduler:
  """Collects batches of finished interactions. See `SchedulerConfig`.

  Args:
    workers: sampler, executor, their inbox and clock.
    journal: None where nothing is to be resumed.
    log: gets a line for each rollout that ends; None for none.
    deliver: gets each rollout as it ends, where there is no learner.

  Raises:
    ValueError: the batch is larger than the pool, or the group sizes differ.
  """

  def __init__(
    self,
    source: Source | Feed,
    interaction: Interaction,
    workers: Workers,
    config: SchedulerConfig,
    *,
    journal: Journal | None = None,
    log: RolloutLog | None = None,
    deliver: Deliver | None = None,
  ):
    if isinstance(source, Feed) != (deliver is not None):
      raise ValueError('a Feed and `deliver` go together: without a learner.')
    if not isinstance(source, Feed):
      _check_fit(source, config)
    executor = workers.executor
    if executor.capacity < 1:
      raise ValueError(f'executor.capacity={executor.capacity} must be >= 1.')
    self.config = config
    self._sampler, self._executor = workers.sampler, executor
    self._inbox, self._clock = workers.inbox, workers.clock
    self._journal, self._log = journal, log
    self._policy = make_policy(config) if deliver is None else Everything()
    # Executions with the executor: key -> (submitted at, attempt), in order.
    self._running: dict[Key, tuple[float, int]] = {}
    # Completions that are being drawn: role -> key -> asked at.
    self._asked: dict[str, dict[Key, float]] = {r: {} for r in config.roles}
    self._at_once = {role: config.max_decoding for role in config.roles}
    self._at_once |= config.max_concurrency
    self._in_flight = config.max_in_flight or (
      executor.capacity + sum(n or 0 for n in self._at_once.values())
    )
    self._again: collections.deque[HandedOut] = collections.deque()
    self._version = 0
    self._ahead = 0  # the policy's version before it was killed
    self._held = False
    self._lock = threading.RLock()
    now = workers.clock.now()
    self._watchdog = Watchdog(config.watchdog_s, now, config.lost_limit)
    self.stats = Stats(now, executor.slots)
    self._stopwatch = LatencyTracker(
      config.max_staleness, config.n_groups, config.wave
    )
    self.ledger = Ledger()
    self._book = RolloutTracker(
      source,
      interaction,
      self.ledger,
      config,
      Hooks(self._count, self._cancel, log, deliver),
    )

  # The loop's side -----------------------------------------------------------

  def next_batch(
    self, version: int, tick: Callable[[], None] | None = None
  ) -> CollectedBatch:
    """Blocks until an update's interactions are there.

    Args:
      version: the present policy version (updates done so far); new
        completions are drawn from it, and staleness is counted to it.
      tick: called once a second at least while it waits; may raise.

    Returns:
      The rows of batch_size interactions (fewer where members of a group were
      quarantined, or at the end of a finite source).

    Raises:
      StalledError: nothing has moved for watchdog_s, or every prompt is
        quarantined.
      SourceExhausted: a finite source has ended and nothing is left.
    """
    start = self._clock.now()
    self._watchdog.moved(start)
    with self._lock:
      self._set_version(version)
      if self._again:
        return self._hand_out_again(version, start)
      self._policy.begin(self._book.buffer)
    while True:
      with self._lock:
        self._take_in(self._inbox.take(0.0))
        self._drop_stale(version)
        self._fill()
        chosen = self._policy.choose(self._book.buffer, version)
        if chosen is None and not self._busy:
          chosen = self._last_chance()
        if chosen is not None:
          return self._emit(chosen, version, start)
      if tick is not None:
        tick()
      with self._lock:
        timeout = self._patience()
      if tick is not None:
        timeout = min(timeout, _TICK_S)
      results = self._inbox.take(timeout)
      with self._lock:
        self._take_in(results)

  def hold(self) -> None:
    """Issues nothing more: the run is to stop. Takes no lock."""
    self._held = True

  def work(self, version: int, timeout_s: float = 0.0) -> int:
    """Takes in what has finished and issues what can be; returns how much.

    Waits up to timeout_s for something to finish. Between two batches, or on
    another thread while the learner computes.
    """
    results = self._inbox.take(timeout_s)
    with self._lock:
      self._set_version(version)
      self._take_in(results)
      return len(results) + self._fill()

  def run_out(self, tick: Callable[[], None] = lambda: None) -> None:
    """Blocks until the source has nothing left to give and no rollout is open.

    For a scheduler without a learner.

    Args:
      tick: called once a second at least, and after each result; may raise.

    Raises:
      StalledError: nothing has moved for watchdog_s.
    """
    self._watchdog.moved(self._clock.now())
    results: list[GenerationResult | ExecutionResult] = []
    while True:
      with self._lock:
        self._take_in(results)
        self._fill()
        ended = not (self._busy or self._book.pending or self._book.calls)
        if ended and not self._held:
          return
      tick()
      if ended:  # nothing was issued any more, and what is there is a part
        raise StalledError(
          'the scheduler was told to hold, and is not stopped.'
        )
      with self._lock:
        timeout = self._patience()
      results = self._inbox.take(min(timeout, _TICK_S))

  def mark_trained(self, prompt_ids: Iterable[str], update: int) -> None:
    """The interactions of a batch are in the parameters. Once each.

    Raises:
      LedgerError: an id is not of an emitted batch, or was marked before.
    """
    ids = list(prompt_ids)
    with self._lock:
      self._book.train(ids, update)
      self._note(events.trained(update, ids))

  def close(self) -> None:
    """Waits up to drain_s for what runs, then stops the rest."""
    end = self._clock.now() + self.config.drain_s
    try:
      while self._running and self._clock.now() < end:
        results = self._inbox.take(end - self._clock.now())
        with self._lock:
          self._take_in(results)
    finally:  # a full disk, say, which ends the run
      for key in [*self._running, *itertools.chain(*self._asked.values())]:
        self._cancel(key)
      self._book.halt()
      self._sampler.close()
      self._executor.close()

  # State ---------------------------------------------------------------------

  def checkpoint(self) -> dict[str, Any]:
    """JSON-able state. What happens later is in the journal's segments from
    `segment` on."""
    with self._lock:
      results, segment = self._inbox.take_and_begin()
      self._take_in(results)
      return {
        'format': 2,
        'segment': segment,
        'seed': self.config.seed,
        'group_size': self.config.group_size,
        'version': self._version,
        'ahead': self._ahead,
        'again': [e for b in self._again for e in _events_of(b)],
        'book': self._book.state_dict(),
        'totals': dict(self.stats.total),
        'sojourns': self._stopwatch.state_dict(),
      }

  def resume(self, state: dict[str, Any] | None) -> None:
    """Resumes after a kill; call it before the first batch.

    Args:
      state: of the checkpoint; None where there is none yet.

    Raises:
      ValueError: another seed or group size, or something is under way.
      LedgerError: ledger and open groups contradict each other.
      JournalError: the journal is damaged, or of another run.
    """
    if self._book.under_way:
      raise ValueError('resume: interactions are under way already.')
    if state is not None:
      self._check_same(state)
      self._version = int(state['version'])
      self.stats.total.update(state['totals'])
      self._stopwatch.load_state_dict(state['sojourns'])
      self._book.load_state_dict(state['book'])
    if self._journal is not None:
      state = state or {'segment': 0, 'again': (), 'ahead': 0}
      happened = self._journal.events(state['segment'])
      again, ahead = self._book.fold(itertools.chain(state['again'], happened))
      self._again.extend(again)
      self._ahead = max(ahead, state['ahead'])
      self._watchdog.forgive()
      self._journal.begin()

  def _check_same(self, state: dict[str, Any]) -> None:
    for name, mine in (
      ('seed', self.config.seed),
      ('group_size', self.config.group_size),
    ):
      if state[name] != mine:
        raise ValueError(
          f'the checkpoint was made with {name}={state[name]}, this run has '
          f'{name}={mine}.'
        )

  # Issuing -------------------------------------------------------------------

  @property
  def _busy(self) -> bool:
    return bool(self._running or any(self._asked.values()))

  def _set_version(self, version: int) -> None:
    if version < self._version:
      raise ValueError(
        f'version={version} is below {self._version}, which was given before.'
      )
    self._version = version
    if self._log is not None:
      self._log.version = version

  def _fill(self) -> int:
    """Issues what can be issued; returns how many calls."""
    if self._held:
      return 0
    if self._again or self._version < self._ahead:
      # The policy is older than it was: nothing is drawn from it.
      return self._submit()
    self._begin_more()
    issued = 0
    # More than once for a sampler that answers at once.
    while now := self._submit() + self._ask():
      issued += now
    return issued

  def _begin_more(self) -> None:
    book = self._book
    free = self._in_flight - len(book.under_way)
    if free < min(self.config.refill, self._in_flight):
      return
    while len(book.under_way) < self._in_flight:
      self._watchdog.check_lost(self._last_reason)
      member = self._next_member()
      if member is None:
        return
      self._note(events.begun(member.prompt_id, member.draws + 1))
      group_id, now = member.group.group_id, self._clock.now()
      self._stopwatch.begin(group_id, self._version, now)
      book.begin(member)

  def _next_member(self):
    book = self._book
    if not self._policy.may_begin():
      return None
    if not book.pending:
      if book.exhausted or not self._policy.may_draw(book.buffer):
        return None
      group = book.draw()
      if group is None:
        return None
      self._note(events.drawn(group.group_id, group.key))
    return next(iter(book.pending.values()))

  def _ask(self) -> int:
    book, asks, now = self._book, [], self._clock.now()
    for role, waiting in book.asks.items():
      asked = self._asked[role]
      limit = self._at_once[role] or len(asked) + len(waiting)
      while waiting and len(asked) < limit:
        key = waiting.popleft()
        if key not in book.calls:
          continue  # it was given up while it waited
        member, call = book.calls[key]
        self._note(events.asked(key))
        asked[key] = now
        self._issued(key)
        assert isinstance(call, Generate)  # `asks` holds no other
        asks.append(GenerationRequest(key, member.prompt, call))
    if asks:
      self._sampler.submit(asks)
      self._take_in(self._inbox.take(0.0))
    return len(asks)

  def _submit(self) -> int:
    book, issued = self._book, 0
    while book.works and len(self._running) < self._executor.capacity:
      key = book.works.popleft()
      if key not in book.calls:
        continue  # it was given up while it waited
      member, call = book.calls[key]
      attempt = book.issued(key)
      self._note(events.submitted(key, attempt))
      now = self._clock.now()
      self._running[key] = (now, attempt)
      self.stats.running(now, len(self._running))
      self.stats.add('issued')
      self._issued(key)
      assert isinstance(call, Execute)  # `works` holds no other
      self._executor.submit(ExecutionRequest(key, member.prompt, call, attempt))
      issued += 1
    return issued

  def _issued(self, key: Key) -> None:
    if self._log is not None:
      self._log.issued(key)

  def _count(self, name: str) -> None:
    self.stats.add(name)
    self._watchdog.count(name)

  def _last_reason(self) -> str:
    """Returns the last quarantined prompt and its reason."""
    prompt_id, reason = next(reversed(self.ledger.quarantined().items()))
    return f'{prompt_id}: {reason}'

  def _note(self, event: dict[str, Any]) -> None:
    if self._journal is not None:
      self._journal.append(event | {'v': self._version})

  # Taking in -----------------------------------------------------------------

  def _take_in(
    self, results: Iterable[GenerationResult | ExecutionResult]
  ) -> None:
    for result in results:
      now = self._clock.now()
      if isinstance(result, GenerationResult):
        awaited = self._forget_ask(result.key)
      else:
        awaited = self._end(result, now)
      group = self._book.group_of(result.key)
      if awaited and self._book.take(result):
        self._watchdog.moved(now)
        if group is not None and group.settled:
          at = getattr(result, 'finished_at', 0.0) or now
          self._stopwatch.end(group.group_id, min(at, now))
      else:
        self.stats.add('ignored')  # cancelled or lost before, or twice
    self._expire_leases()

  def _forget_ask(self, key: Key) -> bool:
    """Removes a pending request; returns whether there was one."""
    asked = self._asked.values()
    return any(of_role.pop(key, None) is not None for of_role in asked)

  def _end(self, result: ExecutionResult, now: float) -> bool:
    """An execution has ended; False where it is not the awaited one."""
    started, attempt = self._running.get(result.key, (0.0, -1))
    if attempt != result.attempt:
      return False
    del self._running[result.key]
    at = min(now, max(started, result.finished_at or now))
    self.stats.running(at, len(self._running))
    executed = result.executed
    if not executed.outcome.is_infrastructure:
      self.stats.dispatched.append(executed.exec_s)
      self.stats.finished.append(executed.exec_s)
    return True

  def _expire_leases(self) -> None:
    now = self._clock.now()
    while self._lease_left(now) <= 0:
      key, (_, attempt) = next(iter(self._running.items()))
      self._note(events.expired(key, attempt))
      self._watchdog.moved(now)
      error = f'no answer within lease_s={self.config.lease_s:g}'
      self._book.expire(key, attempt, error)

  def _lease_left(self, now: float) -> float:
    """Seconds until the first lease can end: works begin in their order."""
    lease = self.config.lease_s
    if lease is None or not self._running:
      return float('inf')
    started = self._executor.begun(next(iter(self._running)))
    return lease if started is None else started + lease - now

  def _cancel(self, key: Key) -> None:
    """The call is no longer wanted."""
    if self._forget_ask(key):
      self._sampler.cancel(key)
    if key in self._running:
      started, _ = self._running.pop(key)
      now = self._clock.now()
      self._executor.cancel(key)
      self.stats.running(now, len(self._running))
      self.stats.dispatched.append(now - started)

  def _discard(
    self, group: Group, fate: Fate, count: Callable[[float], None]
  ) -> None:
    """Throws a group away, to begin anew; `count` gets each age in seconds."""
    now = self._clock.now()
    for member in group.members:
      if member.finished:
        count(sum(s.exec_s for s in member.samples))
      for key in member.keys:
        if key in self._running:
          count(now - self._running[key][0])
    self._note(events.discarded(group.group_id, fate))
    self._stopwatch.discard(group.group_id, now)
    self._book.discard(group, fate)

  def _drop_stale(self, version: int) -> None:
    bound, buffer = self.config.max_staleness, self._book.buffer
    if (
      bound is None
      or self.config.on_stale != 'drop'
      or self.config.rest != 'carry_over'
      or min(buffer.by_version, default=version) >= version - bound
    ):
      return
    for group in list(buffer.groups.values()):
      if group.version is not None and group.version < version - bound:
        self._discard(group, Fate.STALE, self.stats.drop)

  # Batches -------------------------------------------------------------------

  def _last_chance(self) -> list[Group] | None:
    """Returns what is ready if nothing runs and nothing can be issued."""
    book, n = self._book, self.config.n_groups
    buffer = book.buffer
    if book.pending or book.calls:
      return None
    if len(buffer.ready) >= n:
      return buffer.oldest(n)
    if not book.exhausted:
      return None
    if buffer.ready:
      return buffer.oldest(n)
    raise SourceExhausted(
      'the prompt source has ended and every prompt is trained or '
      f'quarantined: {self.ledger.counts()}'
    )

  def _emit(
    self, chosen: list[Group], version: int, start: float
  ) -> CollectedBatch:
    batch = HandedOut(version, chosen)
    self._note(_event_of(batch))
    self._book.emit(chosen)
    self._policy.handed_out()
    for group in self._policy.leftover(self._book.buffer):
      count = lambda s: self.stats.add('cancelled')
      self._discard(group, Fate.CANCELLED, count)
    return self._hand_out(batch, start)

  def _hand_out_again(self, version: int, start: float) -> CollectedBatch:
    first = self._again.popleft()
    if first.version != version:
      raise ValueError(
        f'the journal continues with batch version {first.version}, not '
        f'{version}.'
      )
    self._policy.handed_out()
    # Once more: a checkpoint may have been taken since the first time.
    self._note(_event_of(first))
    return self._hand_out(first, start)

  def _hand_out(self, batch: HandedOut, start: float) -> CollectedBatch:
    samples = [s for group in batch.groups for s in group.samples]
    now = self._clock.now()
    self.stats.add('batches')
    stats = self.stats.snapshot(
      now, samples, batch.version, now - start, self.config.max_staleness
    )
    # Again, those of the first time: the journal of a killed run knows of more
    # than was under way then.
    gauges = batch.gauges or self._gauges()
    self._note(events.gauges(batch.version, gauges))
    sojourns = self._stopwatch.batch(batch.groups, batch.version, now)
    return CollectedBatch(tuple(samples), stats | gauges, sojourns)

  def _gauges(self) -> dict[str, float]:
    return {
      'buffer/size': float(self._book.buffer.n_finished),
      'buffer/running': float(len(self._running)),
      'buffer/generating': float(sum(map(len, self._asked.values()))),
      'buffer/in_flight': float(len(self._book.under_way)),
      'buffer/pending': float(len(self._book.pending)),
    }

  def _patience(self) -> float:
    """Seconds to wait for a result at most. Raises where waiting is vain."""
    now, book = self._clock.now(), self._book
    if self._watchdog.left(now) <= 0:
      self._watchdog.check(now, self._stages())
    if not self._busy and not book.pending and not book.calls:
      raise StalledError(
        'nothing runs, nothing can be issued and the batch is not complete: '
        f'{self.ledger.counts()}. Quarantined: {self.ledger.quarantined()}'
      )
    timeout = min(
      self._watchdog.left(now), _LONGEST_WAIT_S, self._lease_left(now)
    )
    # Rounding must not leave a wait too short to move the clock.
    return max(timeout, 1e-3)

  def _stages(self) -> list[tuple[str, str, float]]:
    now = self._clock.now()
    stages = [
      (str(key), f'running (attempt {attempt})', now - at)
      for key, (at, attempt) in self._running.items()
    ]
    stages += [
      (str(key), f'generating ({role})', now - at)
      for role, asked in self._asked.items()
      for key, at in asked.items()
    ]
    return stages + [(i, 'pending', 0.0) for i in self._book.pending]


def _event_of(batch: HandedOut) -> dict[str, Any]:
  return events.batch(batch.version, [g.group_id for g in batch.groups])


def _events_of(batch: HandedOut) -> list[dict[str, Any]]:
  if batch.gauges is None:
    return [_event_of(batch)]
  return [_event_of(batch), events.gauges(batch.version, batch.gauges)]


def _check_fit(source: Source, config: SchedulerConfig) -> None:
  if source.group_size != config.group_size:
    raise ValueError(
      f'the source draws groups of {source.group_size}, the scheduler counts '
      f'groups of {config.group_size}.'
    )
  size = source.size * config.group_size
  if config.batch_size > size:
    raise ValueError(
      f'batch_size={config.batch_size} is larger than the pool: '
      f'{source.size} items x group_size {config.group_size} = {size} prompts '
      'an epoch. Use a smaller batch or a larger pool or group.'
    )
