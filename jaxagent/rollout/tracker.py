"""State of every rollout of a run.

It changes by events alone: the scheduler's, as they happen, or a journal's,
folded once more. It knows no clock, sampler or executor.
"""

from __future__ import annotations

import collections
import dataclasses
import json
from collections.abc import Callable, Collection, Iterable
from typing import Any

from jaxagent.data.ledger import Ledger, LedgerError, Status
from jaxagent.data.prompts import Drawn, Feed, Source
from jaxagent.interactions import (
  POLICY,
  Call,
  Execute,
  Generate,
  Interaction,
  InteractionError,
  RolloutState,
  rows,
)
from jaxagent.rollout import events, tracked
from jaxagent.rollout.buffer import Buffer
from jaxagent.rollout.journal import JournalError
from jaxagent.rollout.records import SchedulerConfig
from jaxagent.rollout.requests import ExecutionResult, GenerationResult, Key
from jaxagent.rollout.rollout_log import Fate, RolloutLog
from jaxagent.rollout.tracked import Group, TrackedRollout
from jaxagent.types import Completion, NoReward, Prompt

# A rollout that has ended, with what it did: '' or the infrastructure error that ended
# it. The progress is None where it never began.
Deliver = Callable[[Prompt, RolloutState | None, str], None]


@dataclasses.dataclass(frozen=True)
class Hooks:
  """Callbacks of the tracker.

  count: called with the name of each thing that is counted.
  cancel: called with the key of each call that is no longer wanted.
  log: gets what becomes of each; None where nothing is to be written.
  deliver: without a learner: gets each rollout as it ends, and no rows are made.
    Failures are counted by call then, not by prompt, and the source is a `Feed`.
  """

  count: Callable[[str], None]
  cancel: Callable[[Key], None]
  log: RolloutLog | None = None
  deliver: Deliver | None = None


@dataclasses.dataclass
class HandedOut:
  """A batch that was handed out for the update of a version.

  gauges: what was logged of the buffer with it; None where the journal ends
    before that, or is older than this field.
  """

  version: int
  groups: list[Group]
  gauges: dict[str, float] | None = None


