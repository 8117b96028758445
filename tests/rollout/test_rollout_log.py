"""Every rollout leaves a line when it ends, with its fate and the reason."""

import collections
import json

import numpy as np
import pytest

from jaxagent.clock import VirtualClock
from jaxagent.data.prompts import PromptSource
from jaxagent.interactions import Credit
from jaxagent.records import StepRecord
from jaxagent.rollout.finished_log import FinishedLog
from jaxagent.rollout.journal import Journal
from jaxagent.rollout.records import SchedulerConfig
from jaxagent.rollout.requests import Workers
from jaxagent.rollout.rollout_log import RolloutLog, read
from jaxagent.rollout.scheduler import Scheduler
from jaxagent.rollout.tracked import Group, TrackedRollout
from jaxagent.testing.bandit import Bandit
from jaxagent.testing.fake_executor import Action, FakeExecutor, Faults
from jaxagent.testing.fake_sampler import ArmSampler
from jaxagent.testing.virtual_inbox import VirtualInbox
from jaxagent.types import NoReward, Outcome, Prompt


def build(
  path, act, faults=None, turns=1, journal=None, finished=None, **options
):
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
    log=RolloutLog(path, clock, finished),
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


def test_a_finished_rollout_has_its_prompt_record_and_calls(tmp_path):
  """Before an update learns from it, which `jaxagent live` does not wait for."""
  path = tmp_path / 'finished.jsonl'
  finished = FinishedLog(path, lambda ids: f'{len(ids)} ids')
  scheduler = build(tmp_path / 'log', second, finished=finished, turns=2)
  scheduler._sampler.version = 0
  scheduler.next_batch(0)
  lines = [json.loads(line) for line in path.read_text().splitlines()]
  assert len(lines) >= 4
  assert not [r for r in read(tmp_path / 'log') if r['fate'] == 'trained']
  for line in lines:
    assert [turn['prompt'] for turn in line['turns']] == ['1 ids', '3 ids']
    assert [turn['policy'] for turn in line['turns']] == [0, 0]
    kinds = [call['kind'] for call in line['calls']]
    assert kinds == ['policy', 'execute'] * 2
    assert line['calls'][1]['seconds'] >= 1.0


def test_a_finished_rollout_keeps_what_was_done_with_long_texts_cut(tmp_path):
  path = tmp_path / 'finished.jsonl'
  done = StepRecord(
    outcome=Outcome.OK, observation='x' * 10**6, diff='+ a', args={'long': 'y'}
  )
  member = TrackedRollout(Prompt('0/0/0', '0/0', None), Group('0/0', 0, 0), 1)
  turn = {'call': 0, 'reward': 0.5}
  log = FinishedLog(path, lambda ids: '')
  log.write(member, {0: Credit(0.5, 1.0, record=done)}, [turn], [])
  log.close()
  record = json.loads(path.read_text())['turns'][0]['record']
  assert record['diff'] == '+ a' and 'args' not in record
  assert len(record['observation']) < 41_000
  assert 'characters left out' in record['observation']


def test_a_rollout_tells_how_old_its_policy_was(tmp_path):
  scheduler = build(tmp_path / 'log', second)
  run(scheduler, 8)
  trained = [r for r in read(tmp_path / 'log') if r['fate'] == 'trained']
  assert all(0 <= r['turns'][0]['policy'] <= r['update'] for r in trained)
  assert len({r['turns'][0]['policy'] for r in trained}) > 1


def test_a_file_of_texts_that_cannot_be_written_stops_no_run(tmp_path, capsys):
  path = tmp_path / 'finished.jsonl'
  path.mkdir()
  finished = FinishedLog(path, lambda ids: '')
  scheduler = build(tmp_path / 'log', second, finished=finished)
  run(scheduler, 3)
  assert fates(tmp_path / 'log')['trained'] == 12
  said = capsys.readouterr().err
  assert said.count('\n') == 1 and 'The run goes on.' in said


def test_a_line_of_texts_that_a_kill_cut_is_ended(tmp_path):
  path = tmp_path / 'finished.jsonl'
  path.write_text('{"half')
  finished = FinishedLog(path, lambda ids: '')
  scheduler = build(tmp_path / 'log', second, finished=finished)
  run(scheduler, 1)
  first, *rest = path.read_text().splitlines()
  assert first == '{"half' and all(json.loads(line) for line in rest)
