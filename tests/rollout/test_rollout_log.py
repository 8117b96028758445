"""Every rollout leaves a line when it ends, with its fate and the reason."""

import collections

import numpy as np
import pytest

from jaxagent.clock import VirtualClock
from jaxagent.data.prompts import PromptSource
from jaxagent.rollout.journal import Journal
from jaxagent.rollout.records import SchedulerConfig
from jaxagent.rollout.requests import Workers
from jaxagent.rollout.rollout_log import RolloutLog, read
from jaxagent.rollout.scheduler import Scheduler
from jaxagent.testing.bandit import Bandit
from jaxagent.testing.fake_executor import Action, FakeExecutor, Faults
from jaxagent.testing.fake_sampler import ArmSampler
from jaxagent.testing.virtual_inbox import VirtualInbox
from jaxagent.types import NoReward, Outcome


def build(path, act, faults=None, turns=1, journal=None, **options):
  clock = VirtualClock()
  inbox = VirtualInbox(clock, journal)
  options = {
    'batch_size': 4,
    'max_staleness': None,
    'on_stale': 'keep',
    'watchdog_s': 1e4,
    'max_attempts': 3,
    **options,
  }
  return Scheduler(
    PromptSource(range(64), group_size=1, seed=0),
    Bandit(turns),
    Workers(
      ArmSampler(inbox, np.zeros(2), 0, 0.0),
      FakeExecutor(inbox, act, 6, 2, faults),
      inbox,
      clock,
    ),
    SchedulerConfig(**options),
    journal=journal,
    log=RolloutLog(path, clock),
  )


def run(scheduler, updates, start=0):
  for version in range(start, start + updates):
    scheduler._sampler.version = version
    batch = scheduler.next_batch(version)
    scheduler.mark_trained(batch.prompt_ids, version)


def second(work):
  return Action(1.0, 0.5)


def fates(path):
  return collections.Counter(r['fate'] for r in read(path))


def test_a_trained_rollout_has_its_update_and_reward(tmp_path):
  path = tmp_path / 'rl' / 'rollouts.jsonl'
  scheduler = build(path, second, turns=2)
  run(scheduler, 3)
  trained = [r for r in read(path) if r['fate'] == 'trained']
  assert [r['update'] for r in trained] == [0] * 4 + [1] * 4 + [2] * 4
  assert {r['reward'] for r in trained} == {1.0}
  assert [len(r['turns']) for r in trained] == [2] * 12
  assert all(r['seconds']['execution'] == 2.0 for r in trained)
  assert {r['reason'] for r in trained} == {None}


def test_the_line_is_there_while_the_run_goes_on(tmp_path):
  scheduler = build(tmp_path / 'log', second)
  run(scheduler, 1)
  assert fates(tmp_path / 'log')['trained'] == 4


def test_each_lost_attempt_is_named_with_its_message(tmp_path):
  scheduler = build(tmp_path / 'log', second, Faults(death=0.4, seed=3))
  run(scheduler, 6)
  attempts = [a for r in read(tmp_path / 'log') for a in r['attempts']]
  lost = [a for a in attempts if a['outcome'] == 'infrastructure']
  assert lost and {a['message'] for a in lost} == {'sandbox died'}
  retried = [
    r
    for r in read(tmp_path / 'log')
    if r['fate'] == 'trained' and len(r['attempts']) > 1
  ]
  assert retried and all(r['reward'] == 0.5 for r in retried)


def test_a_quarantined_prompt_has_the_reason_and_all_its_attempts(tmp_path):
  def act(work):
    bad = work.call.request.payload == 5
    return Action(1.0, 0.5, Outcome.GRADER_ERROR if bad else Outcome.OK)

  scheduler = build(tmp_path / 'log', act)
  run(scheduler, 16)
  (gone,) = [r for r in read(tmp_path / 'log') if r['fate'] == 'quarantined']
  assert gone['reason'] == 'grader_error' and gone['reward'] is None
  assert [a['attempt'] for a in gone['attempts']] == [1, 2, 3]
  assert '3 times' in gone['message']


def test_a_lease_that_ends_is_no_fault_of_the_rollout(tmp_path):
  scheduler = build(
    tmp_path / 'log', second, Faults(hang=0.3, seed=1), lease_s=5.0
  )
  run(scheduler, 5)
  outcomes = {
    a['outcome'] for r in read(tmp_path / 'log') for a in r['attempts']
  }
  assert outcomes == {'ok', 'lease_expired'}


def test_what_earns_nothing_says_why(tmp_path):
  def act(work):
    known = work.call.request.payload % 2
    return Action(1.0, 0.5 if known else NoReward.NO_SCALE)

  scheduler = build(tmp_path / 'log', act)
  run(scheduler, 4)
  again = [r for r in read(tmp_path / 'log') if r['fate'] == 'restarted']
  assert again and {r['reason'] for r in again} == {'no_scale'}


def test_a_turn_without_a_reward_is_named_beside_one_with(tmp_path):
  def act(work):
    return Action(1.0, None if work.call.request.turn else 0.25)

  scheduler = build(tmp_path / 'log', act, turns=2)
  run(scheduler, 1)
  one = next(r for r in read(tmp_path / 'log') if r['fate'] == 'trained')
  assert [t['reason'] for t in one['turns']] == [None, 'not_credited']
  assert one['reward'] == 0.25 and one['reason'] is None


@pytest.mark.parametrize(
  'options, fate',
  [
    ({'rest': 'cancel', 'oversample': 1.5}, 'cancelled'),
    ({'max_staleness': 1, 'on_stale': 'drop', 'oversample': 2.0}, 'stale'),
  ],
)
def test_what_was_thrown_away_is_named_and_begins_anew(tmp_path, options, fate):
  rng = np.random.default_rng(0)
  scheduler = build(
    tmp_path / 'log',
    lambda w: Action(float(rng.lognormal(sigma=2.0)), 0.5),
    **options,
  )
  run(scheduler, 12)
  thrown = [r for r in read(tmp_path / 'log') if r['fate'] == fate]
  assert thrown
  restarts = collections.defaultdict(list)
  for record in read(tmp_path / 'log'):
    restarts[record['prompt_id']].append(record['restart'])
  assert all(r == list(range(len(r))) for r in restarts.values())


def test_the_end_of_a_run_lists_unfinished_and_unused_rollouts(tmp_path):
  scheduler = build(tmp_path / 'log', second, batch_size=4, drain_s=0.0)
  run(scheduler, 1)
  scheduler.work(1)
  scheduler.close()
  left = fates(tmp_path / 'log')
  assert left['unfinished'] + left['unused'] == len(
    scheduler._book.buffer.groups
  )


def test_a_run_that_is_killed_counts_each_rollout_once(tmp_path):
  path = tmp_path / 'log'
  first = build(path, second, journal=Journal(tmp_path / 'journal'))
  first.resume(None)
  run(first, 3)
  path.write_bytes(path.read_bytes() + b'{"half a li')
  again = build(path, second, journal=Journal(tmp_path / 'journal'))
  again.resume(None)
  run(again, 5)
  trained = [r for r in read(path) if r['fate'] == 'trained']
  assert collections.Counter(r['update'] for r in trained) == dict.fromkeys(
    range(5), 4
  )
  ids = [r['prompt_id'] for r in trained]
  assert len(set(ids)) == len(ids) == 20