class RolloutTracker:
  """Groups, members and their open calls.

  buffer: open groups. pending: prompt id -> member that is to begin.
  asks, works: keys of calls that wait to be issued, in order. calls: key ->
  (member, call) of every open call. under_way: prompt ids that have begun and
  not ended. emitted: prompt id -> group of a batch that was handed out and is
  not trained.
  """

  def __init__(
    self,
    source: Source | Feed,
    interaction: Interaction,
    ledger: Ledger,
    config: SchedulerConfig,
    hooks: Hooks,
  ):
    self.ledger = ledger
    self.source = source
    self.exhausted = False
    self._interaction, self._roles = interaction, config.roles
    self._max_attempts = config.max_attempts
    self._count, self._cancel = hooks.count, hooks.cancel
    self._log, self._deliver = hooks.log, hooks.deliver
    self._seq = 0
    self.clear()

  def clear(self) -> None:
    """Forgets every group."""
    self.buffer = Buffer()
    self.pending: collections.OrderedDict[str, TrackedRollout] = (
      collections.OrderedDict()
    )
    self.asks: dict[str, collections.deque[Key]] = {
      role: collections.deque() for role in self._roles
    }
    self.works: collections.deque[Key] = collections.deque()
    self.calls: dict[Key, tuple[TrackedRollout, Call]] = {}
    self.attempts: collections.Counter[Key] = collections.Counter()
    self._failures: collections.Counter[Key] = collections.Counter()
    self.emitted: dict[str, Group] = {}
    self.under_way: set[str] = set()

  # Events ---------------------------------------------------------------------

  def draw(self) -> Group | None:
    """One more group out of the source; None where it has ended."""
    drawn = self.source.draw()
    # A feed may be given more later.
    self.exhausted = drawn is None and self._deliver is None
    return None if drawn is None else self._add(drawn)

  def _add(self, drawn: Drawn) -> Group:
    group = Group(drawn.group_id, drawn.key, self._seq)
    self._seq += 1
    for prompt in drawn.prompts:
      self.ledger.add(prompt.prompt_id)
      member = TrackedRollout(prompt, group)
      group.members.append(member)
      self.pending[prompt.prompt_id] = member
    self.buffer.add(group)
    return group

  def begin(self, member: TrackedRollout) -> None:
    """A pending member begins."""
    del self.pending[member.prompt_id]
    member.draws += 1
    if self._log is not None:
      self._log.begun(member)
    self._run(member)
    self.under_way.add(member.prompt_id)
    try:
      member.progress = self._progress(member.prompt)
    except InteractionError as error:
      self._broken(member, error)
      return
    self._open(member, member.progress.open.values())

  def take(self, result: GenerationResult | ExecutionResult) -> bool:
    """Takes in a result; False where none is awaited: cancelled, or late."""
    entry = self.calls.get(result.key)
    if entry is None:
      return False
    if (
      not isinstance(result, GenerationResult)
      and result.attempt != self.attempts[result.key]
    ):
      return False
    if self._log is not None:
      self._log.returned(result)
    if isinstance(result, GenerationResult):
      return self._take_sampled(*entry, result)
    executed = result.executed
    if executed.outcome.is_infrastructure:
      error = executed.message or executed.outcome.value
      self._failed(entry[0], result.key, error, NoReward.of(executed.outcome))
    else:
      self._answer(entry[0], result.key, executed)
    return True

  def expire(self, key: Key, attempt: int, error: str) -> bool:
    """An execution's lease has ended; False where it is not awaited."""
    if key not in self.calls or self.attempts[key] != attempt:
      return False
    self._cancel(key)
    self._count('expired')
    if self._log is not None:
      self._log.expired(key, attempt, error)
    self._failed(self.calls[key][0], key, error, NoReward.LEASE_EXPIRED)
    return True

  def discard(self, group: Group, fate: Fate) -> None:
    """Throws a group's interactions away; its prompts begin anew."""
    for member in group.members:
      if member.finished or member.progress is not None:
        self._end(member)
        self._tell(member, fate)
        self._requeue(member)
        self.pending[member.prompt_id] = member
    self.buffer.reset(group)

  def emit(self, groups: Iterable[Group]) -> None:
    """Hands ready groups out as a batch."""
    for group in groups:
      self.buffer.remove(group)
      for member in group.members:
        if member.finished:
          self.emitted[member.prompt_id] = group

  def train(self, prompt_ids: Collection[str], update: int) -> None:
    """The update that consumed these prompts is in the parameters.

    Raises LedgerError where one was not handed out, or was trained before.
    """
    for prompt_id in prompt_ids:
      if prompt_id not in self.emitted:
        raise LedgerError(
          f'prompt {prompt_id} is in no batch that was handed out and not '
          f'trained (ledger: {self.ledger.status(prompt_id)}).'
        )
    self.ledger.train(prompt_ids, update)
    for prompt_id in prompt_ids:
      group = self.emitted.pop(prompt_id)
      member = next(m for m in group.members if m.prompt_id == prompt_id)
      self._tell(member, Fate.TRAINED, update=update)

  def halt(self) -> None:
    """Ends the run: prompts under way become pending in the ledger."""
    for prompt_id in self.under_way:
      if self.ledger.status(prompt_id) is Status.RUNNING:
        self.ledger.requeue(prompt_id)
    groups = {
      id(g): g for g in (*self.buffer.groups.values(), *self.emitted.values())
    }
    for member in (m for group in groups.values() for m in group.members):
      if member.finished and self.ledger.update_of(member.prompt_id) is None:
        self._tell(member, Fate.UNUSED)
      elif member.prompt_id in self.under_way:
        self._tell(member, Fate.UNFINISHED)

  # Calls ----------------------------------------------------------------------

  def group_of(self, key: Key) -> Group | None:
    """Returns the group of an open call; None if there is no such call."""
    entry = self.calls.get(key)
    return entry[0].group if entry else None

  def issued(self, key: Key) -> int:
    """The call is with its executor; returns the number of the attempt."""
    self._run(self.calls[key][0])
    self.attempts[key] += 1
    return self.attempts[key]

  def _progress(self, prompt: Prompt) -> RolloutState:
    return RolloutState(self._interaction, prompt.payload, roles=self._roles)

  def _open(self, member: TrackedRollout, calls: Iterable[Call]) -> None:
    for call in calls:
      key = Key(member.prompt_id, member.draws, call.call)
      self.calls[key] = (member, call)
      self._queue(call).append(key)

  def _queue(self, call: Call) -> collections.deque[Key]:
    """Returns the queue in which a call waits to be issued."""
    return self.works if isinstance(call, Execute) else self.asks[call.role]

  def _end(self, member: TrackedRollout) -> None:
    """Takes a member out and cancels its open calls."""
    self.under_way.discard(member.prompt_id)
    for key in member.keys:
      if self.calls.pop(key, None) is not None:
        self._cancel(key)
      self.attempts.pop(key, None)
      self._failures.pop(key, None)

  def _take_sampled(
    self, member: TrackedRollout, call: Call, result: GenerationResult
  ) -> bool:
    if result.completion is None:
      self._failed(member, result.key, result.error, NoReward.GENERATION_FAILED)
      return True
    assert isinstance(call, Generate)  # what a completion answers
    if call.role == POLICY:
      assert isinstance(result.completion, Completion)  # text: frozen roles
      self.buffer.set_version(member.group, result.completion.version)
    self._answer(member, result.key, result.completion)
    return True

  def _answer(self, member: TrackedRollout, key: Key, result: Any) -> None:
    del self.calls[key]
    self.attempts.pop(key, None)
    self._failures.pop(key, None)
    assert member.progress is not None  # it has an open call
    try:
      calls = member.progress.take(key.call, result)
    except InteractionError as error:
      self._broken(member, error)
      return
    if member.progress.finished:
      self._finish(member)
    else:
      self._open(member, calls)

  def _finish(self, member: TrackedRollout) -> None:
    progress = member.progress
    if self._deliver is not None:
      self._hand_over(member, '')
      return
    assert progress is not None and progress.credits is not None  # finished
    if self._log is not None:
      self._log.finished(member, progress.credits)
    samples = rows(member.prompt, progress.completions, progress.credits)
    if not samples:
      reasons = [c.reason for c in progress.credits.values() if c.reason]
      reason = reasons[-1] if reasons else NoReward.NOT_CREDITED
      self._broken(
        member, f'no token of it has a reward ({reason.value})', reason
      )
      return
    member.samples, member.progress, member.finished = samples, None, True
    self.under_way.discard(member.prompt_id)
    self._run(member)
    self.ledger.finish(member.prompt_id)
    self._count('finished')
    self.buffer.settle(member)

  def _hand_over(self, member: TrackedRollout, error: str) -> None:
    """Delivers a rollout that has ended, and forgets it; without a learner."""
    self._end(member)
    self.buffer.remove(member.group)
    self._run(member)
    if error:
      self.ledger.quarantine(member.prompt_id, error)
    else:
      self.ledger.finish(member.prompt_id)
      self.ledger.train([member.prompt_id], 0)
    self._count('quarantined' if error else 'finished')
    if self._deliver is not None:
      self._deliver(member.prompt, member.progress, error)

  def replace(self, result: ExecutionResult) -> None:
    """Gives an execution another result; what came after it is asked for anew.

    Ignored where the rollout is not under way or has no such execution.
    """
    key = result.key
    for member in self.buffer.members():
      if member.prompt_id == key.prompt_id and member.progress is not None:
        self._replace(member, member.progress, result)
        return

  def _replace(
    self, member: TrackedRollout, before: RolloutState, result: ExecutionResult
  ) -> None:
    numbers = [call.call for call, _ in before.results]
    if result.key.call not in numbers:
      return
    kept = before.results[: numbers.index(result.key.call)]
    self._end(member)
    try:
      member.progress = progress = self._progress(member.prompt)
      progress.fold((call.call, known) for call, known in kept)
      calls = progress.take(result.key.call, result.executed)
    except InteractionError as error:
      self._broken(member, error)
      return
    self.under_way.add(member.prompt_id)
    if progress.finished:
      self._finish(member)
    else:
      self._open(member, calls)

  # Faults ---------------------------------------------------------------------

  def _failed(
    self, member: TrackedRollout, key: Key, error: str, reason: NoReward
  ) -> None:
    """Takes in an infrastructure error of a call; the same call is tried again."""
    self._count('infrastructure')
    attempts = self._requeue(member, failed=self._deliver is None)
    if self._deliver is not None:
      self._failures[key] += 1
      attempts = self._failures[key]
    if attempts >= self._max_attempts:
      text = f'infrastructure {attempts} times: {error}'
      self._quarantine(member, text, reason)
      return
    _, call = self.calls[key]
    self._queue(call).appendleft(key)

  def _broken(
    self,
    member: TrackedRollout,
    error: InteractionError | str,
    reason: NoReward = NoReward.INTERACTION_BROKEN,
  ) -> None:
    """Restarts a rollout that broke its contract or has no reward."""
    self._count('rejected')
    self._end(member)
    attempts = self._requeue(member, failed=True)
    if attempts >= self._max_attempts:
      self._quarantine(member, f'rejected {attempts} times: {error}', reason)
      return
    self._tell(member, Fate.RESTARTED, reason=reason, message=str(error))
    member.forget()
    self.pending[member.prompt_id] = member
    self.pending.move_to_end(member.prompt_id, last=False)

  def _quarantine(
    self, member: TrackedRollout, message: str, reason: NoReward
  ) -> None:
    if self._deliver is not None:
      self._hand_over(member, message)
      return
    self._end(member)
    self._tell(member, Fate.QUARANTINED, reason=reason, message=message)
    member.forget()
    member.dead = True
    self.ledger.quarantine(member.prompt_id, message)
    self._count('quarantined')
    group = self.buffer.settle(member)
    if group is not None and not group.n_finished:
      self.buffer.remove(group)

  def _tell(self, member: TrackedRollout, fate: Fate, **more: Any) -> None:
    if self._log is not None:
      self._log.ended(member, fate, **more)

  def _run(self, member: TrackedRollout) -> None:
    if self.ledger.status(member.prompt_id) is Status.PENDING:
      self.ledger.start(member.prompt_id)

  def _requeue(self, member: TrackedRollout, failed: bool = False) -> int:
    self._run(member)
    return self.ledger.requeue(member.prompt_id, failed=failed)

  # State ----------------------------------------------------------------------

  @property
  def _pool(self) -> Source:
    if isinstance(self.source, Feed):
      raise ValueError(
        'a feed is no part of checkpoints; its journal is folded.'
      )
    return self.source

  def state_dict(self) -> dict[str, Any]:
    """JSON-able. Calls under way are open again after a load."""
    groups = {id(g): g for g in self.buffer.groups.values()}
    groups |= {id(g): g for g in self.emitted.values()}
    ordered = sorted(groups.values(), key=lambda g: g.seq)
    return {
      'seq': self._seq,
      'ledger': self.ledger.state_dict(),
      'source': self._pool.state_dict(),
      'groups': [tracked.encode(g, self.attempts.__getitem__) for g in ordered],
    }

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Continues from where `state` was taken.

    Raises LedgerError where ledger and groups contradict each other.
    """
    self.clear()
    self._seq = int(state['seq'])
    self._pool.load_state_dict(state['source'])
    self.ledger.load_state_dict(state['ledger'])
    for saved in state['groups']:
      self._adopt(saved)
    mine = [m for m in self.buffer.members() if not m.dead]
    counts = self.ledger.counts()
    open_ = counts['pending'] + counts['running'] + counts['finished']
    if open_ != len(mine):
      raise LedgerError(
        f'the ledger has {open_} open prompts, the saved groups {len(mine)}.'
      )

  def _adopt(self, saved: dict[str, Any]) -> None:
    """Takes in one saved group, without what is trained of it."""
    saved = dict(saved)
    saved['members'] = [
      m
      for m in saved['members']
      if self.ledger.update_of(m['prompt_id']) is None
    ]
    gone: list[str] = []

    def restore(key, prompt_id):
      try:
        return self._pool.restore(key, prompt_id)
      except KeyError:
        gone.append(prompt_id)
        return Prompt(prompt_id, saved['group_id'], None)

    def begin(prompt):
      if prompt.prompt_id in gone:
        return None
      return self._progress(prompt)

    group, attempts = tracked.decode(saved, restore, begin)
    if not group.members:
      return
    self.attempts.update(attempts)
    self.buffer.add(group)
    for member in group.members:
      if member.prompt_id in gone:
        text = 'its item left the pool'
        self.ledger.quarantine(member.prompt_id, text)
        reason = NoReward.PROMPT_GONE
        self._tell(member, Fate.QUARANTINED, reason=reason, message=text)
        member.dead = True
      elif member.progress is not None:
        self.under_way.add(member.prompt_id)
        self._open(member, member.progress.open.values())
      elif not member.settled:
        self.pending[member.prompt_id] = member
    if group.settled:
      if group.n_finished:
        self.buffer.mark_ready(group)
      else:
        self.buffer.remove(group)

  def _drawn_again(self, event: dict[str, Any]) -> set[str]:
    """The group of a `drawn` event; its prompts, if they have to begin anew.

    A source that grew with the updates since (solutions to improve upon) may give
    another prompt now than it did then: the journal's, where it still has it, and
    else its own, whose answers are drawn again.

    A feed may lack a prompt: it was stored before, or waits for a rollout that an
    infrastructure error had ended. What the journal tells of it is passed over.
    """
    if isinstance(self.source, Feed):
      drawn = self.source.recall(event['key'])
      if drawn is None:
        return {event['key']}
      self._add(drawn)
      return set()
    drawn = self.source.draw()
    if drawn is None or drawn.group_id != event['group']:
      raise JournalError(
        f'the journal drew group {event["group"]}, the source now gives '
        f'{drawn and drawn.group_id}: another pool, seed or config, or the '
        'checkpoints are gone.'
      )
    anew: set[str] = set()
    if 'key' in event and _as_kept(drawn.key) != event['key']:
      try:
        prompts = tuple(
          self._pool.restore(event['key'], p.prompt_id) for p in drawn.prompts
        )
        drawn = Drawn(event['key'], drawn.group_id, prompts)
      except KeyError:
        anew = {p.prompt_id for p in drawn.prompts}
    self._add(drawn)
    return anew

  def fold(
    self, journal: Iterable[dict[str, Any]]
  ) -> tuple[list[HandedOut], int]:
    """Applies a journal's events.

    Returns the batches that were handed out meanwhile, in order, and the newest
    version of the policy in them.
    Raises JournalError where the events cannot be this run's.
    """
    batches: dict[int, HandedOut] = {}
    whole, newest = True, 0
    anew: set[str] = set()  # prompts that are not what the journal tells of
    for event in journal:
      kind = event['e']
      newest = max(newest, event.get('v', 0))
      if kind == 'drawn':
        anew.discard(event['group'])  # a feed may have it by now
        anew |= self._drawn_again(event)
      elif event.get('p') in anew:
        continue
      elif kind == 'begun':
        if event['p'] in self.pending:
          self.begin(self.pending[event['p']])
      elif kind == 'submitted':
        key = events.key_of(event)
        if key in self.calls:
          self.attempts[key] = max(self.attempts[key], event['a'])
      elif kind in ('sampled', 'executed'):
        result = events.result_of(event)
        # Without a learner what was lost has new attempts after each start.
        if self._deliver is None or not is_lost(result):
          self.take(result)
      elif kind == 'replaced':
        result = events.result_of(event)
        if isinstance(result, ExecutionResult):
          self.replace(result)
      elif kind == 'expired':
        self.expire(events.key_of(event), event['a'], 'its lease had ended')
      elif kind == 'discarded':
        group = self.buffer.groups.get(event['group'])
        if group is not None:
          # Journals before this field do not say which of the two it was.
          self.discard(group, Fate(event.get('fate', Fate.CANCELLED)))
      elif kind == 'batch' and event['version'] not in batches:
        ready = [self.buffer.ready.get(g) for g in event['groups']]
        batch = [group for group in ready if group is not None]
        whole = whole and len(batch) == len(ready)
        if whole:  # else these and later batches are put together anew
          self.emit(batch)
          batches[event['version']] = HandedOut(event['version'], batch)
      elif kind == 'gauges' and event['version'] in batches:
        handed_out = batches[event['version']]
        handed_out.gauges = handed_out.gauges or event['values']
    return list(batches.values()), newest if whole else 0


def is_lost(result: GenerationResult | ExecutionResult) -> bool:
  """Whether an infrastructure error took the place of a result."""
  if isinstance(result, GenerationResult):
    return result.completion is None
  return result.executed.outcome.is_infrastructure


def _as_kept(key: Any) -> Any:
  """Returns a key as it comes out of a journal."""
  return json.loads(json.dumps(key))
