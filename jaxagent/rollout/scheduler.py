"""Generation, execution, grading and learning overlapped, prompt by prompt.

The loop's thread calls `next_batch` to collect an update's samples, and
`fill` and `poll` between the learner's micro-steps so that slots stay full
while it learns. The scheduler owns no thread and never asks the system for
the time: the same code runs on a virtual clock.

  scheduler = Scheduler(source, sampler, executor, ledger, clock, config)
  batch = scheduler.next_batch(version)
  ...one update...
  scheduler.mark_trained(batch.prompt_ids, update=version)
"""

from __future__ import annotations

import collections
from collections.abc import Iterable
from typing import Any

from jaxagent.clock import Clock
from jaxagent.data.buffer import (
  Buffer,
  Group,
  Member,
  decode_group,
  encode_group,
  fault_of,
)
from jaxagent.data.ledger import Ledger, LedgerError
from jaxagent.data.prompts import Source
from jaxagent.rollout.policies import make_policy
from jaxagent.rollout.records import (
  CollectedBatch,
  Executor,
  Sampler,
  SchedulerConfig,
  SourceExhausted,
  StalledError,
  Work,
  WorkResult,
)
from jaxagent.rollout.scheduler_stats import Stats
from jaxagent.rollout.watchdog import Watchdog
from jaxagent.types import Prompt

__all__ = [
  'CollectedBatch',
  'Executor',
  'Sampler',
  'Scheduler',
  'SchedulerConfig',
  'SourceExhausted',
  'StalledError',
  'Work',
  'WorkResult',
]

_LONGEST_WAIT_S = 60.0


