"""Rollouts without a learner: no lock-step, each delivered once, killed anywhere."""

from __future__ import annotations

import collections
import dataclasses

import pytest

from jaxagent.clock import VirtualClock
from jaxagent.data.prompts import Feed
from jaxagent.interactions import POLICY
from jaxagent.rollout import under_way
from jaxagent.rollout.journal import Journal
from jaxagent.rollout.records import SchedulerConfig, StalledError
from jaxagent.rollout.requests import ExecutionResult, Workers
from jaxagent.rollout.scheduler import Scheduler
from jaxagent.testing import keyed
from jaxagent.testing.fake_executor import Action, FakeExecutor, Faults
from jaxagent.testing.virtual_inbox import VirtualInbox
from jaxagent.types import Outcome
from tests.rollout.test_journal import Killed, MortalJournal

TURNS = 3


class Run:
  """A stage that delivers, then draws a second rollout for each even first one."""

  def __init__(self, folder, act=keyed.act, n=10, **options):
    self.folder, self.act, self.n, self.options = folder, act, n, options
    self.executed = collections.Counter()

  def live(self, dies=None, torn=False, faults=None):
    """{prompt id: (results, error)}; None where it was killed."""
    self.journal = MortalJournal(self.folder)
    clock = VirtualClock()
    inbox = VirtualInbox(clock, self.journal)
    feed, found = Feed(), {}

    def act(work):
      self.executed[work.key] += 1
      return self.act(work)

    def deliver(prompt, progress, error):
      found[prompt.prompt_id] = (
        [_told(result) for _, result in progress.results],
        error,
      )
      if prompt.payload % 2 == 0 and not prompt.prompt_id.endswith('-2'):
        feed.push(f'{prompt.payload}-2', prompt.payload)

    for i in range(self.n):
      feed.push(str(i), i)
    sampler = keyed.KeyedSampler(inbox)
    scheduler = Scheduler(
      feed,
      keyed.Helped(TURNS),
      Workers(sampler, FakeExecutor(inbox, act, 4, 0, faults), inbox, clock),
      SchedulerConfig(
        1,
        **{
          'watchdog_s': float('inf'),
          'max_in_flight': 100,
          'max_quarantined': 1000,
          'roles': keyed.Helped.roles,
          **self.options,
        },
      ),
      journal=self.journal,
      deliver=deliver,
    )
    self.clock = clock
    try:
      scheduler.resume(None)
      self.journal.dies, self.journal.torn = dies, torn
      scheduler.run_out()
    except Killed:
      return None
    finally:
      self.journal.close()
    scheduler.ledger.check()
    return found


def _told(result):
  if hasattr(result, 'token_ids'):
    return result.token_ids.tolist()
  return result.exec_s, result.record.paid


def test_each_is_delivered_once_with_all_its_results(tmp_path):
  found = Run(tmp_path).live()
  wanted = {str(i) for i in range(10)} | {f'{i}-2' for i in range(0, 10, 2)}
  assert set(found) == wanted
  assert {len(results) for results, _ in found.values()} == {3 * TURNS}
  assert {error for _, error in found.values()} == {''}


@pytest.mark.parametrize('torn', [False, True])
def test_killed_at_any_event_it_delivers_the_same(tmp_path, torn):
  whole = Run(tmp_path / 'whole')
  wanted = whole.live()
  n = sum(1 for _ in Journal(tmp_path / 'whole').events())
  run, ended, dies = Run(tmp_path / 'killed'), None, 0
  while ended is None:
    dies = (dies * 7 + 5) % 29
    ended = run.live(dies, torn)
  assert ended == wanted and n > 200
  # What had finished and was journalled is not carried out again.
  done = collections.Counter()
  for event in Journal(tmp_path / 'killed').events():
    if event['e'] == 'executed':
      done[event['p'], event['c']] += 1
  assert set(done.values()) == {1}


def test_a_slow_execution_holds_up_no_other_rollout(tmp_path):
  slow = lambda work: Action(100.0 if work.key.prompt_id == '1' else 1.0)
  run = Run(tmp_path, slow, n=4)
  run.live()
  # In lock-step each of the others would wait twice for it: 2 * TURNS * 100.
  assert run.clock.now() == pytest.approx(TURNS * 100.0)


def test_a_rollout_whose_call_keeps_failing_is_delivered_with_its_error(
  tmp_path,
):
  def act(work):
    bad = work.key.prompt_id == '3' and work.key.call > 2
    outcome = Outcome.INFRASTRUCTURE if bad else Outcome.OK
    return Action(1.0, outcome=outcome)

  run = Run(tmp_path, act, n=4, max_attempts=3)
  found = run.live()
  assert [i for i, (_, error) in found.items() if error] == ['3']
  results, error = found['3']
  assert error.startswith('infrastructure 3 times') and len(results) == 5
  assert max(run.executed.values()) == 3
  # A new start has new attempts, from where the rollout was.
  run.act = keyed.act
  run.executed.clear()
  again = run.live()
  assert not any(error for _, error in again.values())
  assert {key.prompt_id for key in run.executed} == {'3'}
  assert len(again['3'][0]) == 3 * TURNS and set(run.executed.values()) == {1}


def test_failures_are_counted_by_call_not_by_rollout(tmp_path):
  """A long rollout that loses each execution once is no lost rollout."""
  run = Run(tmp_path, n=8, max_attempts=8)
  found = run.live(faults=Faults(death=0.5, seed=3))
  assert sum(run.executed.values()) > 30
  assert not any(error for _, error in found.values())


