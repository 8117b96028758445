"""The scheduler on a virtual clock: who enters, when, and after which fault."""

import dataclasses
import json

import numpy as np
import pytest

from jaxagent.clock import VirtualClock
from jaxagent.data.ledger import LedgerError, Status
from jaxagent.data.prompts import PromptSource
from jaxagent.rollout.journal import Journal
from jaxagent.rollout.records import (
  SchedulerConfig,
  SourceExhausted,
  StalledError,
)
from jaxagent.rollout.requests import ExecutionResult, Workers
from jaxagent.rollout.scheduler import Scheduler
from jaxagent.testing.bandit import Bandit
from jaxagent.testing.fake_executor import Action, FakeExecutor, Faults
from jaxagent.testing.fake_sampler import ArmSampler
from jaxagent.testing.virtual_inbox import VirtualInbox
from jaxagent.types import Outcome
from tests.subset import fast


def build(
  config,
  act,
  slots=8,
  pool=64,
  faults=None,
  epochs=None,
  seed=0,
  look_ahead=0,
  turns=1,
  journal=None,
  latency_s=0.0,
):
  clock = VirtualClock()
  inbox = VirtualInbox(clock, journal)
  executor = FakeExecutor(inbox, act, slots, look_ahead, faults)
  source = PromptSource(
    range(pool), group_size=config.group_size, seed=seed, epochs=epochs
  )
  sampler = ArmSampler(inbox, np.zeros(2), seed, latency_s)
  return Scheduler(
    source,
    Bandit(turns),
    Workers(sampler, executor, inbox, clock),
    dataclasses.replace(config, seed=seed),
    journal=journal,
  )


def config(batch_size=8, **kwargs):
  defaults = dict(
    batch_size=batch_size, max_staleness=None, on_stale='keep', watchdog_s=1e4
  )
  return SchedulerConfig(**{**defaults, **kwargs})


def lognormal(seed=0, sigma=1.2):
  rng = np.random.default_rng(seed)
  return lambda w: Action(float(np.exp(sigma * rng.standard_normal())), 1.0)


def pair(work):
  return Action((1.0, 20.0)[work.call.request.arm], 1.0)


def run(scheduler, updates, start=0):
  batches = []
  for version in range(start, start + updates):
    scheduler._sampler.version = version
    batch = scheduler.next_batch(version)
    scheduler.mark_trained(batch.prompt_ids, version)
    batches.append(batch)
  scheduler.ledger.check()
  return batches


@pytest.mark.parametrize(
  'rest, m, slots, fast, tolerance',
  fast(
    [
      ('carry_over', 1.0, 64, 0.501, 0.02),
      ('wait', 1.0, 48, 0.50, 0.02),
      ('cancel', 1.25, 60, 0.62, 0.02),
      ('cancel', 1.5, 72, 0.75, 0.02),
      ('cancel', 2.0, 96, 0.96, 0.02),
    ],
    first=3,
  ),
)
def test_share_of_the_fast_action(rest, m, slots, fast, tolerance):
  scheduler = build(config(48, rest=rest, oversample=m), pair, slots, 480)
  samples = [s for b in run(scheduler, 80) for s in b.samples]
  share = np.mean([s.exec_s == 1.0 for s in samples])
  assert share == pytest.approx(fast, abs=tolerance)


def test_wait_is_synchronous_in_prompt_order_and_repeatable():
  def once():
    scheduler = build(config(rest='wait'), lognormal())
    return [
      (s.prompt_id, s.exec_s, int(s.token_ids[0]))
      for b in run(scheduler, 5)
      for s in b.samples
    ]

  first = once()
  assert first == once()
  positions = [int(i.split('/')[1]) for i, _, _ in first]
  assert positions == list(range(40))


@pytest.mark.parametrize('bound', [0, 1, 2, 4])
@pytest.mark.parametrize('on_stale', ['hold', 'drop'])
@pytest.mark.parametrize('group_size', [1, 4])
def test_bound_is_kept(bound, on_stale, group_size):
  for seed in range(4):
    c = config(max_staleness=bound, on_stale=on_stale, group_size=group_size)
    scheduler = build(c, lognormal(seed, 1.5), 24, 64, seed=seed)
    batches = run(scheduler, 25)
    assert max(b.stats['staleness/max'] for b in batches) <= bound
    assert all(len(b.samples) == 8 for b in batches)
    total = scheduler.stats.total['dropped']
    assert (total == 0) if on_stale == 'hold' else True
    by_bucket = sum(
      v
      for b in batches
      for k, v in b.stats.items()
      if k.startswith('staleness/dropped_')
    )
    assert by_bucket == sum(b.stats['staleness/dropped'] for b in batches)