class Scheduler:
  """Collects batches of finished samples. See `SchedulerConfig`.

  Raises:
    ValueError: the batch is larger than the pool, or the group sizes differ.
  """

  def __init__(
    self,
    source: Source,
    sampler: Sampler,
    executor: Executor,
    ledger: Ledger,
    clock: Clock,
    config: SchedulerConfig,
    seed: int = 0,
  ):
    _check_fit(source, executor, config)
    self.config = config
    self.ledger = ledger
    self._source = source
    self._sampler = sampler
    self._executor = executor
    self._clock = clock
    self._seed = seed
    self._policy = make_policy(config)
    self._buffer = Buffer()
    self._pending: collections.deque[Member] = collections.deque()
    # prompt id -> (member, submitted at, attempt), oldest first.
    self._running: dict[str, tuple[Member, float, int]] = {}
    self._consumed: dict[str, Group] = {}
    self._submissions: collections.Counter[str] = collections.Counter()
    self._seq = 0
    self._version = 0
    self._exhausted = False
    now = clock.now()
    self._watchdog = Watchdog(config.watchdog_s, now)
    slots = getattr(executor, 'slots', executor.capacity)
    self._begun = getattr(executor, 'begun', None)
    self.stats = Stats(now, slots)

  # The loop's side -----------------------------------------------------------

  def next_batch(self, version: int) -> CollectedBatch:
    """Blocks until an update's samples are there.

    Args:
      version: the present policy version (updates done so far); new prompts
        are sampled from it, and staleness is counted to it.

    Returns:
      batch_size samples (fewer where members of a group were quarantined, or
      at the end of a finite source).

    Raises:
      StalledError: nothing has moved for watchdog_s.
      SourceExhausted: a finite source has ended and nothing is left.
    """
    start = self._clock.now()
    self._watchdog.moved(start)
    self._set_version(version)
    self._policy.begin(self._buffer)
    while True:
      self.poll()
      self._drop_stale(version)
      self.fill(version)
      chosen = self._policy.choose(self._buffer, version)
      if chosen is None and not self._running:
        chosen = self._last_chance()
      if chosen is not None:
        return self._emit(chosen, version, start)
      self._block()

  def fill(self, version: int) -> int:
    """Issues prompts until every free slot is taken; returns how many."""
    self._set_version(version)
    free = self._executor.capacity - len(self._running)
    if free < min(self.config.refill, self._executor.capacity):
      return 0
    members = []
    while len(members) < free:
      member = self._next_member()
      if member is None:
        break
      members.append(member)
    if not members:
      return 0
    self._sample([m for m in members if m.completion is None], version)
    issued = 0
    for member in members:
      if member.completion.finish_reason == 'abort':
        self._failed(member, 'the sampler aborted', 'infrastructure')
        continue
      self._submit(member)
      issued += 1
    return issued

  def poll(self) -> int:
    """Takes in what has finished, without blocking; returns how many."""
    results = self._executor.wait(0.0)
    self._harvest(results)
    self._expire_leases()
    return len(results)

  def mark_trained(self, prompt_ids: Iterable[str], update: int) -> None:
    """The samples of a batch are in the parameters. Once each.

    Raises:
      LedgerError: an id is not of an emitted batch, or was marked before.
    """
    ids = list(prompt_ids)
    for prompt_id in ids:
      if prompt_id not in self._consumed:
        raise LedgerError(
          f'prompt {prompt_id} is in no batch that was handed out and not '
          f'trained (ledger: {self.ledger.status(prompt_id)}).'
        )
    self.ledger.train(ids, update)
    for prompt_id in ids:
      del self._consumed[prompt_id]

  def close(self) -> None:
    """Waits up to drain_s for running samples, then stops the rest."""
    end = self._clock.now() + self.config.drain_s
    while self._running and self._clock.now() < end:
      left = end - self._clock.now()
      self._harvest(self._executor.wait(left))
    for prompt_id in list(self._running):
      self._stop(prompt_id)
    self._executor.close()

  # State ---------------------------------------------------------------------

  def state_dict(self) -> dict[str, Any]:
    """JSON-able: ledger, source, open groups with finished samples.

    Running prompts keep their completion, so that after a load the same
    action is executed again: drawing anew would prefer the quick ones.
    """
    groups = list(self._buffer.groups.values())
    groups += {g.group_id: g for g in self._consumed.values()}.values()
    return {
      'format': 1,
      'seed': self._seed,
      'group_size': self.config.group_size,
      'seq': self._seq,
      'version': self._version,
      'ledger': self.ledger.state_dict(),
      'source': self._source.state_dict(),
      'groups': [encode_group(g) for g in sorted(groups, key=lambda g: g.seq)],
      'totals': dict(self.stats.total),
    }

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Goes on where `state` was taken; call it before the first batch.

    Raises:
      ValueError: another seed or group size, or prompts are running.
      LedgerError: ledger and open groups contradict each other.
    """
    if self._running:
      raise ValueError('load_state_dict: prompts are running already.')
    for name, mine in (
      ('seed', self._seed),
      ('group_size', self.config.group_size),
    ):
      if state[name] != mine:
        raise ValueError(
          f'the checkpoint was made with {name}={state[name]}, this run has '
          f'{name}={mine}.'
        )
    self._source.load_state_dict(state['source'])
    self.ledger.load_state_dict(state['ledger'])
    self._seq = int(state['seq'])
    self._version = int(state['version'])
    self.stats.total.update(state['totals'])
    self._buffer = Buffer()
    self._pending.clear()
    self._consumed.clear()
    for record in state['groups']:
      self._adopt(record)
    self._check_open()

  def _adopt(self, record: dict[str, Any]) -> None:
    """Takes in one saved group: finished members stay, others go again."""
    trained = {
      m['prompt_id']
      for m in record['members']
      if self.ledger.update_of(m['prompt_id']) is not None
    }
    record = dict(record)
    record['members'] = [
      m for m in record['members'] if m['prompt_id'] not in trained
    ]
    group = decode_group(record, self._restore)
    if not group.members:
      return
    for member in group.members:
      member.group = group
      if not member.settled and member.prompt.payload is _GONE:
        self.ledger.quarantine(member.prompt_id, 'its item left the pool')
        member.dead = True
    self._buffer.add(group)
    for member in group.members:
      if not member.settled:
        self._pending.append(member)
    if group.settled:
      self._revive(group)

  def _revive(self, group: Group) -> None:
    if group.samples:
      self._buffer.mark_ready(group)
    else:
      self._buffer.remove(group)

  def _restore(self, key: Any, prompt_id: str) -> Any:
    try:
      return self._source.restore(key, prompt_id)
    except KeyError:
      return Prompt(prompt_id, prompt_id.rsplit('/', 1)[0], _GONE)

  def _check_open(self) -> None:
    mine = {m.prompt_id for m in self._buffer.members() if not m.dead}
    counts = self.ledger.counts()
    open_ = counts['pending'] + counts['running'] + counts['finished']
    if open_ != len(mine):
      raise LedgerError(
        f'the ledger has {open_} open prompts, the saved groups {len(mine)}.'
      )

  # Issuing -------------------------------------------------------------------

  def _set_version(self, version: int) -> None:
    if version < self._version:
      raise ValueError(
        f'version={version} is below {self._version}, which was given before.'
      )
    self._version = version

  def _next_member(self) -> Member | None:
    if self._pending:
      return self._pending.popleft()
    if self._exhausted or not self._policy.may_draw(self._buffer):
      return None
    drawn = self._source.draw()
    if drawn is None:
      self._exhausted = True
      return None
    group = Group(drawn.group_id, drawn.key, self._seq)
    self._seq += 1
    for prompt in drawn.prompts:
      self.ledger.add(prompt.prompt_id)
      group.members.append(Member(prompt, group))
    self._buffer.add(group)
    self._pending.extend(group.members)
    return self._pending.popleft()

  def _sample(self, members: list[Member], version: int) -> None:
    if not members:
      return
    prompts = [m.prompt for m in members]
    completions = list(self._sampler(prompts, version))
    if len(completions) != len(prompts):
      raise ValueError(
        f'the sampler returned {len(completions)} completions for '
        f'{len(prompts)} prompts.'
      )
    for member, completion in zip(members, completions):
      member.completion = completion
      self._buffer.set_version(member.group, completion.version)

  def _submit(self, member: Member) -> None:
    prompt_id = member.prompt_id
    now = self._clock.now()
    self._submissions[prompt_id] += 1
    attempt = self._submissions[prompt_id]
    self.ledger.start(prompt_id)
    self._running[prompt_id] = (member, now, attempt)
    self.stats.running(now, len(self._running))
    self.stats.add('issued')
    self._executor.submit(Work(member.prompt, member.completion, attempt))

  # Taking in -----------------------------------------------------------------

  def _harvest(self, results: Iterable[WorkResult]) -> None:
    for result in results:
      entry = self._running.get(result.prompt_id)
      if entry is None or result.attempt not in (-1, entry[2]):
        self.stats.add('ignored')  # cancelled or lost before, or twice
        continue
      member, started, _ = self._running.pop(result.prompt_id)
      now = self._clock.now()
      at = min(now, max(started, result.finished_at or now))
      self.stats.running(at, len(self._running))
      self._watchdog.moved(now)
      self._judge(member, result, at - started)

  def _judge(self, member: Member, result: WorkResult, age_s: float) -> None:
    sample = result.sample
    if result.outcome.is_infrastructure or (
      sample is not None and sample.outcome.is_infrastructure
    ):
      error = result.error or result.outcome.value
      self._failed(member, error, 'infrastructure')
      return
    fault = fault_of(sample)
    if fault:
      self._failed(member, fault, 'rejected')
      return
    self.ledger.finish(member.prompt_id)
    self.stats.add('finished')
    self.stats.dispatched.append(sample.exec_s)
    self.stats.finished.append(sample.exec_s)
    member.sample = sample
    self._submissions.pop(member.prompt_id, None)
    if sample.version < (member.group.version or 0):
      self._buffer.set_version(member.group, sample.version)
    self._buffer.settle(member)

  def _failed(self, member: Member, error: str, kind: str) -> None:
    """A failure of ours: the same completion again, up to max_attempts."""
    self.stats.add(kind)
    prompt_id = member.prompt_id
    if self.ledger.status(prompt_id).value == 'pending':  # never submitted
      self.ledger.start(prompt_id)
      member.completion = None
    attempts = self.ledger.requeue(prompt_id, failed=True)
    if attempts < self.config.max_attempts:
      self._pending.appendleft(member)
      return
    self.ledger.quarantine(prompt_id, f'{kind} {attempts} times: {error}')
    self.stats.add('quarantined')
    member.dead = True
    group = self._buffer.settle(member)
    if group is not None and not group.samples:
      self._buffer.remove(group)

  def _expire_leases(self) -> None:
    now = self._clock.now()
    while self._lease_left(now) <= 0:
      prompt_id, (member, _, _) = next(iter(self._running.items()))
      self._stop(prompt_id, requeue=False)
      self._watchdog.moved(now)
      self.stats.add('expired')
      error = f'no answer within lease_s={self.config.lease_s:g}'
      self._failed(member, error, 'infrastructure')

  def _lease_left(self, now: float) -> float:
    """Seconds until the first lease can end: works begin in their order."""
    lease = self.config.lease_s
    if lease is None or not self._running:
      return float('inf')
    prompt_id, (_, started, _) = next(iter(self._running.items()))
    if self._begun is not None:
      started = self._begun(prompt_id)
    return lease if started is None else started + lease - now

  def _stop(self, prompt_id: str, requeue: bool = True) -> float:
    """Cancels a running work; returns its age in seconds."""
    member, started, _ = self._running.pop(prompt_id)
    now = self._clock.now()
    self._executor.cancel(prompt_id)
    self.stats.running(now, len(self._running))
    self.stats.dispatched.append(now - started)
    if requeue:
      self.ledger.requeue(prompt_id)
      self._pending.append(member)
    return now - started

  def _discard(self, group: Group, count: Any) -> None:
    """Throws a group's samples away; its prompts are issued again.

    Args:
      group: an open group.
      count: called with the duration of each sample thrown away, in seconds
        (the age, for one that was running).
    """
    for member in group.members:
      prompt_id = member.prompt_id
      if prompt_id in self._running:
        count(self._stop(prompt_id))
      elif member.sample is not None:
        count(member.sample.exec_s)
        self.ledger.requeue(prompt_id)
        self._pending.append(member)
    self._buffer.reset(group)

  def _drop_stale(self, version: int) -> None:
    bound = self.config.max_staleness
    if (
      bound is None
      or self.config.on_stale != 'drop'
      or self.config.rest != 'carry_over'
      or min(self._buffer.by_version, default=version) >= version - bound
    ):
      return
    for group in list(self._buffer.groups.values()):
      if group.version is not None and group.version < version - bound:
        self._discard(group, self.stats.drop)

  # Batches -------------------------------------------------------------------

  def _last_chance(self) -> list[Group] | None:
    """Nothing runs and nothing can be issued: take what is ready."""
    buffer, n = self._buffer, self.config.n_groups
    if self._pending:
      return None
    if len(buffer.ready) >= n:
      return buffer.oldest(n)
    if not self._exhausted:
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
    samples = []
    for group in chosen:
      self._buffer.remove(group)
      for sample in group.samples:
        self._consumed[sample.prompt_id] = group
        samples.append(sample)
    for group in self._policy.leftover(self._buffer):
      self._discard(group, lambda s: self.stats.add('cancelled'))
    now = self._clock.now()
    self.stats.add('batches')
    stats = self.stats.snapshot(
      now, samples, version, now - start, self.config.max_staleness
    )
    stats['buffer/size'] = float(self._buffer.n_finished)
    stats['buffer/running'] = float(len(self._running))
    stats['buffer/pending'] = float(len(self._pending))
    return CollectedBatch(tuple(samples), stats)

  def _block(self) -> None:
    now = self._clock.now()
    if self._watchdog.left(now) <= 0:
      self._watchdog.check(now, self._stages())
    if not self._running and not self._pending:
      raise StalledError(
        'nothing runs, nothing can be issued and the batch is not complete: '
        f'{self.ledger.counts()}. Quarantined: {self.ledger.quarantined()}'
      )
    timeout = min(
      self._watchdog.left(now), _LONGEST_WAIT_S, self._lease_left(now)
    )
    # Rounding must not leave a wait too short to move the clock.
    self._harvest(self._executor.wait(max(timeout, 1e-3)))
    self._expire_leases()

  def _stages(self) -> list[tuple[str, str, float]]:
    now = self._clock.now()
    stages = [
      (i, f'running (attempt {a})', now - t)
      for i, (_, t, a) in self._running.items()
    ]
    return stages + [(m.prompt_id, 'pending', 0.0) for m in self._pending]


_GONE = object()


def _check_fit(
  source: Source, executor: Executor, config: SchedulerConfig
) -> None:
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
  if executor.capacity < 1:
    raise ValueError(f'executor.capacity={executor.capacity} must be >= 1.')