def test_infrastructure_errors_leave_an_interaction_its_own_attempts(
  tmp_path, monkeypatch
):
  lost, broken = collections.Counter(), []

  def act(work):
    lost[work.key] += 1
    first = work.key.draw == 1 and lost[work.key] == 1
    return Action(1.0, outcome=Outcome.INFRASTRUCTURE if first else Outcome.OK)

  advance = keyed.Helped.advance

  def once_broken(self, state, call, result):
    if call.call == 3 * TURNS - 1 and not broken:
      broken.append(state)
      raise ValueError('once')
    return advance(self, state, call, result)

  monkeypatch.setattr(keyed.Helped, 'advance', once_broken)
  found = Run(tmp_path, act, n=1, max_attempts=3).live()
  assert broken and not any(error for _, error in found.values())


def test_what_a_person_replaced_is_gone_on_from(tmp_path):
  run = Run(tmp_path, n=3)
  assert run.live(dies=60) is None
  known = under_way.executions(Journal(tmp_path))
  prompt_id = next(i for i in known if 0 < len(known[i]) < TURNS)
  last = known[prompt_id][-1]
  record = dataclasses.replace(last.executed.record, paid=2.0)
  mine = dataclasses.replace(last.executed, record=record, kept={'edited': 'k'})
  under_way.replace(
    Journal(tmp_path), ExecutionResult(last.key, last.attempt, mine)
  )
  assert under_way.executions(Journal(tmp_path))[prompt_id][-1].executed == mine
  found = run.live()
  whole = Run(tmp_path / 'whole', n=3).live()
  results, _ = found[prompt_id]
  at = [i for i, one in enumerate(results) if one[1:] == (2.0,)]
  assert len(at) == 1 and len(results) == 3 * TURNS
  changed = [i for i in found if found[i] != whole[i]]
  assert changed == [prompt_id]
  # Killed once more it stays so.
  assert run.live() == found


def test_an_interaction_that_cannot_take_what_a_person_put_in_begins_anew(
  tmp_path, monkeypatch
):
  run = Run(tmp_path, n=3)
  assert run.live(dies=60) is None
  known = under_way.executions(Journal(tmp_path))
  prompt_id = next(i for i in known if 0 < len(known[i]) < TURNS)
  last = known[prompt_id][-1]
  record = dataclasses.replace(last.executed.record, paid=2.0)
  mine = dataclasses.replace(last.executed, record=record)
  under_way.replace(Journal(tmp_path), dataclasses.replace(last, executed=mine))
  advance = keyed.Helped.advance

  def picky(self, state, call, result):
    if getattr(result, 'record', None) == record:
      raise ValueError('too much')
    return advance(self, state, call, result)

  monkeypatch.setattr(keyed.Helped, 'advance', picky)
  found = run.live()
  assert len(found[prompt_id][0]) == 3 * TURNS
  assert not any(error for _, error in found.values())
  assert run.live() == found


@pytest.mark.parametrize('limit', [1, 2, None])
def test_each_role_has_its_own_number_of_calls_in_flight(tmp_path, limit):
  seen, now = collections.Counter(), collections.Counter()

  class Slow(keyed.KeyedSampler):
    """Answers after a second on the virtual clock."""

    def submit(self, asks):
      for ask in asks:
        now[ask.call.role] += 1
        seen[ask.call.role] = max(seen[ask.call.role], now[ask.call.role])
        inbox.at(clock.now() + 1.0, lambda a=ask: self._later(a))

    def _later(self, ask):
      now[ask.call.role] -= 1
      super().submit([ask])

  clock = VirtualClock()
  inbox, feed = VirtualInbox(clock), Feed()
  for i in range(9):
    feed.push(str(i), i)
  ended = []
  scheduler = Scheduler(
    feed,
    keyed.Helped(1),
    Workers(Slow(inbox), FakeExecutor(inbox, keyed.act, 9), inbox, clock),
    SchedulerConfig(
      1,
      max_in_flight=9,
      max_decoding=4,
      roles=keyed.Helped.roles,
      max_concurrency={keyed.HELPER: limit},
    ),
    deliver=lambda prompt, progress, error: ended.append(prompt.prompt_id),
  )
  scheduler.run_out()
  assert len(ended) == 9
  assert seen[keyed.HELPER] == (limit or 9) and seen[POLICY] <= 4


def test_an_empty_feed_is_over_at_once(tmp_path):
  assert Run(tmp_path, n=0).live() == {}


class Stopped(Exception):
  pass


@pytest.mark.parametrize('after', [0, 1, 5])
def test_a_stage_that_is_stopped_is_never_taken_for_complete(after):
  """Whenever the stop comes: before the first call, or with any result."""
  clock, ended, feed = VirtualClock(), [], Feed()
  inbox = VirtualInbox(clock)
  for i in range(9):
    feed.push(str(i), i)

  def deliver(prompt, progress, error):
    ended.append(prompt.prompt_id)
    if len(ended) == after:
      scheduler.hold()

  def tick():
    if scheduler._held:
      raise Stopped

  scheduler = Scheduler(
    feed,
    keyed.Helped(1),
    Workers(
      keyed.KeyedSampler(inbox), FakeExecutor(inbox, keyed.act, 2), inbox, clock
    ),
    SchedulerConfig(1, max_in_flight=2, roles=keyed.Helped.roles),
    deliver=deliver,
  )
  if not after:
    scheduler.hold()
  with pytest.raises(Stopped):
    scheduler.run_out(tick)
  assert len(ended) < 9
  with pytest.raises(StalledError):  # nobody stops it
    scheduler.run_out()