@pytest.mark.parametrize('bound', [0, 1, 4])
@pytest.mark.parametrize('on_stale', ['hold', 'drop'])
def test_bound_is_kept_while_generation_and_learning_overlap(bound, on_stale):
  for seed in range(3):
    c = config(max_staleness=bound, on_stale=on_stale)
    scheduler = build(c, lognormal(seed, 1.5), 16, look_ahead=8)
    for version in range(40):
      scheduler._sampler.version = version
      batch = scheduler.next_batch(version)
      assert batch.stats['staleness/max'] <= bound
      assert len(batch.samples) == 8
      for _ in range(3):
        scheduler._clock.sleep(0.1)
        scheduler.work(version)
      scheduler.mark_trained(batch.prompt_ids, version)


def test_what_is_cancelled_starts_with_the_next_wave():
  scheduler = build(config(rest='cancel', oversample=1.5), lognormal(), 12)
  for version in range(3):
    batch = scheduler.next_batch(version)
    for _ in range(3):  # while the learner computes
      scheduler._clock.sleep(0.5)
      scheduler.work(version)
      assert not scheduler._busy
    scheduler.mark_trained(batch.prompt_ids, version)
    assert len(scheduler._book.pending) == 4


@pytest.mark.parametrize('rest', ['carry_over', 'wait'])
def test_a_batch_that_is_handed_out_again_lets_nothing_run_ahead(
  tmp_path, rest
):
  c = config(rest=rest, max_staleness=0, on_stale='hold')
  first = build(c, lognormal(), journal=Journal(tmp_path))
  first.resume(None)
  ids = set(first.next_batch(0).prompt_ids)
  first._journal.close()  # killed
  again = build(c, lognormal(), journal=Journal(tmp_path))
  again.resume(None)
  assert set(again.next_batch(0).prompt_ids) == ids
  for _ in range(3):
    again._clock.sleep(1.0)
    again.work(0)
    assert not again._busy


def test_a_batch_that_is_handed_out_again_logs_the_gauges_of_its_first_time(
  tmp_path,
):
  def fresh():
    return build(config(rest='wait'), pair, journal=Journal(tmp_path))

  first = fresh()
  first.resume(None)
  run(first, 1)
  saved = json.loads(json.dumps(first.checkpoint()))
  logged = first.next_batch(1).stats

  def kill():
    raise KeyboardInterrupt

  with pytest.raises(KeyboardInterrupt):  # when the next batch has begun
    first.next_batch(2, kill)
  first._journal.close()
  for _ in range(2):  # and once more, after a checkpoint without an update
    again = fresh()
    again.resume(saved)
    assert len(again._book.under_way) == 8
    saved = json.loads(json.dumps(again.checkpoint()))
    stats = again.next_batch(1).stats
    assert _gauges_of(stats) == _gauges_of(logged)
    again._journal.close()
  assert _gauges_of(logged)['in_flight'] == 0


def _gauges_of(stats):
  names = ('size', 'running', 'generating', 'in_flight', 'pending')
  return {name: stats[f'buffer/{name}'] for name in names}


def test_keep_consumes_over_the_bound_and_counts():
  scheduler = build(config(max_staleness=1), lognormal(2, 1.5), 24)
  batches = run(scheduler, 25)
  assert sum(b.stats['staleness/over_bound'] for b in batches) > 0


def test_buffer_capacity_stops_issuing():
  c = config(buffer_capacity=16)
  scheduler = build(c, lambda w: Action(1.0, 1.0), slots=4)
  clock = scheduler._clock
  for _ in range(40):
    scheduler.work(0)
    clock.sleep(1.0)
    scheduler.work(0)
  assert 16 <= scheduler.ledger.counts()['finished'] <= 16 + 4


def test_overlap_while_learning():
  scheduler = build(config(), lambda w: Action(1.0, 1.0), slots=4, look_ahead=4)
  idle = []
  for version in range(20):
    batch = scheduler.next_batch(version)
    idle.append(batch.stats['scheduler/learner_idle_s'])
    for _ in range(4):
      scheduler._clock.sleep(0.25)
      scheduler.work(version)
    scheduler.mark_trained(batch.prompt_ids, version)
    use = batch.stats['scheduler/worker_use']
  assert use == pytest.approx(1.0) and np.mean(idle[2:]) == pytest.approx(1.0)


# Failures ---------------------------------------------------------------------


def test_infrastructure_is_retried_with_the_same_completion():
  seen = {}

  def act(work):
    seen.setdefault(work.prompt.prompt_id, []).append(work)
    if len(seen[work.prompt.prompt_id]) == 1:
      return Action(1.0, None, Outcome.INFRASTRUCTURE)
    return Action(1.0, 1.0)

  scheduler = build(config(), act)
  batch = run(scheduler, 1)[0]
  assert len(batch.samples) == 8
  assert batch.stats['buffer/infrastructure'] >= 8
  for works in seen.values():
    assert all(w.call.request is works[0].call.request for w in works)
    assert [w.attempt for w in works] == list(range(1, len(works) + 1))


def test_a_killer_is_quarantined_and_named():
  def act(work):
    if work.prompt.payload == 13:
      return Action(1.0, None, Outcome.INFRASTRUCTURE)
    return Action(1.0, 1.0)

  scheduler = build(config(), act, pool=16)
  samples = [s for b in run(scheduler, 6) for s in b.samples]
  quarantined = scheduler.ledger.quarantined()
  assert quarantined and all('3 times' in r for r in quarantined.values())
  assert not set(quarantined) & {s.prompt_id for s in samples}
  assert all(s.reward is not None for s in samples)


@pytest.mark.parametrize(
  'bad',
  [
    Action(1.0, float('nan')),
    Action(1.0, float('inf')),
    Action(1.0, None),
    Action(1.0, 1.0),
  ],
)
def test_bad_data_is_rejected_and_counted(bad):
  zero = bad.reward == 1.0

  def act(work):
    if work.prompt.payload == 3:
      return bad
    return Action(1.0, 1.0)

  scheduler = build(config(), act, pool=16)
  if zero:  # a duration of zero reported for an execution that took time
    take = scheduler._book.take

    def broken(result):
      if isinstance(result, ExecutionResult):
        executed = dataclasses.replace(result.executed, exec_s=0.0)
        if scheduler._book.calls[result.key][0].prompt.payload == 3:
          result = dataclasses.replace(result, executed=executed)
      return take(result)

    scheduler._book.take = broken
  batches = run(scheduler, 4)
  assert sum(b.stats['buffer/rejected'] for b in batches) >= 3
  assert scheduler.ledger.quarantined()
  for batch in batches:
    for s in batch.samples:
      assert np.isfinite(s.reward) and s.exec_s > 0


def test_a_group_excludes_members_lost_to_infrastructure():
  def act(work):
    if work.prompt.prompt_id.endswith('/2') or work.prompt.payload == 5:
      return Action(1.0, None, Outcome.INFRASTRUCTURE)
    return Action(1.0, 1.0)

  scheduler = build(config(group_size=4), act, pool=8)
  batches = run(scheduler, 6)
  for batch in batches:
    groups = {s.group_id for s in batch.samples}
    assert len(groups) == 2 and len(batch.samples) == 6
  names = scheduler.ledger.quarantined()
  assert any(n.endswith('/0') for n in names)  # the whole group of item 5


def test_deaths_hangs_and_a_lost_node():
  faults = Faults(0.05, 0.05, 3.0, ((20.0, 4, 30.0),), seed=1)
  scheduler = build(config(), lognormal(), 16, faults=faults)
  batches = run(scheduler, 60)
  assert all(len(b.samples) == 8 for b in batches)
  assert scheduler.stats.total['infrastructure'] > 20


def test_lease_recovers_silent_hangs():
  c = config(lease_s=50.0)
  scheduler = build(c, lognormal(), 8, faults=Faults(hang=0.05, seed=2))
  assert len(run(scheduler, 40)) == 40
  assert scheduler.stats.total['infrastructure'] > 3


def test_a_lease_begins_when_a_slot_takes_the_work():
  # 64 works of 4 s on 8 slots: most of them wait longer than the lease.
  c = config(batch_size=64, lease_s=5.0)
  act = lambda w: Action(4.0, 1.0)  # noqa: E731
  scheduler = build(c, act, 8, look_ahead=56)
  run(scheduler, 3)
  assert scheduler.stats.total['expired'] == 0
  act = lambda w: Action(6.0, 1.0)  # noqa: E731
  scheduler = build(c, act, 8, look_ahead=56, pool=64, epochs=1)
  with pytest.raises(SourceExhausted):
    scheduler.next_batch(0)
  assert 'no answer within lease_s=5' in str(scheduler.ledger.quarantined())
  assert scheduler.stats.total['expired'] == 64 * 3


def test_watchdog_names_who_stalls():
  c = config(watchdog_s=30.0)
  scheduler = build(c, lognormal(), 8, faults=Faults(hang=1.0))
  with pytest.raises(
    StalledError, match=r'0/\d/0#1.1 running .attempt 1. for 30'
  ):
    scheduler.next_batch(0)
  assert scheduler._clock.now() < 100


def test_everything_quarantined_does_not_hang():
  act = lambda w: Action(1.0, None, Outcome.INFRASTRUCTURE)  # noqa: E731
  scheduler = build(config(), act, pool=16, epochs=1)
  with pytest.raises(SourceExhausted, match='quarantined'):
    scheduler.next_batch(0)


def test_a_run_in_which_all_is_quarantined_ends_and_says_why():
  broken = True

  def act(work):
    return Action(1.0, *((None, Outcome.INFRASTRUCTURE) if broken else (1.0,)))

  scheduler = build(config(max_quarantined=20), act, pool=16)
  why = r'24 prompts in a row .*max_quarantined=20.: 1/\d+/0: infrastructure 3 times'
  with pytest.raises(StalledError, match=why):
    scheduler.next_batch(0)
  state = json.loads(json.dumps(scheduler.checkpoint()))
  broken = False
  again = build(config(max_quarantined=20), act, pool=16)
  again.resume(state)
  run(again, 3)


def test_an_interaction_that_never_begins_ends_the_run_at_once():
  class Broken(Bandit):
    def start(self, payload):
      raise KeyError('no such task')

  scheduler = build(config(), lognormal())
  scheduler._book._interaction = Broken()
  with pytest.raises(StalledError, match='Broken.start raised KeyError'):
    scheduler.next_batch(0)
  assert scheduler._clock.now() == 0


def test_finite_source_ends_with_a_smaller_batch():
  scheduler = build(config(), lognormal(), pool=20, epochs=1)
  sizes = [len(b.samples) for b in run(scheduler, 3)]
  assert sizes == [8, 8, 4]
  with pytest.raises(SourceExhausted):
    scheduler.next_batch(3)


def test_close_is_bounded():
  c = config(drain_s=5.0)
  scheduler = build(c, lambda w: Action(1e6, 1.0))
  scheduler.work(0)
  scheduler.close()
  assert scheduler._clock.now() == pytest.approx(5.0)
  assert scheduler.ledger.counts()['running'] == 0


def test_mark_trained_is_once():
  scheduler = build(config(), lognormal())
  batch = scheduler.next_batch(0)
  scheduler.mark_trained(batch.prompt_ids, 0)
  with pytest.raises(LedgerError, match='trained'):
    scheduler.mark_trained(batch.prompt_ids, 1)


# Kill and resume --------------------------------------------------------------


@pytest.mark.parametrize(
  'rest, m',
  [
    ('carry_over', 1.0),
    ('cancel', 1.5),
    ('wait', 1.0),
  ],
)
@pytest.mark.parametrize('group_size', [1, 4])
def test_killed_anywhere_each_prompt_is_trained_once(rest, m, group_size):
  """Property: at random points the process dies and the last state loads."""
  rng = np.random.default_rng(group_size)
  c = config(rest=rest, oversample=m, group_size=group_size)
  pool = 24

  def fresh():
    return build(
      c,
      lognormal(int(rng.integers(1 << 30))),
      20,
      pool,
      epochs=6,
      faults=Faults(0.05, 0.0, seed=int(rng.integers(1 << 30))),
    )

  scheduler = fresh()
  saved, version_saved = json.dumps(scheduler.checkpoint()), 0
  version, kills, trained = 0, 0, {}
  while True:
    try:
      batch = scheduler.next_batch(version)
    except SourceExhausted:
      break
    die = rng.random() < 0.3 and kills < 12
    if die and rng.random() < 0.5:  # between the batch and its update
      saved = (
        saved if rng.random() < 0.5 else json.dumps(scheduler.checkpoint())
      )
      version_saved = json.loads(saved)['version']
    else:
      scheduler.mark_trained(batch.prompt_ids, version)
      version += 1
      if rng.random() < 0.6:
        saved, version_saved = json.dumps(scheduler.checkpoint()), version
    if die:
      kills += 1
      scheduler = fresh()
      scheduler.resume(json.loads(saved))
      version = version_saved
  assert kills > 2
  trained = dict(scheduler.ledger.trained())
  quarantined = scheduler.ledger.quarantined()
  drawn = {
    f'{e}/{p}/{i}'
    for e in range(6)
    for p in range(pool)
    for i in range(group_size)
  }
  assert set(trained) | set(quarantined) == drawn
  assert not set(trained) & set(quarantined)
  scheduler.ledger.check(drawn)


def test_running_prompts_are_issued_again_with_their_completion():
  scheduler = build(config(), lognormal())
  scheduler.work(0)
  arms = _running_arms(scheduler)
  state = json.loads(json.dumps(scheduler.checkpoint()))
  again = build(config(), lognormal(), seed=0)
  again._sampler = ArmSampler(again._inbox, np.zeros(2), 99)
  again.resume(state)
  assert set(again.ledger.ids(Status.PENDING)) == {k.prompt_id for k in arms}
  again.work(0)
  assert arms == _running_arms(again)


def _running_arms(scheduler):
  calls = scheduler._book.calls
  return {k: calls[k][1].request.arm for k in scheduler._running}


def test_resume_with_another_seed_is_refused():
  state = build(config(), lognormal()).checkpoint()
  with pytest.raises(ValueError, match='seed=0'):
    build(config(), lognormal(), seed=1).resume(state)


# Bad input --------------------------------------------------------------------


@pytest.mark.parametrize(
  'kwargs, text',
  [
    (dict(oversample=0.9), 'm must be 1 or more'),
    (dict(oversample=float('nan')), 'm must be 1 or more'),
    (dict(rest='later'), 'none of'),
    (dict(on_stale='burn'), 'none of'),
    (dict(rest='wait', oversample=1.5), 'no meaning'),
    (dict(max_staleness=-1), 'never be met'),
    (dict(buffer_capacity=4), 'no batch would ever fill'),
    (dict(group_size=3), 'multiple'),
    (dict(lease_s=2e4), 'not nested'),
    (dict(watchdog_s=0), 'positive'),
    (dict(max_attempts=0), '1 or more'),
    (dict(batch_size=0), '1 or more'),
  ],
)
def test_bad_config(kwargs, text):
  with pytest.raises(ValueError, match=text):
    config(**kwargs)


def test_batch_larger_than_the_pool():
  with pytest.raises(ValueError, match='larger than the pool'):
    build(config(), pair, pool=4)


def test_version_may_not_go_back():
  scheduler = build(config(), pair)
  scheduler.work(3)
  with pytest.raises(ValueError, match='below 3'):
    scheduler.work(2)


def test_a_late_answer_is_ignored():
  scheduler = build(config(), lognormal())
  scheduler.work(0)
  results = scheduler._inbox.take(100.0)
  scheduler._take_in(results + results)
  assert scheduler.stats.total['ignored'] == len(results)


# Sources ----------------------------------------------------------------------


def test_source_order_and_state():
  a = PromptSource({'x': 1, 'y': 2, 'z': 3}, seed=4)
  first = [a.draw() for _ in range(4)]
  state = json.loads(json.dumps(a.state_dict()))
  rest = [a.draw().key for _ in range(5)]
  b = PromptSource({'x': 1, 'y': 2, 'z': 3}, seed=4)
  b.load_state_dict(state)
  assert rest == [b.draw().key for _ in range(5)]
  assert {d.key for d in first[:3]} == {'x', 'y', 'z'}
  assert first[3].prompts[0].prompt_id == '1/0/0'


def test_a_pool_may_grow_within_an_epoch():
  pool = {'x': 1, 'y': 2}
  source = PromptSource(pool, seed=0)
  keys = [source.draw().key]
  pool['n'] = 9
  keys.append(source.draw().key)
  assert set(keys) == {'x', 'y'}
  assert {source.draw().key for _ in range(3)} == {'x', 'y', 'n'}


def test_a_stop_is_seen_before_a_batch_that_nothing_is_issued_for():
  scheduler = build(config(), pair)
  scheduler.hold()

  def tick():
    raise InterruptedError

  with pytest.raises(InterruptedError):
    scheduler.next_batch(0, tick)
